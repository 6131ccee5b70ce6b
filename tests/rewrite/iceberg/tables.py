"""Iceberg tables to join, and the engines that plan them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    Compared,
)

FILES = 8
ROWS = f"""SELECT id, int(id % 80) AS k, concat('s', id % 80) AS s, int(id % 4) AS p,
    int(id % {FILES}) AS m, repeat(md5(string(id)), 4) AS pad, int(id % {FILES}) AS _f
    FROM range(400)"""
INDEX = "k VALUE_LIST, s VALUE_LIST, m VALUE_LIST"
MERGE_ON_READ = {f"write.{c}.mode": "merge-on-read" for c in ("delete", "update", "merge")}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
ENGINES = {"adaptive": {}, "plain": PLAIN}
on_both_engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
JOIN = "SELECT * FROM {t} f JOIN few ON f.k = few.k WHERE name = 'n3'"


def drop(spark: SparkSession, name: str) -> None:
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE {name}")


def delete_by_value(spark: SparkSession, name: str, k: int) -> None:
    """Delete the rows of a value of `k` by an equality delete, as Flink writes it.

    The table is named with its catalog, or is one of `iceberg.default`.
    """
    full = name if "." in name else f"iceberg.default.{name}"
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, full)
    schema = loaded.schema().select(["k"])
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = loaded.schema().findField("k").fieldId()
    factory = iceberg.data.GenericAppenderFactory(loaded.schema(), loaded.spec(), ids, schema)
    out = loaded.io().newOutputFile(f"{loaded.location()}/data/equality.parquet")
    encrypted = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(out)
    writer = factory.newEqDeleteWriter(encrypted, iceberg.FileFormat.PARQUET, None)
    row = iceberg.data.GenericRecord.create(schema)
    row.setField("k", k)
    writer.write(row)
    writer.close()
    loaded.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    spark.sql(f"REFRESH TABLE {name}")


def one_of(found: Compared, name: str = ".t") -> int | None:
    """The files opened in the one scan of the table."""
    (scan,) = [s for s in found.explained.scans if s.table.endswith(name)]
    return scan.opened
