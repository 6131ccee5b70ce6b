"""What a store holds is data: whatever stands there, a definition or one with a fault."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import DefinitionError, StoreError
from skipping.model.decision import MOST_DECISIONS, Action, Decision
from skipping.model.definition import Definition, IndexedColumn, State, TableId
from skipping.model.lease import Lease

DEFINITION = Definition(
    "7d4d",
    TableId("delta", "id", "file:/t"),
    "spark_catalog.default.t",
    (
        IndexedColumn(1, "a", "col-1", "bigint", "MIN_MAX"),
        IndexedColumn(2, "s", "col-2", "string", "VALUE_LIST", (("limit", 5),)),
    ),
    "a > 1",
    (("auto_refresh", "true"),),
)
STORED = DEFINITION.to_json()
FIRST = json.loads(STORED)["columns"][0]


def change(**parts: Any) -> str:
    return json.dumps({**json.loads(STORED), **parts})


def column(**parts: Any) -> str:
    stored = json.loads(STORED)
    stored["columns"][0].update(parts)
    return json.dumps(stored)


def test_what_was_written_comes_back() -> None:
    assert Definition.from_json(STORED) == DEFINITION
    assert Definition.read(STORED, "7d4d") == DEFINITION
    assert Definition.read(STORED, "7d4d").fault is None


PARTS = (("a", "col-1"), ("s", "col-2"))
COMPOSITE = IndexedColumn(
    3,
    "(a, s)",
    'tuple:["col-1", "col-2"]',
    "tuple<bigint, string>",
    "VALUE_LIST",
    parts=PARTS,
)


def test_definition_with_a_composite_comes_back() -> None:
    composed = replace(DEFINITION, columns=(*DEFINITION.columns, COMPOSITE))
    assert Definition.from_json(composed.to_json()) == composed


def decision(number: int = 1, *, action: Action = "add", identity: str = "col-1") -> Decision:
    return Decision(
        day=date(2026, 3, 1),
        action=action,
        identity=identity,
        column="a",
        kind="MIN_MAX",
        bytes=number,
        files=5,
        benefit=2.5,
        cost=number / 30,
        reason="because",
    )


def test_decisions_come_back_and_the_oldest_are_forgotten() -> None:
    automatic = replace(DEFINITION, options=(("automatic", "true"),))
    decided = automatic.decide([decision()])
    assert Definition.from_json(decided.to_json()) == decided
    assert decided.automatic_columns == {("col-1", "MIN_MAX"): decision()}
    for number in range(2 * MOST_DECISIONS):
        decided = decided.decide([decision(number, action="drop", identity="gone")])
    # The one that added a column stays as long as the column does.
    assert decided.decisions[0] == decision()
    assert [each.bytes for each in decided.decisions[1:]] == list(range(30, 60))
    assert replace(decided, options=()).automatic_columns == {}
    dropped = decided.decide([decision(action="drop")])
    assert dropped.automatic_columns == {}
    assert Definition.from_json(change()).decisions == ()


@pytest.mark.parametrize(
    "part",
    [
        {"action": "erase"},
        {"day": "soon"},
        {"bytes": -1},
        {"bytes": True},
        {"benefit": "2"},
        {"cost": 1e300},
        {"reason": "a\x1b[2J"},
        {"identity": None},
        {"column": "a" * 5_000},
    ],
)
def test_a_forged_decision_is_left_out(part: dict[str, Any]) -> None:
    forged = change(decisions=[{**decision().describe(), **part}, decision().describe(), 1])
    assert Definition.from_json(forged).decisions == (decision(),)
    assert Definition.read(change(decisions={}), "7d4d").fault is not None
    many = [decision().describe()] * 3_000
    assert Definition.read(change(decisions=many), "7d4d").fault is not None


@pytest.mark.parametrize("older", [1, 2, 3])
def test_definition_of_an_older_format_names_the_command_that_rebuilds_it(older: int) -> None:
    found = Definition.read(change(format=older), "7d4d")
    assert found.fault == (
        f"the definition of the index on spark_catalog.default.t has format {older}, but this "
        "release reads format 4: run DROP SKIPPING INDEX ON spark_catalog.default.t, then CREATE "
        "SKIPPING INDEX again"
    )
    assert not found.enabled


@pytest.mark.parametrize(
    "part",
    [
        {"parts": PARTS[:1]},
        {"parts": PARTS[::-1]},
        {"parts": ()},
        {"parts": (PARTS[0], PARTS[0])},
        {"type": "tuple<bigint>"},
        {"type": "binary"},
        {"identity": "col-1"},
        {"parts": (("a", "col-1"), ("s\x1b", "col-2"))},
    ],
)
def test_a_composite_is_of_the_columns_it_says(part: dict[str, Any]) -> None:
    wrong = replace(DEFINITION, columns=(replace(COMPOSITE, **part),))
    with pytest.raises(StoreError, match=r"does not match its parts|a name of the table, a column"):
        Definition.from_json(wrong.to_json())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1", "is not a JSON object: '1'"),
        ("{}", "'format'"),
        ("x" * ((1 << 20) + 1), "1,048,577 characters"),
        (change(format=5), "format 5, but this release reads format 4: upgrade, or run DROP"),
        (change(format="1"), "format 1, but this release"),
        (
            change(where="reflect('java.lang.System', 'exit') IS NULL"),
            "reflect is a function",
        ),
        (change(where=["a"]), "the store contains an invalid"),
        (change(name=""), "a name of the table, a column"),
        (change(name="a\x1b[2Jb"), "control characters"),
        (change(name="\u202etxt"), "control characters"),
        (change(name="x" * 5_000), "a name of the table, a column"),
        (change(table={"format": "delta"}), "the store contains an invalid"),
        (change(table={"format": "delta", "id": 1, "root": ""}), "a name of the table, a column"),
        (change(columns=[1]), "the store contains an invalid"),
        (change(columns=None), "the store contains an invalid"),
        (change(options=[["a", {"b": 1}]]), "is not a parameter"),
        (change(enabled="false"), "must be true or false"),
        (change(numbers=-1), "-1"),
        (column(number=2), "two columns have the same number"),
        (column(number="1"), "invalid number"),
        (column(number=True), "invalid number"),
        (column(identity=7), "a name of the table, a column"),
        (column(kind="os:system"), "invalid number or index type"),
        (column(surprise=1), "the store contains an invalid"),
        (column(params=[["limit", [[[]]]]]), "is not a parameter"),
        (
            change(columns=[{**FIRST, "number": n} for n in range(1, 2_002)]),
            "at most 2,000 columns",
        ),
    ],
)
def test_what_cannot_be_trusted_has_a_fault(text: str, fault: str) -> None:
    found = Definition.read(text, "7d4d")
    assert fault in (found.fault or "")
    assert found.index == "7d4d"
    assert not found.enabled
    assert found.columns == ()
    assert found.fault.isprintable()
    with pytest.raises(StoreError):
        Definition.from_json(text)


def test_a_definition_in_the_place_of_another_has_a_fault() -> None:
    assert "belongs to another index: 7d4d" in (Definition.read(STORED, "8e5e").fault or "")


def test_one_with_a_fault_can_be_written_as_dropped() -> None:
    found = Definition.read(change(format=3), "7d4d")
    assert (found.name, found.table) == (DEFINITION.name, DEFINITION.table)
    again = Definition.read(found.to_json(), "7d4d")
    assert again.fault is None


@given(st.data())
def test_any_mutation_is_a_definition_or_has_a_fault(data: st.DataObject) -> None:
    stored = json.loads(STORED)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(stored)
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    )
    for node, key in data.draw(st.lists(st.sampled_from(places), max_size=3)):
        try:
            node[key] = data.draw(json_values)
        except (IndexError, KeyError):  # of a part that went
            continue
    text = json.dumps(stored)
    cut = data.draw(st.integers(0, len(text)))
    for each in (text, text[:cut]):
        found = Definition.read(each, "7d4d")
        if found.fault is None:
            assert Definition.from_json(found.to_json()) == found
            found.require_sound()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "[" * 100_000,
        '{"status": "odd"}',
        '{"covered": "1"}',
        '{"error": [1]}',
        '{"at": "x"}',
    ],
)
def test_a_state_that_is_none(text: str) -> None:
    with pytest.raises(StoreError):
        State.from_json(text)


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, '{"token": "1"}', '{"beat": null}', '{"owner": {}}', '{"seen": []}']
)
def test_a_lease_that_is_none(text: str) -> None:
    with pytest.raises(StoreError):
        Lease.from_json(text)


def test_what_a_state_says_moves_no_cursor() -> None:
    assert State.from_json(State(error="a\x1b[2J\nb").to_json()).error == "a?[2J\nb"


def test_what_would_be_refused_is_not_written() -> None:
    bad = IndexedColumn(1, "a\x07", "a", "bigint", "MIN_MAX")
    with pytest.raises(DefinitionError, match="control characters"):
        Definition("i", TableId("delta", "", ""), "t", (bad,)).require_sound()
