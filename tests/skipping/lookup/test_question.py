"""Questions of any shape: as deep, as wide, as contradictory as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from providers import And, Between, Compare, In, IsNull, Or, Predicate, Unknown
from providers.predicate import map_leaves
from rewrite.bridge.messages import Reader
from skipping.indexing.refresh import _drop_unknown_parts
from skipping.indexing.sketch import Work, entry_schema, sketch_files
from skipping.lookup.binding import Binding
from skipping.lookup.lookup import Lookup, LookupResult
from skipping.lookup.translate import MOST_LEAVES
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.stores import IDENTITY, IndexStore
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from skipping.tables import Columns, PhysicalColumn, TableColumn

COLUMNS = Columns([TableColumn("x", "x", "bigint", PhysicalColumn(("x",)))])


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> IndexStore:
    return MemoryStore("here") if request.param == "memory" else SqliteStore(tmp_path / "s.db")


def built(
    store: IndexStore, folder: Path, kind: str = "MIN_MAX", **params: Any
) -> tuple[Definition, pa.Table]:
    """Files with the values i, 100 + i and 200 + i; the last of nulls only."""
    rows = []
    for i in range(6):
        values = [None] * 3 if i == 5 else [i, 100 + i, 200 + i]
        path = folder / f"{i}.parquet"
        pa.parquet.write_table(pa.table({"x": pa.array(values, pa.int64())}), path)
        rows.append({"ordinal": i, "path": f"file:{path}", "size": path.stat().st_size})
    column = IndexedColumn(1, "x", "x", "bigint", kind, tuple(params.items()))
    definition = Definition("i", TableId("delta", "t", "file:/t"), "t", (column,))
    revision = store.define(definition, expect=None)
    store.reserve("i", len(rows))
    work = [Work(column, COLUMNS["x"], column.provider())]
    files = pa.RecordBatch.from_pylist(rows, IDENTITY)
    entries = pa.Table.from_batches([sketch_files(files, work)])
    assert entries.schema == entry_schema(work)
    entries = _drop_unknown_parts(entries, work)
    store.write("i", entries, revision=revision)
    return definition, entries


def ask(store: IndexStore, definition: Definition, predicate: Predicate) -> LookupResult:
    bound = Binding(COLUMNS)
    asked = map_leaves(predicate, bound.leaf)
    return Lookup(store, ttl=0).find(definition, asked, bound.columns, timeout=60)


def deep(levels: int) -> Predicate:
    """Alternating And and Or; true where x < 1, for all that is inside."""
    made: Predicate = Compare("x", "=", -1)
    for level in range(levels):
        made = Or((made, Compare("x", "<", 1))) if level % 2 else And((made, Compare("x", "<", 9)))
    return made


@pytest.mark.parametrize(
    "levels", [10, 1_001, 5_001, pytest.param(100_001, marks=pytest.mark.soak)]
)
def test_any_depth_is_answered(store: IndexStore, tmp_path: Path, levels: int) -> None:
    definition, _ = built(store, tmp_path)
    found = ask(store, definition, And((deep(levels), Compare("x", "=", 4))))
    assert 4 in found.pruned or levels > MOST_LEAVES
    assert 0 not in ask(store, definition, deep(levels)).pruned
    assert any("are ignored" in text for text in found.unused) == (levels > MOST_LEAVES)


def test_any_width_is_answered(tmp_path: Path) -> None:
    store = MemoryStore("here")
    definition, _ = built(store, tmp_path)
    legs = tuple(Compare("x", "!=", n) for n in range(5, 5_005))
    assert not ask(store, definition, Or(legs)).pruned
    found = ask(store, definition, And((Compare("x", "<", -5), *legs)))
    assert set(found.pruned) == set(range(6))
    equal = tuple(Compare("x", "=", n) for n in range(5, 5_005))
    assert set(ask(store, definition, And((Or(equal), Compare("x", ">", 203)))).pruned) >= {5}


def test_a_kind_of_many_tests_is_given_up_and_not_the_question(tmp_path: Path) -> None:
    store = MemoryStore("here")
    definition, _ = built(store, tmp_path, "RANGES")
    asked = tuple(
        And((Between("x", n, n + 1), Compare("x", "<", 9_999))) for n in range(1_000, 3_000, 2)
    )
    few = ask(store, definition, Or(asked[:100]))
    assert set(few.pruned) == set(range(6))
    found = ask(store, definition, And((Compare("x", ">", 203), Or(asked))))
    assert set(found.pruned) == {0, 1, 2, 3, 5}
    assert any("there are too many conditions" in text for text in found.unused)


NEVER: list[Predicate] = [
    Or(()),
    In("x", []),
    In("x", [1, None], negated=True),
    In("x", [None]),
    Compare("x", "=", None),
    Compare("x", "=", 1.5),
    And((Unknown("f"), Or(()))),
    Or((In("x", []), Or(()))),
    And((Or((Unknown("f"), IsNull("x"))), In("x", [1, None], negated=True))),
]


@pytest.mark.parametrize("predicate", NEVER, ids=repr)
def test_what_is_never_true_prunes_every_file(
    store: IndexStore, tmp_path: Path, predicate: Predicate
) -> None:
    definition, _ = built(store, tmp_path, "BLOOM_FILTER")
    found = ask(store, definition, predicate)
    assert set(found.pruned) == set(range(6))
    assert found.legs
    one = ask(store, definition, Or((predicate, Compare("x", "=", 3))))
    assert 3 not in one.pruned
    assert not ask(store, definition, Or((predicate, Unknown("g")))).pruned


def test_bloom_filters_of_nulls_only_prune_is_not_null(store: IndexStore, tmp_path: Path) -> None:
    definition, _ = built(store, tmp_path, "BLOOM_FILTER")
    assert set(ask(store, definition, IsNull("x", negated=True)).pruned) == {5}
    assert set(ask(store, definition, IsNull("x")).pruned) == set(range(5))


def test_a_list_with_too_many_values_is_asked_by_its_bounds(
    store: IndexStore, tmp_path: Path
) -> None:
    definition, entries = built(store, tmp_path, "VALUE_LIST", limit=2)
    assert entries["s1_known"].to_pylist() == [False] * 5 + [True]
    assert entries["s1o_known"].to_pylist() == [True] * 5 + [None]
    assert set(ask(store, definition, Compare("x", "=", 300)).pruned) == set(range(6))
    assert set(ask(store, definition, Compare("x", "<", 2)).pruned) == {2, 3, 4, 5}
    assert set(ask(store, definition, Compare("x", "=", 50)).pruned) == {5}
    assert set(ask(store, definition, IsNull("x")).pruned) == set(range(5))


def test_a_list_without_that_part_is_asked_as_ever(store: IndexStore, tmp_path: Path) -> None:
    """What was built before there was the part, and what has no use for it."""
    definition, entries = built(store, tmp_path, "VALUE_LIST", limit=20)
    assert [name for name in entries.schema.names if name.startswith("s1o")] == []
    assert set(ask(store, definition, Compare("x", "=", 102)).pruned) == {0, 1, 3, 4, 5}


def _leaf(values: Any, *, nulls: bool) -> dict[str, Any]:
    return {
        "op": "in",
        "column": {"identity": "x", "name": "x", "type": "bigint"},
        "nulls": nulls,
        "values": {"type": "bigint", "n": len(values), "buffers": [0]},
    }


def test_what_java_sends_is_read_at_any_depth_and_with_nulls_as_they_are() -> None:
    reader = Reader([memoryview(pa.array([1], pa.int64()).buffers()[1])])
    leaf = _leaf([1], nulls=True)
    assert reader.read({"op": "not", "operand": leaf}) == Or(())
    twice = reader.read({"op": "not", "operand": {"op": "not", "operand": leaf}})
    assert isinstance(twice, In)
    assert (twice.values.to_pylist(), twice.negated) == ([1], False)
    node: dict[str, Any] = leaf
    for level in range(100_000):
        op = ("and", "or")[level % 2]
        node = {
            "op": "not",
            "operand": {"op": op, "operands": [node, {"op": "unknown", "why": "f"}]},
        }
    assert isinstance(reader.read(node), And | Or)
    both = reader.read(
        {"op": "not", "operand": {"op": "and", "operands": [leaf, _leaf([1], nulls=False)]}}
    )
    assert isinstance(both, Or)
    assert both.legs[0] == Or(())
    assert isinstance(both.legs[1], In)
    assert both.legs[1].negated
