"""Runs dbt in a process with a session, as its method `session` wants: `dbt_session.py project`."""

import sys

from dbt.cli.main import dbtRunner
from pyspark.sql import SparkSession

import rewrite


def main(project: str) -> None:
    spark = rewrite.session(
        SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    )
    where = ["--project-dir", project, "--profiles-dir", project, "--target", "session"]
    for _ in range(2):
        assert dbtRunner().invoke(["--no-version-check", "run", *where]).success
    scans = rewrite.history(spark).where("pruned > 0").collect()
    print("looked in", [(scan.files, scan.opened) for scan in scans])
    spark.stop()


if __name__ == "__main__":  # dbt starts processes that import this
    main(sys.argv[1])
