"""What a refresh looks at: what came, and all there is only where nothing else tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import skipping.indexing.spark as building
from providers.errors import Conflict
from skipping import SkippingIndex
from skipping.indexing.refresh import without_ordinals
from skipping.indexing.sketch import Work
from skipping.indexing.spark import SparkBuild
from skipping.model.definition import IndexedColumn
from skipping.model.lease import Lease
from skipping.stores.sqlite.store import SqliteStore
from skipping.tables.delta.spark import DeltaTable
from skipping.tables.open import open_table
from tests.skipping.export import export, scratch

pytestmark = pytest.mark.nightly


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


def test_what_was_found_a_moment_ago_is_not_found_again(
    spark: SparkSession, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    changes = DeltaTable.changes

    def noted(self: DeltaTable, since: int, until: int) -> pa.Table | None:
        read.append((since, until))
        return changes(self, since, until)

    monkeypatch.setattr(DeltaTable, "changes", noted)
    index = SkippingIndex.create(spark, table, "id MIN_MAX", store=f"sqlite:{tmp_path}/s.sqlite")
    grow(spark, tmp_path, 40)
    assert len(index.pending()) == 1
    index.refresh()
    assert (read, len(index.files())) == ([(0, 1)], 5)
    for meanwhile in (
        lambda: grow(spark, tmp_path, 60),
        lambda: SkippingIndex.on(spark, table, store=index.store).add("s VALUE_LIST"),
        lambda: SkippingIndex.on(spark, table, store=index.store).refresh(),
    ):
        grow(spark, tmp_path, 50)
        assert len(index.pending()) == 1
        meanwhile()
        index.refresh()
        assert len(index.pending()) == 0
        assert index.files().num_rows == open_table(spark, table).files().num_rows
        assert index.state.covered == open_table(spark, table).version()


def test_a_column_that_is_gone_by_then_is_not_built(spark: SparkSession, tmp_path: Path) -> None:
    t = f"delta.`{tmp_path}/t`"
    spark.sql(
        f"CREATE TABLE {t} (id long, s string) USING delta"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    index = SkippingIndex.create(
        spark, t, "id MIN_MAX, s MIN_MAX", store=f"sqlite:{tmp_path}/s.sqlite"
    )
    grow(spark, tmp_path, 0)
    version = open_table(spark, t).version()
    assert len(index.pending(until=version, retry=False)) == 1
    spark.sql(f"ALTER TABLE {t} DROP COLUMN s")
    assert index.refresh(until=version, retry=False).status == "active"
    assert len(index.files()) == 1


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
    old = Lease().claim("a")
    store.hold(id, old, expect=Lease())
    store.hold(id, old.claim("b"), expect=old)
    grow(spark, tmp_path, 100)
    with pytest.raises(Conflict, match="taken over"):
        index.refresh(token=old.token)
    assert (index.state, len(index.files())) == (state, 4)
    assert index.refresh(token=old.token + 1).covered == 1


class Died(BaseException):
    """As a kill does, nothing of this program catches it."""


@pytest.mark.parametrize("batch", [1, 3])
def test_what_a_build_that_died_has_written_is_not_built_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    grow(spark, tmp_path, 0, files=40)
    store = SqliteStore(tmp_path / "store.sqlite")
    table = f"delta.`{tmp_path}/t`"
    index = SkippingIndex.create(spark, table, "id MIN_MAX", store=store, build=False)
    slots = spark.sparkContext.defaultParallelism
    monkeypatch.setattr(building, "READ", 1)
    monkeypatch.setattr(building, "SLOT", (10 // slots, 10 // slots))
    built: list[str] = []
    real = SparkBuild.__call__

    def build(self: SparkBuild, files: pa.Table, work: list[Work]) -> Iterator[pa.Table]:
        for number, entries in enumerate(real(self, files, work)):
            if number == batch:
                raise Died
            yield entries

    monkeypatch.setattr(SparkBuild, "__call__", build)
    with pytest.raises(Died):
        index.refresh()
    done = set(index.files()["path"].to_pylist())
    assert len(done) == 10 * batch
    assert index.state.covered is None
    monkeypatch.setattr(SparkBuild, "__call__", lambda *given: noted(built, real, *given))
    built.clear()
    assert index.refresh().covered == index.table.version()
    assert len(built) == len(set(built)) == 40 - len(done)
    assert not done & set(built)
    (tmp_path / "scratch").mkdir()
    assert export(index) == scratch(spark, index, tmp_path / "scratch")


def noted(built: list[str], real: Any, self: SparkBuild, files: pa.Table, work: Any) -> Any:
    built.extend(files["path"].to_pylist())
    return real(self, files, work)


def test_batches_are_small_where_entries_are_large(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(spark, tmp_path, 0, files=40)
    table = open_table(spark, f"delta.`{tmp_path}/t`")
    files = without_ordinals(table.files())
    indexed = IndexedColumn(0, "id", "id", "bigint", "VALUE_LIST")
    work = [Work(indexed, table.columns()["id"], indexed.provider())]
    monkeypatch.setattr(building, "READ", 1)
    monkeypatch.setattr(building, "SLOT", (10, 10))
    sizes = [len(entries) for entries in SparkBuild(spark)(files, work)]
    assert sizes == [20, 20]
    entries = pa.concat_tables(SparkBuild(spark)(files, work))
    monkeypatch.setattr(building, "MADE", entries.nbytes // 8)
    sizes = [len(some) for some in SparkBuild(spark)(files, work)]
    assert sizes[0] == 20
    assert sum(sizes) == 40
    assert max(sizes[1:]) <= 6
