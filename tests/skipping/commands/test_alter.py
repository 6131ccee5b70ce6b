"""ALTER: only what is new is built, numbers are never used again, refreshes at work go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from providers.errors import DefinitionError, StatementError
from skipping import SkippingIndex
from skipping.indexing.spark import SparkBuild
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.commands.samples import facts, opened
from tests.skipping.export import export, scratch

pytestmark = pytest.mark.nightly


def columns(spark: SparkSession, name: str) -> list[tuple[str, str]]:
    rows = spark.sql(f"DESC SKIPPING INDEX ON {name}").collect()
    return [(row.indexed_col_name, row.skip_type) for row in rows]


def test_add_builds_only_what_is_new(
    spark: SparkSession, t: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "altered.sqlite")
    index = SkippingIndex.create(spark, t, "id MIN_MAX", store=store)
    built: list[tuple[int, list[str]]] = []
    real = SparkBuild.__call__

    def noted(self: SparkBuild, files: pa.Table, work: Any) -> Iterator[pa.Table]:
        built.append((len(files), [f"{w.indexed.name} {w.indexed.kind}" for w in work]))
        yield from real(self, files, work)

    monkeypatch.setattr(SparkBuild, "__call__", noted)
    index.add("s VALUE_LIST(9), id VALUE_LIST")
    assert built == [(4, ["s VALUE_LIST"]), (4, ["id VALUE_LIST"])]
    monkeypatch.undo()
    assert [i.number for i in index.definition.columns] == [1, 2, 3]
    (tmp_path / "scratch").mkdir()
    assert export(index) == scratch(spark, index, tmp_path / "scratch")
    assert index.refresh().covered == 0


def test_statements(spark: SparkSession, t: str) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
    query = f"SELECT * FROM {t} WHERE n = 70"
    assert opened(spark, query) == 4
    spark.sql(f"ALTER SKIPPING INDEX ON {t} ADD (n MIN_MAX, s VALUE_LIST)")
    assert columns(spark, t) == [("id", "MIN_MAX"), ("n", "MIN_MAX"), ("s", "VALUE_LIST")]
    assert opened(spark, query) == 1
    spark.sql(f"ALTER SKIPPING INDEX ON {t} DROP (n, s value_set)")
    assert columns(spark, t) == [("id", "MIN_MAX")]
    assert opened(spark, query) == 4
    assert opened(spark, f"SELECT * FROM {t} WHERE id = 5") == 1
    spark.sql(f"ALTER SKIPPING INDEX ON {t} DISABLE")
    assert opened(spark, f"SELECT * FROM {t} WHERE id = 5") == 4
    assert facts(spark, t)["enabled"] == "false"
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    spark.sql(f"ALTER SKIPPING INDEX ON {t} ENABLE")
    assert opened(spark, f"SELECT * FROM {t} WHERE id = 5") == 1


def test_numbers_are_not_used_again(spark: SparkSession, t: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    index = SkippingIndex.create(spark, t, "id MIN_MAX, s VALUE_LIST", store=store)
    index.remove("s")
    index.add("n MIN_MAX")
    index.remove("n MIN_MAX")
    index.add("n MIN_MAX")
    assert [(i.name, i.number) for i in index.definition.columns] == [("id", 1), ("n", 4)]
    spark.sql(f"ALTER TABLE {t} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')")
    index.remove("n")
    spark.sql(f"ALTER TABLE {t} DROP COLUMN n")
    spark.sql(f"ALTER TABLE {t} ADD COLUMN n STRING")
    index.add("n MIN_MAX")
    assert [(i.name, i.number) for i in index.definition.columns] == [("id", 1), ("n", 5)]


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("ADD (nope MIN_MAX)", "no column nope"),
        ("ADD (id MIN_MAX)", "id MIN_MAX is in the index already"),
        ("ADD (s BLOM_FILTER)", "unknown index type BLOM_FILTER"),
        ("DROP (nope)", "nope is not in the index: there are id MIN_MAX"),
        ("DROP (id VALUE_LIST)", "id VALUE_LIST is not in the index"),
        ("DROP (id)", "the index would have no columns: use DROP SKIPPING INDEX"),
        ("WITH (build = false)", "ALTER cannot change the option build"),
        ("WITH (refresh_interval = 'soon')", "refresh_interval takes a duration above zero"),
        ("WITH (max_files_per_batch = 0)", "max_files_per_batch takes a number of files"),
    ],
)
def test_what_is_wrong_changes_nothing(spark: SparkSession, t: str, action: str, says: str) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
    with pytest.raises(StatementError, match=says):
        spark.sql(f"ALTER SKIPPING INDEX ON {t} {action}")
    assert columns(spark, t) == [("id", "MIN_MAX")]


def test_a_refresh_at_work_goes_on_with_what_was_altered(
    spark: SparkSession, t: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first write is refused, because what it sketched may mean something else by now."""
    store = SqliteStore(tmp_path / "s.sqlite")
    index = SkippingIndex.create(spark, t, "id MIN_MAX, s VALUE_LIST", store=store, build=False)
    real, altered = SparkBuild.__call__, list[int]()

    def and_altered(self: SparkBuild, *arguments: Any) -> Iterator[pa.Table]:
        for entries in real(self, *arguments):
            if not altered:
                altered.append(1)
                other = SkippingIndex.on(spark, t, store=store)
                other.remove("s")
                other.add("n MIN_MAX")
            yield entries

    monkeypatch.setattr(SparkBuild, "__call__", and_altered)
    state = index.refresh()
    monkeypatch.undo()
    assert (state.status, state.covered) == ("active", 0)
    assert [i.name for i in index.definition.columns] == ["id", "n"]
    (tmp_path / "scratch").mkdir()
    assert export(index) == scratch(spark, index, tmp_path / "scratch")


def test_dropped_while_a_refresh_runs(
    spark: SparkSession, t: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    index = SkippingIndex.create(spark, t, "id MIN_MAX", store=store, build=False)
    real = SparkBuild.__call__

    def and_dropped(self: SparkBuild, *arguments: Any) -> Iterator[pa.Table]:
        for entries in real(self, *arguments):
            SkippingIndex.on(spark, t, store=store).drop()
            yield entries

    monkeypatch.setattr(SparkBuild, "__call__", and_dropped)
    with pytest.raises(DefinitionError, match="dropped meanwhile"):
        index.refresh()
