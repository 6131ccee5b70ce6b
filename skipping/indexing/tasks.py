"""Run functions as tasks of Spark's Python workers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from os.path import basename
from typing import TypeAlias
from zipimport import zipimporter

import pyarrow as pa

_OfBatches: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_OF_SPARK = re.compile(r"pyspark\.zip|py4j-[\d.]+-src\.zip|spark-core_[\d.]+-.*\.jar")
"""Names of Spark's own archives on a worker's path."""


def as_task(function: _OfBatches) -> _OfBatches:
    """Wrap a task's function so that the worker's next task starts faster."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batches)
        _forget_archives()

    return run


def _forget_archives() -> None:
    """Remove the cached finders of Spark's archives.

    When Python needs a finder, it creates it again from a cached list of the archive's contents.
    Before each task, Spark makes all finders read these lists again (`invalidate_caches`), for
    pyspark.zip once for each package in it. This takes 0.13 s, but the archives do not change.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and _OF_SPARK.fullmatch(basename(finder.archive)):
            sys.path_importer_cache.pop(path, None)
