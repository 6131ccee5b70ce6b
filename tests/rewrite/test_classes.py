"""The jar of the Java classes: where it is loaded, and which one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from providers.errors import SessionError
from rewrite.bridge import classes
from tests.test_house import ROOT

STARTED_WITH_THE_JAR = """
import sys
from pyspark.sql import SparkSession
import rewrite
from rewrite.bridge.classes import find_jar

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", str(find_jar()))
    .config("spark.sql.extensions", "rewrite.jvm.SkippingExtension")
    .config("spark.sql.warehouse.dir", folder + "/warehouse")
    .config("spark.skipping.store", "sqlite:" + folder + "/store.sqlite")
    .getOrCreate()
)
spark.sql("CREATE TABLE t USING parquet AS SELECT /*+ REPARTITION(8, p) */ id, id % 8 AS p"
          " FROM range(800)")
files = len(spark.table("t").inputFiles())
assert files > 2, files
assert spark.sql("SELECT id FROM t WHERE p = 3").count() == 100
try:
    spark.sql("SHOW SKIPPING INDEXES")
    raise AssertionError("Python is not connected yet")
except Exception as error:
    assert "PARSE_SYNTAX_ERROR" in str(error), error

enabled = rewrite.enable(spark)
assert enabled._jsparkSession.equals(spark._jsparkSession), "Spark has injected the rules"
enabled.sql("CREATE SKIPPING INDEX ON t (p VALUE_LIST)")
for session in (enabled, spark, spark.newSession()):
    frame = session.sql("SELECT id FROM t WHERE p = 3")
    assert frame.count() == 100
    frame.collect()
    (scan,) = rewrite.explain(frame).scans
    assert (scan.opened, scan.total) == (1, files), scan
rules = spark._jsparkSession.sessionState().columnarRules().mkString()
assert "rewrite.jvm" in rules, rules
print("PRUNED")
"""


@pytest.mark.process
@pytest.mark.nightly
def test_spark_started_with_the_jar_needs_no_clone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED_WITH_THE_JAR, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=600,
    )
    assert done.stdout.endswith("PRUNED\n"), done.stdout + done.stderr


def test_a_jar_of_another_release_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    other = tmp_path / "other.jar"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("rewrite/jvm/sources.sha256", "of another release")
    loader = classes.Classes(spark.sparkContext._gateway)._loader
    with pytest.raises(SessionError, match=r"file-skipping-spark-\d.\d.jar in spark.jars belongs"):
        classes._require_release(loader, other)


def test_a_checkout_without_the_jar_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "_JARS", tmp_path)
    with pytest.raises(SessionError, match="make install"):
        classes.find_jar()


@pytest.mark.parametrize("damage", ["empty", "cut", "foreign", "folder"])
def test_a_jar_that_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    jar = tmp_path / "file-skipping.jar"
    if damage == "folder":
        jar.mkdir()
    elif damage == "foreign":
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr("other/Library.class", "")
    else:
        content = classes.find_jar().read_bytes()
        jar.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(SessionError, match=f"{jar} is damaged.*install .* again"):
        classes._require_release(None, jar)
