"""A session with DataFusion Comet, in its own process: `python comet.py FOLDER JAR`.

Prints one JSON object: for each query, what it returned and read with Comet and with file skipping
on and off. `test_comet.py` checks it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import rewrite

ROWS = "id AS k, id * 7919 % 50000 * 2 AS h, id * 7 % 50000 AS v FROM range(50000)"
"""Files are sorted by `k`. Each has an `h` of the whole range, and no `h` is odd."""
FILES = 20
SHUFFLE = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
STATIC = {"spark.sql.adaptive.enabled": "false"}
JOIN = "SELECT f.k, f.v FROM {fact} f JOIN {dim} d ON f.k = d.k WHERE d.n = 'n7'"

QUERIES: dict[str, tuple[str, dict[str, str]]] = {
    "literal": ("SELECT k, v FROM {fact} WHERE h = 4242", {}),
    "aggregate": ("SELECT count(*), sum(v) FROM {fact} WHERE h = 4242", {}),
    "absent": ("SELECT count(*) FROM {fact} WHERE h = 4243", {}),
    "absent in one file": ("SELECT count(*) FROM {small} WHERE h = 4243", {}),
    "absent in one file without AQE": ("SELECT count(*) FROM {small} WHERE h = 4243", STATIC),
    "broadcast": (JOIN, {}),
    "broadcast without AQE": (JOIN, STATIC),
    "shuffle": (JOIN, SHUFFLE),
    "shuffle without AQE": (JOIN, SHUFFLE | STATIC),
    "top rows": ("SELECT k, v FROM {fact} ORDER BY k DESC LIMIT 5", {}),
    "union": (
        "SELECT * FROM {fact} WHERE h = 4042 UNION ALL SELECT * FROM {fact} WHERE h = 4242",
        {},
    ),
    "self-join": (
        "SELECT a.k FROM {fact} a JOIN {fact} b USING (v) WHERE a.h = 4042 AND b.h IN (4042, 4043)",
        SHUFFLE | STATIC,
    ),
}


def start(folder: Path, jar: str) -> SparkSession:
    settings = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": jar,
        "spark.plugins": "org.apache.spark.CometPlugin",
        "spark.shuffle.manager": (
            "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager"
        ),
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "1g",
        "spark.comet.scan.icebergNative.enabled": "true",
        "spark.skipping.mode": "strict",
    }
    return rewrite.session(SparkSession.builder.master("local[2]").config(map=settings))


def create(spark: SparkSession, using: str, fact: str, small: str, dim: str) -> None:
    for table, files in ((fact, FILES), (small, 1)):
        rows = f"SELECT /*+ REPARTITION_BY_RANGE({files}, k) */ {ROWS}"
        spark.sql(f"CREATE TABLE {table} USING {using} AS {rows}")
        spark.sql(f"CREATE SKIPPING INDEX ON {table} (h BLOOM_FILTER(fpp => 0.0001))").collect()
    dims = "SELECT id * 10 AS k, concat('n', id) AS n FROM range(10)"
    spark.sql(f"CREATE TABLE {dim} USING {using} AS {dims}")


def nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a physical plan that has run."""
    yield plan
    name = plan.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        yield from nodes(plan.executedPlan())
    elif "QueryStageExec" in name:
        yield from nodes(plan.plan())
    for i in range(plan.children().size()):
        yield from nodes(plan.children().apply(i))


def observe(frame: DataFrame) -> dict[str, Any]:
    rows = sorted(map(str, frame.collect()))
    plan = frame._jdf.queryExecution().executedPlan()
    names = [node.getClass().getSimpleName() for node in nodes(plan)]
    scans = rewrite.explain(frame).scans
    return {
        "rows": rows,
        "native": names.count("CometIcebergNativeScanExec"),
        "opened": [scan.opened for scan in scans if not scan.table.endswith("dim")],
        "why": [str(scan) for scan in scans],
    }


def run(spark: SparkSession, tables: dict[str, str]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, (query, settings) in QUERIES.items():
        for key, value in settings.items():
            spark.conf.set(key, value)
        for comet in ("false", "true"):
            for hooks in ("false", "true"):
                spark.conf.set("spark.comet.enabled", comet)
                spark.conf.set("spark.skipping.enabled", hooks)
                frame = spark.sql(query.format(**tables))
                seen.setdefault(name, {})[f"comet={comet} hooks={hooks}"] = observe(frame)
        for key in settings:
            spark.conf.unset(key)
    return seen


def keep_files(folder: Path, key: int) -> int:
    """Overwrite each file of a table without a key with zeros; return how many have it."""
    files = list(folder.rglob("*.parquet"))
    needed = [path for path in files if key in pq.read_table(path, columns=["h"])["h"].to_pylist()]
    for path in set(files) - set(needed):
        path.write_bytes(bytes(path.stat().st_size))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(needed)


def try_reading(spark: SparkSession, table: str, hooks: str) -> list[str]:
    """Return the rows of a query that needs one file, or the error that another file causes."""
    spark.conf.set("spark.comet.enabled", "true")
    spark.conf.set("spark.skipping.enabled", hooks)
    try:
        return [str(row) for row in spark.sql(f"SELECT k, v FROM {table} WHERE h = 4242").collect()]
    except Exception as error:
        return ["error", type(error).__name__]


def main(folder: Path, jar: str) -> None:
    spark = start(folder, jar)
    spark.sparkContext.setLogLevel("OFF")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.db")
    tables = {
        using: {name: f"{space}.{name}" for name in ("fact", "small", "dim")}
        for using, space in {"iceberg": "iceberg.db", "delta": "default"}.items()
    }
    seen: dict[str, Any] = {}
    for using, names in tables.items():
        spark.conf.set("spark.comet.enabled", "false")
        create(spark, using, **names)
        seen[using] = run(spark, names)
    fact = tables["iceberg"]["fact"]
    location = spark.sql(f"DESCRIBE TABLE EXTENDED {fact}").where("col_name = 'Location'")
    seen["needed"] = keep_files(Path(location.collect()[0].data_type.removeprefix("file:")), 4242)
    seen["damaged"] = {hooks: try_reading(spark, fact, hooks) for hooks in ("true", "false")}
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
