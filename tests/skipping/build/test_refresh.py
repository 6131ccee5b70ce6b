"""What a refresh looks at: what came, and all there is only where nothing else tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from providers.errors import Conflict
from skipping import SkippingIndex
from skipping.model.lease import Lease
from skipping.stores.sqlite.store import SqliteStore
from skipping.tables.delta import DeltaTable
from tests.skipping.export import export, scratch


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    grow(spark, tmp_path, 0, files=4)
    return f"delta.`{tmp_path}/t`"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Each look at all entries, or all files."""
    seen: list[str] = []
    for owner, name in ((SqliteStore, "catalogue"), (DeltaTable, "files")):
        real: Any = getattr(owner, name)

        def noted(*arguments: Any, name: str = name, real: Any = real, **named: Any) -> Any:
            seen.append(name)
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)
    yield seen
    monkeypatch.undo()


def grow(spark: SparkSession, folder: Path, start: int, *, files: int = 1) -> None:
    spark.range(start, start + 10 * files, 1, files).selectExpr(
        "id", "cast(id % 7 AS string) AS s"
    ).write.format("delta").mode("append").save(str(folder / "t"))


def test_the_cost_is_that_of_what_came(
    spark: SparkSession, table: str, tmp_path: Path, looks: list[str]
) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    index = SkippingIndex.create(spark, table, "id MIN_MAX", store=store)
    assert sorted(looks) == ["catalogue", "files"]
    looks.clear()
    grow(spark, tmp_path, 100, files=3)
    assert len(index.pending()) == 3
    assert index.refresh().covered == 1
    spark.sql(f"DELETE FROM {table} WHERE id = 105")
    spark.sql(f"OPTIMIZE {table}")
    assert index.refresh().covered == index.table.version()
    assert index.refresh().covered == index.table.version()
    assert looks == []

    # What was altered may be lacking anywhere.
    index.add("s VALUE_LIST")
    assert sorted(looks) == ["catalogue", "files"]
    looks.clear()
    grow(spark, tmp_path, 200)
    index.refresh()
    assert looks == []
    (tmp_path / "scratch").mkdir()
    assert export(index) == scratch(spark, index, tmp_path / "scratch")


def test_steps_of_limited_size(spark: SparkSession, table: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    index = SkippingIndex.create(spark, table, "id MIN_MAX", store=store, build=False)
    state = index.refresh(limit=3)
    assert (state.status, state.covered, state.left) == ("creating", None, 1)
    state = index.refresh(limit=3)
    assert (state.status, state.covered, state.left) == ("active", 0, 0)
    grow(spark, tmp_path, 100, files=5)
    state = index.refresh(limit=2)
    assert (state.status, state.covered, state.left) == ("refreshing", 0, 3)
    assert index.refresh().covered == 1
    assert len(index.files()) == 9


def test_up_to_a_version(spark: SparkSession, table: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    index = SkippingIndex.create(spark, table, "id MIN_MAX", store=store, build=False)
    for start in (100, 200, 300):
        grow(spark, tmp_path, start)
    assert [len(index.pending(until=v)) for v in range(4)] == [4, 5, 6, 7]
    assert index.refresh(until=1).covered == 1
    assert len(index.files()) == 5
    assert index.refresh(until=2).covered == 2
    assert index.refresh(until=0).covered == 2, "never back"
    assert index.refresh(until=77).covered == 3


def test_who_lost_the_lease_changes_nothing(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    index = SkippingIndex.create(spark, table, "id MIN_MAX", store=store)
    state, id = index.state, index.definition.index
    old = Lease().claimed("a")
    store.hold(id, old, expect=Lease())
    store.hold(id, old.claimed("b"), expect=old)
    grow(spark, tmp_path, 100)
    with pytest.raises(Conflict, match="taken over"):
        index.refresh(token=old.token)
    assert (index.state, len(index.files())) == (state, 4)
    assert index.refresh(token=old.token + 1).covered == 1
