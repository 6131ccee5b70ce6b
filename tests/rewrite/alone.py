"""Sessions with one table format, one a process: `python alone.py FOLDER FORMAT`.

Iceberg's and Parquet's are a user's own, Delta's is `rewrite.session(formats=["delta"])`. Prints
one JSON object: what was seen. `test_alone.py` looks at it.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import rewrite
from providers.errors import SessionError
from rewrite.bridge.classes import Classes, find_jar
from skipping.requirements import require_spark

TABLES = {"delta": "default", "iceberg": "ice.db.deep", "parquet": "default"}


def started(folder: Path, name: str) -> SparkSession:
    """A session with skipping, in which nothing but this format was asked for."""
    settings = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.skipping.mode": "strict",
    }
    if name == "iceberg":
        settings["spark.jars.packages"] = require_spark().iceberg_jar
        settings["spark.sql.catalog.ice"] = "org.apache.iceberg.spark.SparkCatalog"
        settings["spark.sql.catalog.ice.type"] = "hadoop"
        settings["spark.sql.catalog.ice.warehouse"] = str(folder / "ice")
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    if name == "delta":
        return rewrite.session(builder, formats=["delta"])
    return rewrite.enable(builder.getOrCreate())


def opened(frame: Any) -> list[int | None]:
    return [scan.opened for scan in rewrite.explain(frame).scans]


def used(spark: SparkSession, space: str, using: str) -> dict[str, Any]:
    """Statements, reads, joins, commands and a stream on a table of eight files."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
    fact, dim = f"{space}.fact", f"{space}.dim"
    rows = "id % 8 AS part, concat('u', id % 800) AS user, id AS n FROM range(1600)"
    spark.sql(f"CREATE TABLE {fact} USING {using} AS SELECT /*+ REPARTITION(8, part) */ {rows}")
    spark.sql(f"CREATE TABLE {dim} USING {using} AS SELECT 'u3' AS user, 'yes' AS wanted")
    query = f"SELECT n FROM {fact} WHERE user = 'u3' ORDER BY n"
    whole = spark.sql(query)
    whole.collect()
    before = opened(whole)
    spark.sql(f"CREATE SKIPPING INDEX ON {fact} (user VALUE_LIST, n MIN_MAX)")
    described = spark.sql(f"DESCRIBE SKIPPING INDEX ON {fact}").count()
    shown = spark.sql("SHOW SKIPPING INDEXES").count()

    read = spark.sql(query)
    read_rows = [row.n for row in read.collect()]
    join = spark.sql(
        f"SELECT f.n FROM {fact} f JOIN {dim} d ON f.user = d.user WHERE d.wanted = 'yes' "
        "ORDER BY f.n"
    )
    join_rows = [row.n for row in join.collect()]
    bound = "SELECT n FROM IDENTIFIER(:t) WHERE user = :u AND ':u' <> '' ORDER BY n LIMIT :k"
    immediate = f"EXECUTE IMMEDIATE 'SELECT ? + n FROM {dim}, {fact} WHERE n = ?' USING 1, 803"
    by_number = f"EXPLAIN SKIPPING SELECT n FROM {fact} WHERE user = ?"
    seen = {
        "bound": [
            [row.n for row in spark.sql(bound, args={"t": fact, "u": "u3", "k": 9}).collect()],
            [row[0] for row in spark.sql(immediate).collect()],
            [scan.opened for scan in spark.sql(by_number, args=["u3"]).collect()],
        ],
        "whole": before,
        "described": described,
        "shown": shown,
        "read": opened(read),
        "join": opened(join),
        "rows": [read_rows, join_rows],
    }
    # Written to after the index was made: read whole until the stream has seen it.
    spark.sql(f"ALTER SKIPPING INDEX ON {fact} WITH (auto_refresh = true)")
    spark.sql(f"INSERT INTO {fact} VALUES (0, 'new', 9999)")
    deadline = time.monotonic() + 60
    while True:
        late = spark.sql(query)
        late.collect()
        seen["streamed"] = opened(late)
        if seen["streamed"] == seen["read"] or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if using != "parquet":
        spark.sql(f"UPDATE {fact} SET n = -1 WHERE user = 'new'")
    new = spark.sql(f"SELECT n FROM {fact} WHERE user = 'new'")
    seen["new"] = [row.n for row in new.collect()]
    spark.sql(f"DROP SKIPPING INDEX ON {fact}")
    return seen


def loaded(spark: SparkSession) -> list[str]:
    """Our classes for one table format that this session has loaded."""
    gateway: Any = spark.sparkContext._gateway
    java = gateway.jvm.java.lang
    types = gateway.new_array(java.Class, 1)
    types[0] = java.Class.forName("java.lang.String")
    find = java.Class.forName("java.lang.ClassLoader").getDeclaredMethod("findLoadedClass", types)
    find.setAccessible(True)
    loader = Classes(gateway)._loader
    names = gateway.new_array(java.Object, 1)
    out = []
    with zipfile.ZipFile(find_jar()) as archive:
        for entry in archive.namelist():
            names[0] = entry.removesuffix(".class").replace("/", ".")
            if ("/Delta" in entry or "/Iceberg" in entry) and find.invoke(loader, names):
                out.append(Path(entry).stem)
    return sorted(out)


def refusal() -> str | None:
    """What `rewrite.session` has against the session that runs."""
    try:
        rewrite.session()
    except SessionError as error:
        return str(error)
    return None


def main(folder: Path, name: str) -> None:
    os.environ.pop("PYSPARK_PYTHON", None)
    spark = started(folder, name)
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    seen: dict[str, Any] = {
        "jars": spark.sparkContext._jsc.sc().listJars().mkString(" "),
        "found": {
            kind: loader.getResource(f"{path}.class") is not None
            for kind, path in {
                "delta": "org/apache/spark/sql/delta/DeltaLog",
                "iceberg": "org/apache/iceberg/Table",
            }.items()
        },
        "python": os.environ.get("PYSPARK_PYTHON", spark.sparkContext.pythonExec),
    }
    seen |= used(spark, TABLES[name], name)
    seen["loaded"] = loaded(spark)
    seen["refusal"] = refusal()
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
