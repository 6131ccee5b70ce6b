"""A bloom filter's way from files to a question, without Spark: define, sketch, store, ask."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pybloom_live
import pytest

from providers import And, Compare, Domain, In, IsNull, Predicate, bloom_filter
from providers.errors import DefinitionError
from skipping.indexing.definitions import number_columns
from skipping.indexing.sketch import Work, entry_schema, sketch_files
from skipping.lookup.lookup import Lookup, LookupResult
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.parser.parse import parse
from skipping.parser.statements import Create
from skipping.stores import IDENTITY, IndexStore
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from skipping.tables import Columns, PhysicalColumn, TableColumn

FILES, ROWS = 40, 300
INTEGER = Domain("integer", pa.int64())
COLUMN = TableColumn("k", "k", "bigint", PhysicalColumn(("k",)))


def define(params: str) -> IndexedColumn:
    """The column of `CREATE SKIPPING INDEX ON t (k BLOOM_FILTER<params>)`."""
    statement = parse(f"CREATE SKIPPING INDEX ON t (k BLOOM_FILTER{params})")
    assert isinstance(statement, Create)
    (column,) = number_columns(statement.columns, Columns([COLUMN]), ())
    return column


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pa.RecordBatch:
    """File `i` has the values i, i + FILES, ... and nulls; the last one has nulls only."""
    folder = tmp_path_factory.mktemp("files")
    rows = []
    for i in range(FILES):
        values = pa.array([None if i == FILES - 1 else i + FILES * (r % 200) for r in range(ROWS)])
        path = folder / f"{i}.parquet"
        nulls = pa.nulls(i % 2, pa.int64())
        pq.write_table(pa.table({"k": pa.concat_arrays([values.cast(pa.int64()), nulls])}), path)
        rows.append((i, str(path), path.stat().st_size, None, None))
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_pydict(dict(zip(IDENTITY.names, columns, strict=True)), IDENTITY)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> IndexStore:
    return MemoryStore("here") if request.param == "memory" else SqliteStore(tmp_path / "s.db")


def built(store: IndexStore, files: pa.RecordBatch, *columns: IndexedColumn) -> Definition:
    definition = Definition("i", TableId("delta", "t", "file:/t"), "t", columns)
    revision = store.define(definition, expect=None)
    store.reserve("i", len(files))
    work = [Work(column, COLUMN, column.provider()) for column in columns]
    entries = sketch_files(files, work)
    assert entries.schema == entry_schema(work)
    store.write("i", pa.Table.from_batches([entries]), revision=revision)
    return definition


def ask(store: IndexStore, definition: Definition, predicate: Predicate) -> LookupResult:
    columns = {"k": QueryColumn("k", INTEGER)}
    return Lookup(store, ttl=0).find(definition, predicate, columns, timeout=60)


def test_files_without_the_value_are_pruned(store: IndexStore, files: pa.RecordBatch) -> None:
    definition = built(store, files, define("(0.001)"))
    nulls_only = FILES - 1
    for value in (0, 7, 7 + FILES, 38 + FILES * 199):
        found = ask(store, definition, Compare("k", "=", value))
        assert value % FILES not in found.pruned
        assert len(found.pruned) >= FILES - 2
        assert nulls_only in found.pruned
        assert found.legs[0].label == "k = ?  BLOOM_FILTER"
    found = ask(store, definition, In("k", pa.array([3, 5 + FILES])))
    assert {3, 5}.isdisjoint(found.pruned)
    assert len(found.pruned) >= FILES - 4
    odd = {i for i in range(FILES) if i % 2}
    assert set(ask(store, definition, IsNull("k")).pruned) == set(range(FILES)) - odd
    found = ask(store, definition, Compare("k", "<", 5))
    assert (len(found.pruned), found.unused) == (
        0,
        ("k < ?: BLOOM_FILTER does not support this condition",),
    )


def test_what_is_stored_is_opened_by_pybloom(files: pa.RecordBatch) -> None:
    column = define("")
    entries = sketch_files(files, [Work(column, COLUMN, column.provider())])
    capacities = set()
    for i, kept in enumerate(entries["s1_filter"].to_pylist()):
        filter = pybloom_live.BloomFilter.fromfile(io.BytesIO(kept))
        values = range(0) if i == FILES - 1 else range(i, FILES * 200, FILES)
        capacities.add(filter.capacity)
        assert len(filter) == len(values)
        assert all(value in filter for value in values)
    assert capacities == {64, 256}


def test_a_file_past_the_greatest_filter_is_read(store: IndexStore, files: pa.RecordBatch) -> None:
    definition = built(store, files, define("(0.01, 199)"))
    assert set(ask(store, definition, Compare("k", "=", -1)).pruned) == {FILES - 1}


def test_a_question_that_would_keep_most_files_is_not_asked(
    store: IndexStore, files: pa.RecordBatch
) -> None:
    definition = built(store, files, define("(0.01)"))
    keys = pa.array(np.arange(69) - 100)
    found = ask(store, definition, In("k", keys[:68]))
    assert (len(found.legs), found.unused) == (1, ())
    assert len(found.pruned) > 0
    found = ask(store, definition, In("k", keys))
    assert (found.legs, len(found.pruned)) == ((), 0)
    says = (
        "k IN (69 keys): BLOOM_FILTER would keep 50% of the files without a match; "
        "BLOOM_FILTER(fpp => 0.001) can answer it"
    )
    assert found.unused == (says,)
    # The other legs are asked all the same, and so are the column's other kinds.
    found = ask(store, definition, And((In("k", keys), IsNull("k"))))
    assert (len(found.pruned), found.unused) == (FILES // 2, (says,))


def test_another_kind_of_the_column_answers_for_it(
    store: IndexStore, files: pa.RecordBatch
) -> None:
    bounds = IndexedColumn(2, "k", "k", "bigint", "MIN_MAX")
    definition = built(store, files, define("(0.01)"), bounds)
    found = ask(store, definition, In("k", pa.array(np.arange(69) - 100)))
    assert [leg.label for leg in found.legs] == ["k IN (69 keys)  MIN_MAX"]
    assert len(found.pruned) == FILES


# Definitions


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ("", {}),
        ("(0.02)", {"fpp": 0.02}),
        ("(0.02, 500)", {"fpp": 0.02, "num_items": 500}),
        ("(fpp => 0.02, num_items => 500)", {"fpp": 0.02, "num_items": 500}),
        ("(20)", {"num_candidates": 20}),
        ("(20, 0.01)", {"num_candidates": 20, "fpp": 0.01}),
        ("(false)", {"adaptive": False}),
        ("(false, 1000000)", {"adaptive": False, "num_items": 1_000_000}),
        ("(false, 1000, 0.01)", {"adaptive": False, "num_items": 1_000, "fpp": 0.01}),
        ("(false, num_items=10000, fpp=0.03)", {"adaptive": False, "num_items": 10_000,
                                                "fpp": 0.03}),
        ("(true, 5)", {"adaptive": True, "num_candidates": 5}),
        ("(num_candidate=10)", {"num_candidate": 10}),
    ],
)  # fmt: skip
def test_every_form_of_the_parameters(params: str, kept: dict[str, object]) -> None:
    column = define(params)
    assert (column.kind, dict(column.params)) == ("BLOOM_FILTER", kept)
    definition = Definition("i", TableId("delta", "t", "file:/t"), "t", (column,))
    (again,) = Definition.from_json(definition.to_json()).columns
    assert again.provider() == column.provider()


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("(0.02, 500, 9)", "takes fpp, num_items, not 3 values"),
        ("(20, 0.01, 9)", "takes num_candidates, fpp, not 3 values"),
        ("(20, fpp => 0.1, num_candidates => 3)", "num_candidates is given twice"),
        ("('x')", "an fpp from 1e-9 to below 0.5, not 'x'"),
        ("(5000000, 0.01)", "a num_candidates from 1 to 64, not 5000000"),
    ],
)
def test_what_makes_no_filter_is_refused(params: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as raised:
        define(params)
    assert raised.value.position == len("CREATE SKIPPING INDEX ON t (k ")


def test_without_the_package_nothing_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    bloom_filter._layout.cache_clear()
    monkeypatch.setitem(sys.modules, "pybloom_live", None)
    with pytest.raises(DefinitionError, match=r"pip install 'lakehouse-file-skipping\[bloom\]'"):
        define("")
    monkeypatch.undo()
    define("")


def test_without_the_package_a_query_reads_everything(
    store: IndexStore, files: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = built(store, files, define("(0.01)"))
    bloom_filter._layout.cache_clear()
    monkeypatch.setitem(sys.modules, "pybloom_live", None)
    found = ask(store, definition, Compare("k", "=", -1))
    assert len(found.pruned) == 0
    assert "needs the package pybloom-live" in found.unused[0]
    bloom_filter._layout.cache_clear()
