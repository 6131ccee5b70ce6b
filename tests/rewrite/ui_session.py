"""A session with Spark's UI, in a process of its own: `python ui_session.py FOLDER`.

It evaluates the expressions that it reads, one in each line, and prints each result as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import rewrite
from rewrite.bridge import install  # noqa: F401 - of the lines that this evaluates
from rewrite.observe import tab  # noqa: F401
from skipping.spark_api import classic


def start(folder: Path, **conf: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.skipping.store": f"sqlite:{folder}/index.sqlite",
        "spark.driver.memory": "1g",
        "spark.sql.codegen.wholeStage": "false",  # few rows
        **{key.replace("_", "."): value for key, value in conf.items()},
    }
    return rewrite.session(SparkSession.builder.master("local[2]").config(map=settings), formats=[])


def start_other(spark: SparkSession) -> SparkSession:
    """A session of the same Spark context that shares nothing else."""
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc.sc()
    own = classic(jvm).SparkSession(context, jvm.java.util.HashMap())
    return SparkSession(spark.sparkContext, own)


def list_tabs(spark: SparkSession) -> list[str]:
    tabs: Any = spark.sparkContext._jsc.sc().ui().get().getTabs()
    return [tabs.apply(i).name() for i in range(tabs.size())]


def main(folder: Path) -> None:
    names: dict[str, Any] = dict(globals(), folder=folder)
    for line in sys.stdin:
        names["result"] = None
        exec(line, names)
        print(json.dumps(names["result"]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
