"""The source of file events, asked as Spark does."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from functools import partial

from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.streaming.source import FileEvents


def test_what_java_is_given_is_there_when_it_looks(spark: SparkSession, t: str) -> None:
    """Py4J releases what Python holds no longer, at times before Java has read who it is."""
    SkippingIndex.create(spark, t, "id MIN_MAX", build=False)
    opened = partial(SkippingIndex.on, spark, t)
    events = FileEvents(spark, t, opened, opened, nullcontext, limit=None)
    end = events.latestOffset(None, None)
    calls = dict.fromkeys(("schema", "getDefaultReadLimit", "reportLatestOffset", "getOffset"), ())
    for name, given in (*calls.items(), ("latestOffset", (None, None)), ("getBatch", (None, end))):
        answer = weakref.ref(getattr(events, name)(*given))
        gc.collect()
        assert answer() is not None, name
    SkippingIndex.on(spark, t).drop()
