"""An index with auto_refresh follows its table by itself: what runs, what it says, who may."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import skipping
from providers.errors import StatementError, StoreError
from skipping import SkippingIndex
from skipping.indexing.definitions import set_options
from skipping.indexing.spark import SparkBuild
from skipping.model.lease import Lease
from skipping.sources.spark import settings_of, store_of
from skipping.streaming.jobs import Stream, job_name
from skipping.streaming.maintainer import Maintainer
from tests.skipping.commands.samples import facts
from tests.skipping.streaming.conftest import QUICK, append, caught_up, same_as_scratch, until

pytestmark = pytest.mark.nightly


def query(spark: SparkSession, name: str) -> StreamingQuery:
    (found,) = [q for q in spark.streams.active if q.name.endswith(f".{name}")]
    return found


def running(spark: SparkSession, name: str, *, but: str = "") -> bool:
    """Whether a stream of the table runs, of another run than `but`."""
    return any(q.name.endswith(f".{name}") and q.runId != but for q in spark.streams.active)


def stream(spark: SparkSession, name: str) -> Stream | None:
    found = [s for s in skipping.streams(spark) if s.table.endswith(f".{name}")]
    return found[0] if found else None


def parse_progress(progress: Any) -> dict[str, Any]:
    """A plain dictionary, which PySpark 3.5 provides already."""
    return progress if type(progress) is dict else json.loads(progress.json)


def offsets(found: StreamingQuery) -> list[tuple[int, dict[str, int]]]:
    """Of each batch that had one, its number and where it went."""
    steps = {}
    for progress in found.recentProgress:
        shown = parse_progress(progress)
        end = shown["sources"][0]["endOffset"]
        if end is not None:
            steps[shown["batchId"]] = end
    return sorted(steps.items())


@pytest.mark.smoke
def test_it_follows_appends_and_shows_versions_and_files(
    spark: SparkSession, t: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST) WITH ({QUICK})")
    assert caught_up(spark, t)
    until(lambda: running(spark, t))
    for i in range(3):
        append(spark, t, files=2, start=100 * (i + 1))
    until(lambda: caught_up(spark, t))
    until(lambda: (offsets(query(spark, t)) or [(0, {})])[-1][1].get("version") == 3)
    last = parse_progress(query(spark, t).lastProgress)
    assert last["sources"][0]["description"] == f"FileEvents[spark_catalog.default.{t}]"
    counted = [parse_progress(p)["numInputRows"] for p in query(spark, t).recentProgress]
    assert sum(counted) == 6  # not the four that CREATE built
    same_as_scratch(spark, t, tmp_path)

    described = facts(spark, t)
    assert described["maintained by"] == "a stream, every 0.2 s"
    assert f"process {os.getpid()}" in (described["owner"] or "")
    until(lambda: (stream(spark, t) or last).batch is not None)
    found = stream(spark, t)
    assert found is not None
    assert (found.is_local, found.running, found.version, found.covered) == (True, True, 3, 3)
    assert (found.versions, found.files, found.seconds, found.error) == (0, 0, 0.0, None)

    spark.sql(f"DROP SKIPPING INDEX ON {t}")
    assert not running(spark, t)
    assert stream(spark, t) is None


def test_a_stream_may_build_what_create_did_not(
    spark: SparkSession, t: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false, {QUICK})")
    until(lambda: caught_up(spark, t))
    same_as_scratch(spark, t, tmp_path)


def test_a_cap_makes_steps_and_refresh_has_none(
    spark: SparkSession, t: str, tmp_path: Path
) -> None:
    append(spark, t, files=46, start=1_000)
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false, auto_refresh = true,"
        " refresh_interval = '1 hour', max_files_per_batch = 1)"
    )
    index = SkippingIndex.on(spark, t)
    until(lambda: len(index.files()) == 1)
    until(lambda: index.state.left == 49)
    lag = stream(spark, t)
    assert lag is not None
    assert (lag.covered, lag.files, lag.versions) == (None, 49, None)
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    assert caught_up(spark, t)
    assert len(index.files()) == 50
    same_as_scratch(spark, t, tmp_path)


def test_steps_of_one_version_reach_its_end(spark: SparkSession, t: str) -> None:
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)"
        f" WITH (build = false, {QUICK}, max_files_per_batch = 3)"
    )
    until(lambda: caught_up(spark, t))
    found = query(spark, t)
    until(lambda: len(offsets(found)) >= 2)
    assert [end for _, end in offsets(found)] == [{"version": 0}, {"version": 0, "step": 1}]
    assert [parse_progress(p)["numInputRows"] for p in found.recentProgress][:2] == [3, 1]


def test_alter_starts_changes_and_stops_it(spark: SparkSession, t: str) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
    assert (stream(spark, t), running(spark, t)) == (None, False)
    assert facts(spark, t)["owner"] == "no owner"
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH ({QUICK})")
    until(lambda: running(spark, t))
    first = query(spark, t).runId
    append(spark, t, start=100)
    until(lambda: caught_up(spark, t))
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (refresh_interval = '300 milliseconds')")
    until(lambda: running(spark, t, but=first))
    assert facts(spark, t)["maintained by"] == "a stream, every 0.3 s"
    spark.sql(f"ALTER SKIPPING INDEX ON {t} ADD (s VALUE_LIST)")
    append(spark, t, start=200)
    until(lambda: caught_up(spark, t))
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = false)")
    assert not running(spark, t)
    assert facts(spark, t)["owner"] == "no owner"
    append(spark, t, start=300)
    time.sleep(0.5)
    assert not caught_up(spark, t)


def test_a_schedulers_index_has_no_stream(spark: SparkSession, t: str) -> None:
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)"
        " WITH (auto_refresh = true, scheduler_mode = 'external')"
    )
    assert not running(spark, t)
    assert stream(spark, t) is None
    assert facts(spark, t)["maintained by"] == "your own scheduler: python -m skipping refresh"
    with pytest.raises(StatementError, match="is not maintained by a stream"):
        spark.sql(f"RECOVER INDEX JOB {job_name(f'spark_catalog.default.{t}')}")


def test_a_failure_is_described_and_mended_by_itself(
    spark: SparkSession, t: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH ({QUICK})")
    real, failures = SparkBuild.__call__, list[int]()

    def fails(self: SparkBuild, *arguments: Any) -> Iterator[pa.Table]:
        if len(failures) < 2:
            failures.append(1)
            raise StoreError("the store is away")
        return real(self, *arguments)

    monkeypatch.setattr(SparkBuild, "__call__", fails)
    append(spark, t, start=100)
    until(lambda: facts(spark, t)["last error"] == "the store is away")
    assert facts(spark, t)["state"] == "failed"
    job = job_name(f"spark_catalog.default.{t}")
    until(lambda: not running(spark, t) or caught_up(spark, t))
    spark.sql(f"RECOVER INDEX JOB {job}")
    until(lambda: caught_up(spark, t))
    assert facts(spark, t)["last error"] is None
    same_as_scratch(spark, t, tmp_path)
    with pytest.raises(StatementError, match="there is no job nobody"):
        spark.sql("RECOVER INDEX JOB nobody")


def test_the_checkpoint_may_be_deleted_and_tells_nothing(
    spark: SparkSession, t: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)"
        f" WITH ({QUICK}, checkpoint_location = 'file:{place}')"
    )
    append(spark, t, start=100)
    until(lambda: caught_up(spark, t))
    index = SkippingIndex.on(spark, t)
    until(lambda: list((place / index.definition.index / "commits").glob("[0-9]*")))
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = false)")
    words = b"".join(p.read_bytes() for p in place.rglob("*") if p.is_file())
    assert b"spark.skipping" not in words
    assert b'"version": 1' in words

    built: list[int] = []
    real = SparkBuild.__call__

    def noted(self: SparkBuild, files: pa.Table, work: Any) -> Iterator[pa.Table]:
        built.append(len(files))
        yield from real(self, files, work)

    monkeypatch.setattr(SparkBuild, "__call__", noted)
    for delete in (False, True):
        if delete:
            shutil.rmtree(place)
        spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = true)")
        append(spark, t, start=200 + 100 * delete)
        until(lambda: caught_up(spark, t))
        spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = false)")
    assert built == [1, 1]


def test_a_live_owner_is_left_alone_and_a_dead_one_taken_over(
    spark: SparkSession, t: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
    store = store_of(spark, settings_of(spark))
    index = SkippingIndex.on(spark, t)
    other = Lease().claim("elsewhere, process 1, app")
    store.hold(index.definition.index, other, expect=Lease())
    index.alter(lambda d: set_options(d, {"auto_refresh": True}))
    name = index.definition.name
    keeper = Maintainer(spark, store, name, open_index=SkippingIndex.on, patience=2.0)
    keeper.start()
    try:
        for _ in range(8):
            time.sleep(0.5)
            other, seen = other.renew(), other
            store.hold(index.definition.index, other, expect=seen)
        assert (keeper.owns, keeper.query) == (False, None)
        # It moves no more.
        until(lambda: keeper.owns, seconds=20)
        until(lambda: keeper.query is not None)
        with pytest.raises(StoreError, match="has changed"):
            store.hold(index.definition.index, other.renew(), expect=other)
        with pytest.raises(StoreError, match="taken over"):
            index.refresh(token=other.token)
        append(spark, t, start=100)
        until(lambda: caught_up(spark, t))
        # The other one woke up and took it back: this one stops.
        stolen = store.lease(index.definition.index)
        while True:
            try:
                store.hold(index.definition.index, stolen.claim("again"), expect=stolen)
                break
            except StoreError:
                stolen = store.lease(index.definition.index)
        until(lambda: not keeper.owns and keeper.query is None, seconds=20)
    finally:
        keeper.stop()
    same_as_scratch(spark, t, tmp_path)
