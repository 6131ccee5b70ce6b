"""What our tasks leave in a Python worker."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skipping.indexing.tasks import as_task


def finders(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many archives the worker has finders for, and whether what is in them can be imported."""
    for _ in batches:
        zips = [f for f in sys.path_importer_cache.values() if type(f).__name__ == "zipimporter"]
        names = ["pyspark" for f in zips if "pyspark.zip" in f.archive]
        import pyspark.ml.linalg

        yield pa.RecordBatch.from_pydict({"n": [len(names)], "at": [pyspark.ml.linalg.__file__]})


def test_the_next_task_has_no_finders_to_read_anew(spark: SparkSession) -> None:
    def found() -> list[tuple[int, str]]:
        rows = spark.range(1, numPartitions=1).mapInArrow(as_task(finders), "n long, at string")
        return [(row.n, row.at) for row in rows.collect()]

    seen = [found()[0] for _ in range(6)]
    # Each worker has some only before its first task; there are as many workers as slots.
    assert sum(n > 0 for n, _ in seen) <= spark.sparkContext.defaultParallelism
    assert seen[-1][0] == 0
    assert all("pyspark" in at for _, at in seen)


def test_finders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("pyspark_of_users", "users", "py4j-0.10.9.9-src", "pyspark")
    for n, name in enumerate(names):
        with ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr(f"archived_{n}.py", "there = True")
        monkeypatch.syspath_prepend(tmp_path / f"{name}.zip")
        assert importlib.import_module(f"archived_{n}").there
    assert list(as_task(iter)([])) == []
    kept = [name for name in names if str(tmp_path / f"{name}.zip") in sys.path_importer_cache]
    assert kept == ["pyspark_of_users", "users"]
