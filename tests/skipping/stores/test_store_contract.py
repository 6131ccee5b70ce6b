"""What every store promises: rules 1, 2, 5, 6 and 7 of docs/architecture.md."""

from __future__ import annotations

import itertools
import pickle
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any as Anything

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from providers.errors import Conflict, StoreError
from providers.evaluate import disproved_rows
from providers.index_predicate import (
    AllOf,
    AnyOf,
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    Escapes,
    FieldCompare,
    Overlaps,
    Test,
    disproved,
)
from skipping.model.definition import Definition, IndexedColumn, State, TableId
from skipping.model.lease import Lease
from skipping.stores import IDENTITY, IndexStore

Values = dict[str, Sequence[Anything]]
INTS = pa.int64()
TYPES: dict[str, pa.DataType] = {
    "s1_known": pa.bool_(),
    "s1_low": INTS,
    "s1_high": INTS,
    "s1_nulls": INTS,
    "s2_known": pa.bool_(),
    "s2_values": pa.list_(pa.string()),
    "s2_nulls": INTS,
    "s3_known": pa.bool_(),
    "s3_filter": pa.large_binary(),
    "s3_layout": INTS,
}


def definition(index: str = "i", *, table: str = "t", **more: Anything) -> Definition:
    column = IndexedColumn(1, "x", "col-1", "bigint", "MIN_MAX", (("limit", 3),))
    return Definition(index, TableId("delta", table, "file:/t"), "default.t", (column,), **more)


def entries(ordinals: Sequence[int], values: Values | None = None, **more: Anything) -> pa.Table:
    """Entries of the files f<ordinal>, with the sketches' fields in `values`."""
    columns = {
        "ordinal": pa.array(ordinals, INTS),
        "path": pa.array(more.get("path", [f"f{o}" for o in ordinals]), pa.string()),
        "size": pa.array(more.get("size", [100 + o for o in ordinals]), INTS),
        "stamp": pa.array(more.get("stamp", [None] * len(ordinals)), INTS),
        "partition": pa.array(['{"day": 1}'] * len(ordinals), pa.string()),
    }
    for name, column in (values or {}).items():
        columns[name] = column if isinstance(column, pa.Array) else pa.array(column, TYPES[name])
    return pa.table(columns)


def bounds(lows: Sequence[int | None], known: Sequence[bool | None] | None = None) -> Values:
    return {"s1_known": known or [True] * len(lows), "s1_low": lows, "s1_high": lows}


def filters(values: Sequence[bytes | None], layouts: Sequence[int | None]) -> Values:
    return {"s3_known": [True] * len(values), "s3_filter": values, "s3_layout": layouts}


def bits(keys: Sequence[Sequence[int]], *, layout: int = 1, sketch: str = "s3") -> BitsSet:
    """Whether all bits of one of the keys are set."""
    slices = len(keys[0]) if keys else 2
    return BitsSet("filter", "layout", ((layout, pa.array(keys, pa.list_(INTS, slices))),), sketch)


def filled(store: IndexStore, values: Values, *, index: str = "i") -> range:
    """A new index with entries of these sketches."""
    n = len(next(iter(values.values())))
    store.define(definition(index, table=index), expect=None)
    ordinals = store.reserve(index, n)
    store.write(index, entries(ordinals, values), revision=1)
    return ordinals


def ask(store: IndexStore, test: Test, *, below: int = 2**31, index: str = "i") -> list[int]:
    return list(store.disproved(index, [test], below=below, timeout=60)[0])


def race(count: int, step: Callable[[int], Anything]) -> list[Anything]:
    """What `step(0)`, `step(1)`, ... gave or raised, run by threads that start together."""
    gate = threading.Barrier(count)

    def run(i: int) -> Anything:
        gate.wait()
        try:
            return step(i)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def outcome(future: Future[Anything]) -> Anything:
    return future.exception(60) or future.result()


# Definitions


def test_a_definition_comes_back_as_it_was(store: IndexStore) -> None:
    made = definition(where="day > '2\u00e9\U00010348'", options=(("a", "b"),))
    assert store.define(made, expect=None) == 1
    (found,) = store.definitions()
    assert (found.value, found.revision) == (made, 1)
    changed = replace(made, columns=())
    assert store.define(changed, expect=1) == 2
    (found,) = store.definitions()
    assert (found.value, found.revision) == (changed, 2)


