"""A table format from outside the project, with `enable(spark, jars=...)` and with `--jars`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rewrite.bridge.classes import find_jar
from tests.jvm import compile_java, spark_jars
from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]

SERVICE = "META-INF/services/rewrite.jvm.source.TableFormat"
PROGRAM = """
import sys
import pytest
from pyspark.sql import DataFrame, SparkSession
import rewrite
from providers.errors import SessionError
from rewrite.bridge.classes import Classes, find_jar

folder, format, broken, started = sys.argv[1:]
builder = SparkSession.builder.master("local[1]")
if started == "True":
    builder.config("spark.jars", f"{find_jar()},{format}")
    builder.config("spark.sql.extensions", "rewrite.jvm.SkippingExtension")
builder.config("spark.skipping.store", "sqlite:" + folder + "/store.sqlite")
spark = builder.getOrCreate()
if started == "True":
    spark = rewrite.enable(spark)
else:
    spark = rewrite.enable(spark)
    with pytest.raises(SessionError, match="none.jar in jars is not a file"):
        rewrite.enable(spark, jars=["none.jar"])
    with pytest.raises(SessionError, match="a table format cannot be loaded: .*outside.Missing"):
        rewrite.enable(spark, jars=[broken])
    text = folder + "/text.jar"
    open(text, "w").close()
    with pytest.raises(SessionError, match="text.jar in jars is not a jar"):
        rewrite.enable(spark, jars=[text])
    spark = rewrite.enable(spark)
    spark = rewrite.enable(spark, jars=[format])
path = folder + "/table"
spark.range(800).selectExpr("id", "id div 100 AS p").repartitionByRange(8, "p").write.parquet(path)
spark.sql(f"CREATE SKIPPING INDEX ON parquet.`{path}` (p VALUE_LIST)")
loader = Classes(spark.sparkContext._gateway)._loader
(make,) = [m for m in loader.loadClass("outside.OutsideFormat").getMethods()
           if m.getName() == "relation"]
arguments = spark._jvm.java.util.ArrayList()
arguments.add(spark.read.parquet(path)._jdf)
relation = make.invoke(None, arguments.toArray())
frame = DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark).where("p = 3")
assert frame.count() == 100
frame.collect()
(scan,) = rewrite.explain(frame).scans
print("OPENED", scan.opened, scan.total)
"""


@pytest.mark.parametrize("started", [False, True], ids=["enable", "spark.jars"])
def test_a_format_from_outside_prunes(tmp_path: Path, started: bool) -> None:
    source = Path(__file__).with_name("OutsideFormat.java")
    compile_java([source], [find_jar(), *spark_jars()], tmp_path / "classes")
    with zipfile.ZipFile(tmp_path / "format.jar", "w") as archive:
        for path in (tmp_path / "classes").rglob("*.class"):
            archive.write(path, path.relative_to(tmp_path / "classes"))
        archive.writestr(SERVICE, "outside.OutsideFormat$Failing\noutside.OutsideFormat\n")
    with zipfile.ZipFile(tmp_path / "broken.jar", "w") as archive:
        archive.writestr(SERVICE, "outside.Missing\n")
    jars = [str(tmp_path / name) for name in ("format.jar", "broken.jar")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *jars, str(started)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=600,
    )
    assert done.stdout.endswith("OPENED 1 8\n"), done.stdout + done.stderr
