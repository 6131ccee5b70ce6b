"""A Spark of its own that runs the statements it is given on standard input.

python another_process.py table store folder
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import rewrite


def main(store: str, folder: str) -> None:
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.driver.memory", "1g")
        .config("spark.skipping.store", store)
        .config("spark.skipping.store.replica", f"{folder}/replica")
    )
    spark = rewrite.session(builder)
    for statement in sys.stdin:
        spark.sql(statement)
        print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[2:4])
