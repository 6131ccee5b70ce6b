"""What every store promises: rules 1, 2, 5, 6 and 7 of docs/architecture.md."""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from providers.errors import Conflict, StoreError
from providers.index_predicate import Contains, ContainsOther, ContainsRange, FieldCompare
from skipping.model.definition import State, Versioned
from skipping.model.lease import Lease
from skipping.stores import IDENTITY, IndexStore
from tests.skipping.stores.samples import (
    INTS,
    ask,
    bounds,
    definition,
    entries,
    fill,
    filters,
    outcome,
    race,
)

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


def test_a_definition_is_found_by_its_index(store: IndexStore) -> None:
    store.define(definition("other", table="u"), expect=None)
    assert store.definition("i") is None
    made = definition()
    store.define(made, expect=None)
    assert store.definition("i", timeout=60) == Versioned(made, 1)
    dropped = replace(made, dropped=True)
    store.define(dropped, expect=1)
    assert store.definition("i") == Versioned(dropped, 2)
    store.erase("i")
    assert store.definition("i") is None
    assert store.definition("other") == store.definitions()[0]


def test_a_definition_is_found_by_its_table(store: IndexStore) -> None:
    made, other = definition(), definition("other", table="u")
    store.define(other, expect=None)
    assert store.live_definition(made.table) is None
    store.define(made, expect=None)
    assert store.live_definition(made.table, timeout=60) == Versioned(made, 1)
    assert store.live_definition(replace(made.table, root="file:/t2")) is None
    store.define(replace(made, dropped=True), expect=1)
    assert store.live_definition(made.table) is None
    again = definition("again", enabled=False)
    store.define(again, expect=None)
    assert store.live_definition(made.table) == Versioned(again, 1)
    store.erase("i")
    assert store.live_definition(made.table) == Versioned(again, 1)
    assert store.live_definition(other.table) == Versioned(other, 1)


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
    fill(store, bounds([1, 2]))
    with pytest.raises(StoreError, match="drop it"):
        store.erase("i")
    store.define(definition(table="i", dropped=True), expect=1)
    # Dropped is not erased yet, but a store may give its room back.
    assert ask(store, FieldCompare("low", ">", 9, "s1")) in ([0, 1], [])
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
        lambda: store.find_prunable("i", [], below=9, timeout=9),
        lambda: store.define(definition(table="i"), expect=None),
        lambda: store.define(definition(table="i"), expect=2),
        lambda: store.lease("i"),
        lambda: store.hold("i", Lease(1, "me"), expect=Lease()),
        lambda: store.ordinals("i", entries([0])),
    ):
        with pytest.raises(StoreError):
            use()
    assert fill(store, bounds([1]), index="next") == range(1)


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
    first = Lease().claim("a")
    store.hold("i", first, expect=Lease())
    moved = first.renew()
    store.hold("i", moved, expect=first)
    assert store.lease("i") == moved
    store.hold("i", moved.release(), expect=moved)
    assert store.lease("i") == Lease(1)


def test_a_lease_is_compared_before_it_is_set(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    first = Lease().claim("a")
    store.hold("i", first, expect=Lease())
    second = first.claim("b")
    store.hold("i", second, expect=first)
    for stale in (Lease(), first, first.renew(), second.renew(), second.release()):
        with pytest.raises(Conflict, match="has changed"):
            store.hold("i", stale.claim("c"), expect=stale)
    assert store.lease("i") == second


def test_of_racing_threads_one_takes_a_lease(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    dead = Lease().claim("dead")
    store.hold("i", dead, expect=Lease())
    taken = race(8, lambda i: store.hold("i", dead.claim(f"o{i}"), expect=dead))
    assert taken.count(None) == 1
    assert sum(isinstance(t, Conflict) for t in taken) == 7
    assert store.lease("i").owner == f"o{taken.index(None)}"


def test_of_racing_processes_one_takes_a_lease(
    reachable: IndexStore, processes: ProcessPoolExecutor
) -> None:
    reachable.define(definition(), expect=None)
    futures = [
        processes.submit(reachable.hold, "i", Lease().claim(f"o{i}"), expect=Lease())
        for i in range(4)
    ]
    taken = [outcome(f) for f in futures]
    assert taken.count(None) == 1
    assert sum(isinstance(t, Conflict) for t in taken) == 3
    assert reachable.lease("i").owner == f"o{taken.index(None)}"


def test_an_old_token_writes_nothing(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    store.reserve("i", 4)
    old = Lease().claim("a")
    store.hold("i", old, expect=Lease())
    store.write("i", entries([0]), revision=1, token=old.token)
    store.report("i", State("active", 1), token=old.token)
    new = old.claim("b")
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
    store.hold("i", new.release(), expect=new)
    with pytest.raises(Conflict, match="taken over"):
        store.report("i", State("active", 9), token=new.token)


# Ordinals


def test_an_index_has_a_size_that_grows(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    empty = store.size("i")
    store.reserve("i", 100)
    store.write("i", entries(range(100), bounds(range(100))), revision=1)
    size = store.size("i")
    # A store need not tell.
    assert (empty, size) == (None, None) or (empty or 0) + 1_000 < (size or 0) < 1_000_000


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
    ordinals = fill(store, bounds([1] * 1_200))
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
    fill(store, bounds([1, 2, 3]))
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
    assert store.catalogue("i").files["ordinal"].to_pylist() in ([0], [])  # [] where room is freed


def test_an_entry_is_created_once(store: IndexStore) -> None:
    fill(store, bounds([1, 2]))
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
    fill(store, bounds([1, 2, 3], [True, False, None]))
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
    fill(store, bounds([1, 2, 3]))
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
    assert (len(nothing.files), len(nothing.removed)) == (0, 0)
    assert later.after(nothing).below == first.after(later).below == 6
    assert nothing.generation == later.generation
    with pytest.raises(StoreError, match="does not remember"):
        store.catalogue("i", since=later.generation + 1)


def test_what_changes_nothing_makes_no_generation(store: IndexStore) -> None:
    fill(store, bounds([1, 2]))
    generation = store.catalogue("i").generation
    store.write("i", entries([0, 1], bounds([8, 9])), revision=1)
    store.remove("i", pa.array([7], INTS))
    store.remove("i", pa.array([], INTS))
    assert store.catalogue("i").generation == generation


def test_a_catalogue_has_no_terms(store: IndexStore) -> None:
    fill(store, {"s2_known": [True], "s2_values": [["a"]]})
    with pytest.raises(StoreError, match="SCALAR"):
        store.catalogue("i", fields=["s2_values"])


def test_a_catalogue_has_no_bytes(store: IndexStore) -> None:
    fill(store, filters([b"a"], [1]))
    assert store.catalogue("i", fields=["s3_layout"]).files["s3_layout"].to_pylist() == [1]
    with pytest.raises(StoreError, match="SCALAR"):
        store.catalogue("i", fields=["s3_filter"])
