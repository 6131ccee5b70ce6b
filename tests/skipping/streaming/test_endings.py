"""A driver with a stream ends as any other: at once, quietly, and with the lease given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from skipping.stores.sqlite.store import SqliteStore
from tests.conftest import RunPython

pytestmark = pytest.mark.nightly

PROGRAM = """
import sys, time
from pyspark.sql import SparkSession
import rewrite
from skipping import SkippingIndex

folder, ending = sys.argv[1:]
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .config("spark.skipping.store", f"sqlite:{folder}/store.sqlite")
)
spark = rewrite.session(builder)
spark.sparkContext.setLogLevel("ERROR")
spark.sql("CREATE TABLE t USING delta AS SELECT id FROM range(100)")
spark.sql(
    "CREATE SKIPPING INDEX ON t (id MIN_MAX)"
    " WITH (auto_refresh = true, refresh_interval = '100ms')"
)
spark.sql("INSERT INTO t VALUES (1000)")
while SkippingIndex.on(spark, "t").state.covered != 1:
    time.sleep(0.1)
print("--- it ends", file=sys.stderr, flush=True)
start = time.monotonic()
if ending == "stop":
    spark.stop()
elif ending == "raise":
    raise SystemExit(3)
print(f"{time.monotonic() - start:.1f}")
"""


@pytest.mark.parametrize(
    "ending", ["stop", "return", pytest.param("raise", marks=pytest.mark.soak)]
)
def test_it_ends_at_once_and_quietly(run_python: RunPython, tmp_path: Path, ending: str) -> None:
    run = run_python("-c", PROGRAM, tmp_path, ending, timeout=600)
    before, _, after = run.stderr.partition("--- it ends")
    assert run.returncode == (3 if ending == "raise" else 0), before
    if ending != "stop":  # Spark itself is loud about queries that spark.stop() ends
        assert "Traceback" not in after, after
        assert "ERROR" not in after, after
    store = SqliteStore(tmp_path / "store.sqlite")
    (definition,) = store.definitions()
    assert store.state(definition.value.index).status == "active"
    assert store.lease(definition.value.index).owner is None