def test_define_compares_before_it_sets(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    for expect in (None, 0, 2):
        with pytest.raises(Conflict):
            store.define(definition(options=(("a", "b"),)), expect=expect)
    with pytest.raises(Conflict):
        store.define(definition("other", table="u"), expect=1)
    assert [v.value for v in store.definitions()] == [definition()]


def test_a_table_has_one_live_index(store: IndexStore) -> None:
    store.define(definition("a"), expect=None)
    with pytest.raises(Conflict, match="already"):
        store.define(definition("b"), expect=None)
    store.define(definition("elsewhere", table="u"), expect=None)
    store.define(definition("a", dropped=True), expect=1)
    store.define(definition("b"), expect=None)
    with pytest.raises(Conflict, match="already"):  # nor by undoing the drop
        store.define(definition("a"), expect=2)
    assert sorted(v.value.index for v in store.definitions()) == ["a", "b", "elsewhere"]


def test_of_racing_threads_one_defines(store: IndexStore) -> None:
    store.define(definition("seed", table="seed"), expect=None)
    made = race(8, lambda i: store.define(definition(f"i{i}"), expect=None))
    assert made.count(1) == 1
    assert sum(isinstance(m, Conflict) for m in made) == 7
    changed = race(8, lambda i: store.define(replace(definition("seed", table="seed")), expect=1))
    assert changed.count(2) == 1
    assert sum(isinstance(m, Conflict) for m in changed) == 7


def test_of_racing_processes_one_defines(
    reachable: IndexStore, processes: ProcessPoolExecutor
) -> None:
    """The store itself does not exist yet: they race for making it, too."""
    futures = [
        processes.submit(reachable.define, definition(f"i{i}"), expect=None) for i in range(4)
    ]
    made = [outcome(f) for f in futures]
    assert made.count(1) == 1
    assert sum(isinstance(m, Conflict) for m in made) == 3
    (found,) = reachable.definitions()
    futures = [processes.submit(reachable.define, found.value, expect=1) for i in range(4)]
    made = [outcome(f) for f in futures]
    assert made.count(2) == 1
    assert sum(isinstance(m, Conflict) for m in made) == 3


def test_state_is_what_was_reported_last(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    assert store.state("i") == State()
    store.report("i", State("failed", 3, "no \u00e9\0"))
    store.report("i", State("active", 4))
    assert store.state("i") == State("active", 4)


def test_erased_is_gone_for_good(store: IndexStore) -> None:
    filled(store, bounds([1, 2]))
    with pytest.raises(StoreError, match="drop it"):
        store.erase("i")
    store.define(definition(table="i", dropped=True), expect=1)
    assert ask(store, FieldCompare("low", ">", 9, "s1")) == [0, 1]  # dropped is not erased yet
    store.erase("i")
    store.erase("i")
    assert list(store.definitions()) == []
    for use in (
        lambda: store.state("i"),
        lambda: store.report("i", State()),
        lambda: store.reserve("i", 1),
        lambda: store.write("i", entries([0]), revision=2),
        lambda: store.remove("i", pa.array([0])),
        lambda: store.catalogue("i"),
        lambda: store.disproved("i", [], below=9, timeout=9),
        lambda: store.define(definition(table="i"), expect=None),
        lambda: store.define(definition(table="i"), expect=2),
        lambda: store.lease("i"),
        lambda: store.hold("i", Lease(1, "me"), expect=Lease()),
        lambda: store.ordinals("i", entries([0])),
    ):
        with pytest.raises(StoreError):
            use()
    assert filled(store, bounds([1]), index="next") == range(1)


def test_an_index_nobody_made(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    uses = (store.state, store.erase, store.catalogue, store.lease)
    for use in (*uses, lambda i: store.reserve(i, 1), lambda i: store.ordinals(i, entries([0]))):
        with pytest.raises(StoreError, match="no index"):
            use("nobody's")


# Leases


def test_nobody_keeps_a_new_index(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    assert store.lease("i") == Lease()
    first = Lease().claimed("a")
    store.hold("i", first, expect=Lease())
    moved = first.moved()
    store.hold("i", moved, expect=first)
    assert store.lease("i") == moved
    store.hold("i", moved.released(), expect=moved)
    assert store.lease("i") == Lease(1)


def test_a_lease_is_compared_before_it_is_set(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    first = Lease().claimed("a")
    store.hold("i", first, expect=Lease())
    second = first.claimed("b")
    store.hold("i", second, expect=first)
    for stale in (Lease(), first, first.moved(), second.moved(), second.released()):
        with pytest.raises(Conflict, match="another lease"):
            store.hold("i", stale.claimed("c"), expect=stale)
    assert store.lease("i") == second


def test_of_racing_threads_one_takes_a_lease(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    dead = Lease().claimed("dead")
    store.hold("i", dead, expect=Lease())
    taken = race(8, lambda i: store.hold("i", dead.claimed(f"o{i}"), expect=dead))
    assert taken.count(None) == 1
    assert sum(isinstance(t, Conflict) for t in taken) == 7
    assert store.lease("i").owner == f"o{taken.index(None)}"


def test_of_racing_processes_one_takes_a_lease(
    reachable: IndexStore, processes: ProcessPoolExecutor
) -> None:
    reachable.define(definition(), expect=None)
    futures = [
        processes.submit(reachable.hold, "i", Lease().claimed(f"o{i}"), expect=Lease())
        for i in range(4)
    ]
    taken = [outcome(f) for f in futures]
    assert taken.count(None) == 1
    assert sum(isinstance(t, Conflict) for t in taken) == 3
    assert reachable.lease("i").owner == f"o{taken.index(None)}"


def test_an_old_token_writes_nothing(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    store.reserve("i", 4)
    old = Lease().claimed("a")
    store.hold("i", old, expect=Lease())
    store.write("i", entries([0]), revision=1, token=old.token)
    store.report("i", State("active", 1), token=old.token)
    new = old.claimed("b")
    store.hold("i", new, expect=old)
    for use in (
        lambda: store.write("i", entries([1]), revision=1, token=old.token),
        lambda: store.report("i", State("active", 9), token=old.token),
    ):
        with pytest.raises(Conflict, match="taken over"):
            use()
    # Who keeps nothing claims nothing; the new owner may.
    store.write("i", entries([2]), revision=1)
    store.write("i", entries([3]), revision=1, token=new.token)
    assert store.catalogue("i").files["ordinal"].to_pylist() == [0, 2, 3]
    assert store.state("i") == State("active", 1)
    store.hold("i", new.released(), expect=new)
    with pytest.raises(Conflict, match="taken over"):
        store.report("i", State("active", 9), token=new.token)


# Ordinals


def test_ordinals_of_files(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    asked = entries([0, 1, 7, 8], path=["f0", "f1", "f1", "x"], size=[100, 101, 9, 9])
    assert store.ordinals("i", asked).to_pylist() == [None] * 4
    store.reserve("i", 4)
    store.write("i", entries([0, 1, 2]), revision=1)
    stamped = entries([3], path=["f1"], size=[9], stamp=[5])
    store.write("i", stamped, revision=1)
    assert store.ordinals("i", asked).to_pylist() == [0, 1, None, None]
    assert store.ordinals("i", stamped).to_pylist() == [3]
    store.remove("i", pa.array([1]))
    assert store.ordinals("i", asked).to_pylist() == [0, None, None, None]
    assert store.ordinals("i", asked.slice(0, 0)).to_pylist() == []


def test_ordinals_of_many_files(store: IndexStore) -> None:
    ordinals = filled(store, bounds([1] * 1_200))
    assert store.ordinals("i", entries(ordinals)).to_pylist() == list(ordinals)


def test_reserved_by_threads_never_overlaps(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    ranges = race(8, lambda i: [store.reserve("i", 1 + i) for _ in range(5)])
    ordinals = list(itertools.chain(*itertools.chain(*ranges)))
    assert sorted(ordinals) == list(range(5 * 36))


def test_reserved_by_processes_never_overlaps(
    reachable: IndexStore, processes: ProcessPoolExecutor
) -> None:
    reachable.define(definition(), expect=None)
    futures = [processes.submit(reachable.reserve, "i", 1 + i % 5) for i in range(40)]
    assert sorted(itertools.chain(*(f.result(60) for f in futures))) == list(range(120))


def test_ordinals_are_not_used_again(store: IndexStore) -> None:
    filled(store, bounds([1, 2, 3]))
    store.remove("i", pa.array([2, 0, 77]))
    assert store.reserve("i", 2) == range(3, 5)
    assert store.reserve("i", 0) == range(5, 5)
    # A straggler's write of what was removed does not bring it back.
    store.write("i", entries([2], bounds([9])), revision=1)
    assert store.catalogue("i").files["ordinal"].to_pylist() == [1]
    # The same file may come back, as another.
    store.write("i", entries([4], bounds([3]), path=["f2"], size=[102]), revision=1)
    assert store.catalogue("i").files["ordinal"].to_pylist() == [1, 4]


def test_ordinals_end_at_31_bits(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    assert store.reserve("i", 2**31 - 1).stop == 2**31 - 1
    with pytest.raises(StoreError, match="left"):
        store.reserve("i", 2)
    assert store.reserve("i", 1) == range(2**31 - 1, 2**31)
    with pytest.raises(StoreError, match="left"):
        store.reserve("i", 1)
    store.write("i", entries([2**31 - 1], bounds([1])), revision=1)
    assert ask(store, FieldCompare("low", ">", 9, "s1"), below=2**31) == [2**31 - 1]


# Writing


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(entries([0, 0]), id="an ordinal twice"),
        pytest.param(entries([0, 9]), id="not reserved"),
        pytest.param(entries([0, -1]), id="negative"),
        pytest.param(entries([0, 1]).drop_columns(["stamp"]), id="no stamp"),
        pytest.param(entries([0, 1], path=["a", None]), id="no path"),
        pytest.param(entries([0, 1], {"s1_low": [1, 2]}), id="no known"),
        pytest.param(entries([0, 1], bounds([1, 2]) | {"s1_low": pa.array([1.0, 2.0])}), id="type"),
        pytest.param(
            entries([0, 1], {"s2_known": [True] * 2, "s2_values": [["a"], [None]]}), id="null term"
        ),
        pytest.param(
            entries([0, 2], bounds([1, 2]) | {"s1_low": pa.array(["1", "2"])}), id="other type"
        ),
        pytest.param(entries([0, 2], path=["new", "f2x"], size=[1, 1]), id="another file's"),
    ],
)
def test_a_failing_write_leaves_nothing(store: IndexStore, wrong: pa.Table) -> None:
    store.define(definition(), expect=None)
    store.reserve("i", 4)
    store.write("i", entries([2], bounds([5])), revision=1)
    before = store.catalogue("i", fields=["s1_low"])
    with pytest.raises(StoreError):
        store.write("i", wrong, revision=1)
    after = store.catalogue("i", fields=["s1_low"])
    assert (after.generation, after.files) == (before.generation, before.files)


def test_what_was_sketched_for_another_definition_is_refused(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    store.reserve("i", 2)
    store.define(definition(options=(("a", "b"),)), expect=1)
    with pytest.raises(Conflict):
        store.write("i", entries([0]), revision=1)
    store.write("i", entries([0]), revision=2)
    store.define(definition(dropped=True), expect=2)
    with pytest.raises(Conflict):
        store.write("i", entries([1]), revision=3)
    assert store.catalogue("i").files["ordinal"].to_pylist() == [0]


def test_an_entry_is_created_once(store: IndexStore) -> None:
    filled(store, bounds([1, 2]))
    generation = store.catalogue("i").generation
    late = store.reserve("i", 2)
    lost = entries(late, bounds([8, 9]), path=["f0", "f1"], size=[100, 101])
    store.write("i", lost, revision=1)
    found = store.catalogue("i", fields=["s1_low"])
    assert found.files["ordinal"].to_pylist() == [0, 1]
    assert found.files["s1_low"].to_pylist() == [1, 2]
    assert found.generation == generation
    assert ask(store, FieldCompare("low", ">", 99, "s1")) == [0, 1]  # nothing of the losers is kept
    # A null stamp is one identity, not as many as there are nulls; any other is another file.
    store.write("i", entries(late[:1], path=["f0"], size=[100], stamp=[0]), revision=1)
    store.write("i", entries(late[1:], path=["f0"], size=[1]), revision=1)
    assert store.catalogue("i").files["ordinal"].to_pylist() == [0, 1, *late]


def test_of_two_rows_of_one_file_the_first_wins(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    store.reserve("i", 3)
    twice = entries([2, 0, 1], bounds([2, 0, 1]), path=["a", "a", "b"], size=[1, 1, 1])
    store.write("i", twice, revision=1)
    files = store.catalogue("i", fields=["s1_low"]).files
    assert files["ordinal"].to_pylist() == [1, 2]
    assert files["s1_low"].to_pylist() == [1, 2]


def test_racing_writers_create_each_file_once(store: IndexStore) -> None:
    store.define(definition(), expect=None)

    def step(i: int) -> None:
        ordinals = store.reserve("i", 20)
        paths = [f"f{n}" for n in range(20)]
        table = entries(ordinals, bounds([i] * 20), path=paths, size=[1] * 20)
        store.write("i", table, revision=1)

    assert race(6, step) == [None] * 6
    files = store.catalogue("i", fields=["s1_low"]).files
    assert sorted(files["path"].to_pylist()) == sorted(f"f{n}" for n in range(20))
    assert len(set(files["s1_low"].to_pylist())) == 1  # a write is whole


def test_sketches_are_added_and_never_changed(store: IndexStore) -> None:
    filled(store, bounds([1, 2, 3], [True, False, None]))
    assert ask(store, FieldCompare("low", ">", 9, "s1")) == [0]
    more = bounds([7, 7, 7]) | {"s2_known": [True, None, False], "s2_values": [["a"], ["b"], []]}
    store.write("i", entries([0, 1, 2], more), revision=1)
    fields = ["s1_known", "s1_low", "s2_known"]
    files = store.catalogue("i", fields=fields).files
    assert files.select(fields).to_pydict() == {
        "s1_known": [True, False, True],
        "s1_low": [1, 2, 7],
        "s2_known": [True, None, False],
    }
    assert ask(store, FieldCompare("low", "<", 5, "s1")) == [2]
    assert ask(store, ContainsRange("values", "b", sketch="s2")) == [0]
    again = {"s2_known": [True] * 3, "s2_values": [["c"]] * 3}
    store.write("i", entries([0, 1, 2], again), revision=1)
    assert ask(store, Contains("values", pa.array(["c"]), "s2")) == [0]
    assert ask(store, Contains("values", pa.array(["a"]), "s2")) == [1]


def test_wider_arrow_types_and_slices_are_as_good(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    store.reserve("i", 3)
    terms = pa.array([["x"], ["a", "a"], None], pa.large_list(pa.large_string()))
    columns = {"s2_known": [True] * 3, "s2_values": terms}
    table = entries([0, 1, 2], columns | {"s2_nulls": pa.array([0, 1, 2], pa.int64())})
    parts = pa.concat_tables([table.slice(1, 1), table.slice(2), table.slice(0, 0)])
    store.write("i", parts, revision=1)
    assert ask(store, Contains("values", pa.array(["a"]), "s2")) == [2]
    assert ask(store, ContainsOther("values", pa.array(["a"]), "s2")) == [1, 2]
    store.write("i", table.slice(0, 0), revision=1)


# The catalogue


def test_an_empty_catalogue(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    found = store.catalogue("i", fields=["s1_low"])
    assert (found.below, len(found.files), len(found.removed)) == (0, 0, 0)
    assert found.files.schema.names == [*IDENTITY.names, "s1_low"]
    assert found.files.select(IDENTITY.names).schema == IDENTITY


def test_a_catalogue_and_what_changed_since(store: IndexStore) -> None:
    filled(store, bounds([1, 2, 3]))
    first = store.catalogue("i", fields=["s1_low", "s1_known", "s7_low"])
    assert first.below == 3
    assert first.files.drop_columns("s7_low").equals(
        entries([0, 1, 2], {"s1_low": [1, 2, 3], "s1_known": [True] * 3})
    )
    assert first.files["s7_low"].to_pylist() == [None] * 3
    assert first.removed.to_pylist() == []

    store.reserve("i", 3)
    store.write("i", entries([5, 4], bounds([5, 4])), revision=1)
    store.remove("i", pa.array([0, 4]))
    store.write("i", entries([1], {"s2_known": [False]}), revision=1)
    later = store.catalogue("i", since=first.generation, fields=["s1_low", "s2_known"])
    assert later.files.select(["ordinal", "s1_low", "s2_known"]).to_pydict() == {
        "ordinal": [1, 5],
        "s1_low": [2, 5],
        "s2_known": [False, None],
    }
    assert later.removed.to_pylist() == [0, 4]
    assert (later.below, later.generation > first.generation) == (6, True)
    assert store.catalogue("i").files["ordinal"].to_pylist() == [1, 2, 5]
    assert store.catalogue("i").removed.to_pylist() == []

    nothing = store.catalogue("i", since=later.generation)
    assert (len(nothing.files), len(nothing.removed), nothing.below) == (0, 0, 6)
    assert nothing.generation == later.generation
    with pytest.raises(StoreError, match="past"):
        store.catalogue("i", since=later.generation + 1)


def test_what_changes_nothing_makes_no_generation(store: IndexStore) -> None:
    filled(store, bounds([1, 2]))
    generation = store.catalogue("i").generation
    store.write("i", entries([0, 1], bounds([8, 9])), revision=1)
    store.remove("i", pa.array([7], INTS))
    store.remove("i", pa.array([], INTS))
    assert store.catalogue("i").generation == generation


def test_a_catalogue_has_no_terms(store: IndexStore) -> None:
    filled(store, {"s2_known": [True], "s2_values": [["a"]]})
    with pytest.raises(StoreError, match="SCALAR"):
        store.catalogue("i", fields=["s2_values"])


def test_a_catalogue_has_no_bytes(store: IndexStore) -> None:
    filled(store, filters([b"a"], [1]))
    assert store.catalogue("i", fields=["s3_layout"]).files["s3_layout"].to_pylist() == [1]
    with pytest.raises(StoreError, match="SCALAR"):
        store.catalogue("i", fields=["s3_filter"])


# Which files are disproved


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.Table, list[Test]]:
    """Sketches of one type (s1 with bounds, s2 terms, s3 bytes), and tests of every class."""
    type, values = draw(
        st.sampled_from(
            [
                (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1])),
                # U+FFFF sorts before U+10348 as UTF-8 and after it as UTF-16.
                (pa.string(), st.text("\0a\u00e9\uffff\U00010348", max_size=2)),
                (pa.binary(), st.text("\0\x7f\xff", max_size=2).map(lambda t: t.encode("latin1"))),
            ]
        )
    )
    maybe = st.none() | values
    n = draw(st.integers(0, 8))

    def column(each: st.SearchStrategy[Anything], type: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(each, min_size=n, max_size=n)), type)

    flag = st.sampled_from([True, True, True, False, None])
    sketches = {
        "s1_known": column(flag, pa.bool_()),
        "s1_low": column(maybe, type),
        "s1_high": column(maybe, type),
        "s2_known": column(flag, pa.bool_()),
        "s2_values": column(st.none() | st.lists(values, max_size=4), pa.list_(type)),
        "s3_known": column(flag, pa.bool_()),
        "s3_filter": column(st.none() | st.binary(max_size=2), pa.large_binary()),
        "s3_layout": column(st.sampled_from([1, 1, 1, 2, None]), INTS),
    }

    def keys() -> list[Anything]:
        return sorted(draw(st.sets(values, max_size=5)))

    edges = keys()
    edges = edges[: len(edges) // 2 * 2]
    flags = st.booleans()
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    tests: list[Test] = [
        FieldCompare(draw(st.sampled_from(["low", "high"])), op, draw(values), "s1"),
        Overlaps("low", "high", pa.array(keys(), type), "s1"),
        Escapes("low", "high", pa.array(edges[::2], type), pa.array(edges[1::2], type), "s1"),
        Contains("values", pa.array(keys(), type), "s2"),
        ContainsOther("values", pa.array(keys(), type), "s2"),
        ContainsRange("values", draw(maybe), draw(maybe), draw(flags), draw(flags), "s2"),
        ContainsRange("values", sketch="s2"),
        bits(draw(st.lists(st.tuples(*[st.integers(0, 15)] * 2), max_size=3))),
    ]
    return entries(range(n), sketches), tests


@given(question=questions(), data=st.data())
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_disproved_is_what_the_reference_says(
    shared: IndexStore, question: tuple[pa.Table, list[Test]], data: st.DataObject
) -> None:
    table, tests = question
    index = str(uuid.uuid4())
    shared.define(definition(index, table=index), expect=None)
    n = len(shared.reserve(index, len(table)))
    # In any order, over several writes, sketches after entries.
    order = data.draw(st.permutations(range(n)))
    cut = data.draw(st.integers(0, n))
    shuffled = table.take(pa.array(order, INTS))
    first = data.draw(st.sampled_from(["s1", "s2", "s3"]))
    names = [c for c in table.schema.names if c in IDENTITY.names or c.startswith(first)]
    for part in (shuffled[:cut].select(names), shuffled[:cut], shuffled[cut:]):
        shared.write(index, part, revision=1)
    gone = data.draw(st.sets(st.integers(0, n), max_size=3))
    shared.remove(index, pa.array(sorted(gone), INTS))
    below = data.draw(st.integers(0, n + 1) | st.just(2**31))

    answers = shared.disproved(index, tests, below=below, timeout=60)
    for test, answer in zip(tests, answers, strict=True):
        expected = set(np.flatnonzero(disproved_rows(test, table)).tolist()) - gone
        assert set(answer) == {o for o in expected if o < below}, test


def test_both_ends_of_a_range_are_in_or_out(store: IndexStore) -> None:
    filled(store, {"s2_known": [True] * 4, "s2_values": [["a"], ["a\0"], ["c"], ["d"]]})

    def disproved_by(low: str | None, high: str | None, *ends: bool) -> list[int]:
        return ask(store, ContainsRange("values", low, high, *ends, sketch="s2"))

    assert disproved_by("a", "c", True, True) == [3]
    assert disproved_by("a", "c", False, True) == [0, 3]
    assert disproved_by("a", "c", True, False) == [2, 3]
    assert disproved_by("a", "c", False, False) == [0, 2, 3]
    assert disproved_by(None, "c", True, False) == [2, 3]
    assert disproved_by("c", None, False, True) == [0, 1, 2]


def test_bytes_come_back_as_they_were(store: IndexStore) -> None:
    """Every bit of some files, and of one that is larger than whatever a store reads at once."""
    kept = [bytes(range(256)), b"", b"\0" * 5, b"\xff" * (5 << 20), b"\0\x80"]
    filled(store, filters([*kept, None], [1] * 6))
    for bit in (0, 7, 8, 15, 39, 2_047):
        expected = [
            i
            for i, value in enumerate(kept)
            if bit < 8 * len(value) and not value[bit // 8] >> bit % 8 & 1
        ]
        assert ask(store, bits([[bit]])) == expected
    assert ask(store, bits([[8 * (5 << 20) - 1]])) == []
    assert ask(store, bits([])) == [0, 1, 2, 3, 4]
    assert ask(store, bits([[0]], layout=2)) == []


def test_bytes_of_several_writes_and_sketches(store: IndexStore) -> None:
    filled(store, filters([b"\0", b"\1"], [1, 1]))
    store.reserve("i", 4)
    later = filters([b"\1", b"\0", b"\0"], [1, 1, 2])
    store.write("i", entries([5, 3, 4], later), revision=1)
    again = filters([b"\1"], [1]) | {"s4_known": pa.array([True])}
    more = {"s4_filter": pa.array([b"\0"], pa.large_binary()), "s4_layout": pa.array([1])}
    store.write("i", entries([0], again | more), revision=1)
    assert ask(store, bits([[0]])) == [0, 3]
    assert ask(store, bits([[0]], layout=2)) == [4]
    assert ask(store, bits([[0]], sketch="s4")) == [0]
    assert ask(store, bits([[0]]), below=3) == [0]
    store.remove("i", pa.array([0, 5]))
    assert ask(store, bits([[0]])) == [3]
    assert ask(store, bits([])) == [1, 3]


def test_only_entries_under_the_bound_are_answered_for(store: IndexStore) -> None:
    filled(store, bounds([1, 2, 3, 4]) | {"s2_known": [True] * 4, "s2_values": [[]] * 4})
    for test in (FieldCompare("low", ">", 9, "s1"), Contains("values", pa.array(["a"]), "s2")):
        assert [ask(store, test, below=b) for b in (0, 1, 3, 9)] == [
            [],
            [0],
            [0, 1, 2],
            [0, 1, 2, 3],
        ]


def test_what_was_removed_is_never_reported(store: IndexStore) -> None:
    filled(store, bounds([1] * 6) | {"s2_known": [True] * 6, "s2_values": [["a"]] * 6})
    tests = [FieldCompare("low", ">", 9, "s1"), Contains("values", pa.array(["b"]), "s2")]
    store.remove("i", pa.array([0, 3, 4, 5]))
    for test in tests:
        assert ask(store, test) == [1, 2]
    assert ask(store, Contains("values", pa.array(["a"]), "s2")) == []
    store.remove("i", pa.array([1, 2]))
    assert [ask(store, test) for test in tests] == [[], []]


def test_a_test_that_cannot_be_answered_disproves_nothing(store: IndexStore) -> None:
    values = bounds([1, 2]) | {"s2_known": [True] * 2, "s2_values": [["a"], []]}
    filled(store, values | filters([b"\0", b"\0"], [1, 1]))
    ints, texts = pa.array([5]), pa.array(["b"])
    nobody: list[Test] = [
        FieldCompare("low", ">", 9, "s7"),
        FieldCompare("other", ">", 9, "s1"),
        FieldCompare("low", ">", "9", "s1"),
        FieldCompare("low", ">", 2**70, "s1"),
        FieldCompare("values", "=", "b", "s2"),
        Overlaps("low", "high", texts, "s1"),
        Overlaps("low", "other", ints, "s1"),
        Escapes("low", "high", texts, texts, "s1"),
        Contains("values", ints, "s2"),
        Contains("low", ints, "s1"),
        ContainsOther("values", pa.array([b"b"]), "s2"),
        ContainsRange("values", 5, sketch="s2"),
        ContainsRange("values", "\ud800", sketch="s2"),
        ContainsRange("low", 5, sketch="s1"),
        Contains("values", texts, ""),
        bits([[0]], sketch="s1"),
        replace(bits([[0]]), field="layout"),
        replace(bits([[0]]), layout="filter"),
        replace(bits([[0]]), probes=((1, pa.array([0])),)),
        replace(bits([[0]]), probes=((1, pa.array([[0]], pa.list_(pa.int32(), 1))),)),
        FieldCompare("filter", "=", b"\0", "s3"),
        Overlaps("filter", "filter", pa.array([b"a"]), "s3"),
    ]
    answers = store.disproved(
        "i", [*nobody, FieldCompare("low", ">", 9, "s1")], below=9, timeout=60
    )
    assert [list(a) for a in answers] == [[]] * len(nobody) + [[0, 1]]


def test_unknown_empty_and_absent_are_three_things(store: IndexStore) -> None:
    """Rule 7. Three files: s1 unknown, s1 known without values, s1 not looked at; s2 says no."""
    values = bounds([None] * 3, [False, True, None])
    filled(store, values | {"s2_known": [True] * 3, "s2_values": [["a"]] * 3})
    unknown = FieldCompare("low", "=", 5, "s1")
    false = Contains("values", pa.array(["b"]), "s2")
    true = Contains("values", pa.array(["a"]), "s2")

    def answer(test: Test) -> BitMap:
        return store.disproved("i", [test], below=9, timeout=60)[0]

    assert list(disproved(AnyOf((unknown, false)), answer)) == [1]
    assert list(disproved(AllOf((unknown, false)), answer)) == [0, 1, 2]
    assert list(disproved(AnyOf((unknown, true)), answer)) == []
    assert list(disproved(AllOf((unknown, true)), answer)) == [1]


def test_many_keys(store: IndexStore) -> None:
    numbers = pa.array([[2 * i, 2 * i + 400_001] for i in range(50)], pa.list_(INTS))
    texts = pa.array([[f"{2 * i:07}\0"] for i in range(50)], pa.list_(pa.string()))
    columns = {"s3_known": pa.array([True] * 50), "s3_values": numbers}
    columns |= {"s4_known": pa.array([True] * 50), "s4_values": texts}
    filled(store, columns | bounds([2 * i for i in range(50)]))
    keys = pa.array(range(1, 400_001, 2))
    some = pa.array([f"{i:07}\0" for i in range(20, 200_020)])
    assert ask(store, Contains("values", keys, "s3")) == list(range(50))
    assert ask(store, ContainsOther("values", keys, "s3")) == []
    assert ask(store, Overlaps("low", "high", keys, "s1")) == list(range(50))
    assert ask(store, Contains("values", some, "s4")) == list(range(10))
    assert ask(store, ContainsOther("values", some, "s4")) == list(range(10, 50))


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_kept_of_an_index_follows_it(reachable: IndexStore, copied: bool) -> None:
    """Asked again and again, while this or another copy of the store changes the entries."""
    store = pickle.loads(pickle.dumps(reachable)) if copied else reachable
    filled(reachable, bounds([1, 2, 3], [True, False, None]))
    keys = pa.array(range(100, 200_000))

    def found(below: int = 99) -> list[list[int]]:
        tests: list[Test] = [
            FieldCompare("low", ">", 2, "s1"),
            Overlaps("low", "high", keys, "s1"),
            FieldCompare("nulls", ">", 0, "s2"),
            ContainsOther("values", pa.array(["a"]), "s2"),
        ]
        return [list(a) for a in reachable.disproved("i", tests, below=below, timeout=60)]

    assert found() == found() == [[0], [0], [], []]
    store.reserve("i", 3)
    store.write("i", entries([4, 5], bounds([100, 5])), revision=1)
    assert found() == [[0], [0, 5], [], []]
    more = {"s2_known": [True, True, False], "s2_values": [["a"], ["b"], []], "s2_nulls": [0, 1, 0]}
    store.write("i", entries([2, 0, 4], more | bounds([9, 9, 9])), revision=1)
    assert found() == [[0], [0, 2, 5], [2], [2]]
    assert found(below=3) == [[0], [0, 2], [2], [2]]
    store.remove("i", pa.array([0]))
    assert found() == [[], [2, 5], [2], [2]]
    store.write("i", entries([3], bounds([0])), revision=1)
    assert found() == [[3], [2, 3, 5], [2], [2]]


def test_no_tests(store: IndexStore) -> None:
    filled(store, bounds([1]))
    assert list(store.disproved("i", [], below=9, timeout=60)) == []


def test_an_empty_budget_is_an_error(store: IndexStore) -> None:
    filled(store, bounds([1]))
    with pytest.raises(StoreError, match=r"answer|locked"):
        store.disproved("i", [FieldCompare("low", ">", 9, "s1")], below=9, timeout=0)
    assert len(store.definitions(timeout=60)) == len(store.catalogue("i", timeout=60).files) == 1


def test_readers_see_whole_writes(store: IndexStore) -> None:
    """One writes and removes while others ask: each answer fits one state of the store."""
    store.define(definition(), expect=None)
    done = threading.Event()
    size, rounds = 40, 25

    def writer() -> None:
        try:
            for _ in range(rounds):
                ordinals = store.reserve("i", size)
                values = bounds([1] * size) | {"s2_known": [True] * size}
                terms = pa.array([["a"]] * size)
                store.write("i", entries(ordinals, values | {"s2_values": terms}), revision=1)
                store.remove("i", pa.array(ordinals[::2]))
        finally:
            done.set()

    def reader() -> int:
        test: list[Test] = [
            FieldCompare("low", ">", 1, "s1"),
            Contains("values", pa.array(["b"]), "s2"),
            FieldCompare("low", ">", 2, "s1"),
        ]
        files: set[int] = set()
        since, asked = None, 0
        while not (done.is_set() and asked):
            found = store.catalogue("i", since=since)
            files |= set(found.files["ordinal"].to_pylist())
            files -= set(found.removed.to_pylist())
            since, asked = found.generation, asked + 1
            a, b, c = store.disproved("i", test, below=found.below, timeout=60)
            assert a == b == c
            assert not a or a.max() < found.below
        found = store.catalogue("i", since=since)
        files = (files | set(found.files["ordinal"].to_pylist())) - set(found.removed.to_pylist())
        assert files == set(store.catalogue("i").files["ordinal"].to_pylist())
        return len(files)

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(reader) for _ in range(2)]
        threads.submit(writer).result(60)
        assert [r.result(60) for r in readers] == [size // 2 * rounds] * 2
