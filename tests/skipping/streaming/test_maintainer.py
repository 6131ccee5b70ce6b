"""A keeper and a store that does not behave: it goes on, says so once, and nobody waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from providers.predicate import Compare
from skipping import SkippingIndex
from skipping.indexing.definitions import set_options
from skipping.stores.memory.store import MemoryStore
from skipping.streaming import jobs, maintainer
from skipping.streaming.maintainer import Maintainer
from tests.skipping.streaming.conftest import QUICK, append, caught_up, until

pytestmark = pytest.mark.nightly

_CALLS = frozenset({"definitions", "state", "lease", "hold", "report", "catalogue", "ordinals"})


class Odd(MemoryStore):
    """A store in memory that raises what it is told to, or hangs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.raises: BaseException | None = None
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.waited: list[float | None] = []

    def __getattribute__(self, name: str) -> Any:
        if name in _CALLS and threading.current_thread().name.startswith("streams:"):
            if self.hangs.is_set():
                self.goes_on.wait(60)
            if self.raises is not None:
                raise self.raises
        return super().__getattribute__(name)

    def definitions(self, *, timeout: float | None = None) -> Any:
        if threading.current_thread().name.startswith("streams:"):
            self.waited.append(timeout)
        return super().definitions(timeout=timeout)


class Untold(Exception):
    """One whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def odd(spark: SparkSession, t: str) -> Iterator[tuple[Odd, Maintainer]]:
    """A store, and the keeper of the index of `t` in it, which runs."""
    store = Odd(t)
    index = SkippingIndex.create(spark, t, "id MIN_MAX", store=store)
    options = {"auto_refresh": True, "refresh_interval": "100ms"}
    index.alter(lambda definition: set_options(definition, options))
    name = index.definition.name
    kept = Maintainer(spark, store, name, open_index=SkippingIndex.on, patience=3.0)
    kept.start()
    until(lambda: kept.query is not None)
    assert kept.query is not None
    kept.query.processAllAvailable()  # a batch that ends well forgets what was said
    yield store, kept
    store.goes_on.set()
    store.raises = None
    kept.stop()
    until(lambda: not kept.is_scheduled)
    assert store.lease(index.definition.index).owner is None


def deep() -> RecursionError:
    try:
        return deep()
    except RecursionError as error:
        return error


def test_it_survives_whatever_is_raised_and_says_each_kind_once(
    spark: SparkSession, t: str, odd: tuple[Odd, Maintainer], caplog: pytest.LogCaptureFixture
) -> None:
    store, kept = odd
    index = SkippingIndex.on(spark, t, store=store)
    said = {
        KeyError("columns"): "KeyError: 'columns'",
        TypeError("1 is no 2"): "TypeError: 1 is no 2",
        deep(): "RecursionError: maximum recursion depth exceeded",
        OSError("no space"): "OSError: no space",
        Untold(): "Untold",
        UnicodeDecodeError("utf-8", b"\x1b[2J", 0, 1, "\x1b[2J"): "UnicodeDecodeError: 'utf-8'",
    }
    with caplog.at_level(logging.WARNING, "skipping"):
        for error, text in said.items():
            store.raises = error
            kept.wake()
            until(lambda text=text: (kept.error or "").startswith(text))
        for _ in range(6):
            store.raises = next(iter(said))
            kept.wake()
            time.sleep(0.1)
    messages = [record.getMessage() for record in caplog.records if t in record.getMessage()]
    assert len(messages) == len(said), messages
    assert not any("\x1b" in message for message in messages)
    store.raises = None
    append(spark, t, start=100)
    until(lambda: index.state.covered == index.table.version())
    until(lambda: kept.error is None and kept.owns)
    assert store.waited[-1] == pytest.approx(1.0)


def test_what_a_batch_raises_is_in_the_state(
    spark: SparkSession, t: str, odd: tuple[Odd, Maintainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, kept = odd
    index = SkippingIndex.on(spark, t, store=store)

    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("nobody thought of it")

    real = MemoryStore.write
    monkeypatch.setattr(MemoryStore, "write", fails)
    append(spark, t, start=100)
    until(lambda: index.state.status == "failed")
    assert "nobody thought of it" in (index.state.error or "")
    until(lambda: "KeyError" in (kept.error or ""))
    monkeypatch.setattr(MemoryStore, "write", real)
    kept.wake()
    until(lambda: index.state.covered == index.table.version() and index.state.error is None)


def test_failures_never_end(spark: SparkSession, odd: tuple[Odd, Maintainer]) -> None:
    _, kept = odd
    kept._failures = 100_000  # of a year
    kept._report_failure(KeyError("again"))
    assert kept._retry - time.monotonic() <= 300


def test_who_ends_a_stream_does_not_wait_for_a_store_that_hangs(
    spark: SparkSession, t: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintainer, "STOP_TIMEOUT", 1.0)
    before = spark.conf.get("spark.sql.streaming.stopTimeout")
    store = Odd(t)
    index = SkippingIndex.create(spark, t, "id MIN_MAX", store=store)
    name = index.definition.name
    index.alter(lambda d: set_options(d, {"auto_refresh": True, "refresh_interval": "100ms"}))
    jobs.start_stream(spark, store, name, open_index=SkippingIndex.on)
    kept = jobs._maintainers[store.location, name]
    try:
        until(lambda: kept.query is not None)
        query = kept.query
        assert query is not None
        store.hangs.set()
        kept.wake()
        time.sleep(0.2)
        start = time.monotonic()
        with caplog.at_level(logging.WARNING, "skipping"):
            jobs.stop_stream(store, name)
        assert time.monotonic() - start < 3
        assert [r.getMessage() for r in caplog.records] == [
            f"the stream of the skipping index of {name} is still stopping"
        ]
        until(lambda: not query.isActive, seconds=10)
        assert kept.is_scheduled
        assert spark.conf.get("spark.sql.streaming.stopTimeout") == before
    finally:
        store.goes_on.set()
    until(lambda: not kept.is_scheduled, seconds=10)
    assert store.lease(index.definition.index).owner is None


def test_a_name_that_leads_elsewhere_by_now_is_followed_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintainer, "_LOCATION_TTL", 1.0)
    for place, start in (("old", 0), ("new", 500)):
        spark.range(start, start + 40, 1, 2).write.format("delta").save(f"{tmp_path}/{place}")
    spark.sql(f"CREATE TABLE moving USING delta LOCATION '{tmp_path}/old'")
    try:
        spark.sql(f"CREATE SKIPPING INDEX ON moving (id MIN_MAX) WITH ({QUICK})")
        until(lambda: caught_up(spark, "moving"))
        spark.sql("DROP TABLE moving")  # what an external one has stays
        spark.sql(f"CREATE TABLE moving USING delta LOCATION '{tmp_path}/new'")
        until(lambda: caught_up(spark, "moving"), seconds=30)
        assert SkippingIndex.on(spark, "moving").lookup(Compare("id", "=", 501)).kept == 1
    finally:
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON moving")
        spark.sql("DROP TABLE moving")
