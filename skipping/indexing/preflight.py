"""Check before the first build that executors can build, with one small job and a clear error.

Otherwise, a task that cannot import this package fails with a stack trace of Spark's Python worker,
after all of the cluster's retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from providers.base import SkippingProvider
from providers.errors import SessionError
from skipping.requirements import require_spark

_NEEDED = ("skipping.indexing.sketch",)

_dumps: Callable[[object], bytes] = cloudpickle.dumps

_able: WeakKeyDictionary[SparkContext, set[bytes]] = WeakKeyDictionary()
"""For each context, the index types that its executors can build."""


def require_executors(
    spark: SparkSession, providers: Sequence[SkippingProvider], *, modules: Sequence[str] = _NEEDED
) -> None:
    """Raise SessionError, with the fix, if tasks cannot import `modules` or use these index types.

    Success is cached for the Spark context.
    """
    able = _able.setdefault(spark.sparkContext, set())
    unchecked = {_dumps((tuple(modules), provider)) for provider in providers} - able
    if not unchecked:
        return
    reasons = _probe_executors(
        spark, [_dumps(list(modules)), *(_dumps(each) for each in providers)]
    )
    if reasons:
        raise SessionError(
            f"the executors cannot build an index: {'; '.join(reasons)}. Install the "
            "driver's packages there, or ship them in spark.archives, and name the Python that has "
            "them in PYSPARK_PYTHON"
        )
    able |= unchecked


def _probe_executors(spark: SparkSession, needed: list[bytes]) -> list[str]:
    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # This must not use this package, which executors may lack.
        import importlib
        import pickle

        import pyarrow

        for _ in batches:
            failed = []
            try:
                for name in pickle.loads(needed[0]):
                    importlib.import_module(name)
                for kind in needed[1:]:
                    pickle.loads(kind).collector()
            except Exception as error:
                failed.append(f"{type(error).__name__}: {error}")
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(failed, "string")], ["reason"])

    slots = spark.sparkContext.defaultParallelism
    slotwise = spark.range(slots, numPartitions=slots)
    try:
        probed = slotwise.mapInArrow(probe, "reason string")
    except ImportError as error:
        # The driver, not an executor, lacks a package that Spark requires, such as pandas.
        raise SessionError(f"{str(error).rstrip('.')}: {require_spark().install}") from error
    try:
        rows = probed.collect()
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by: ")]
        return [(causes or lines or [type(error).__name__])[-1]]
    return sorted({row["reason"] for row in rows})
