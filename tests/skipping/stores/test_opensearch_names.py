"""Names of columns in a mapping: what a search or a dashboard finds without numbers of fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.stores.opensearch.names import name_fields
from skipping.stores.opensearch.store import OpenSearchStore
from tests.skipping.stores.cluster import at, make
from tests.skipping.stores.samples import bounds, entries

pytestmark = [pytest.mark.usefixtures("delete_indexes"), pytest.mark.nightly]


def column(number: int, name: str, kind: str = "MIN_MAX", **more: Any) -> IndexedColumn:
    return IndexedColumn(number, name, f"col-{name}", "bigint", kind, **more)


def name_columns(columns: Sequence[IndexedColumn], fields: dict[str, str]) -> dict[str, str]:
    """Each alias by its full name."""
    found: dict[str, str] = {}

    def walk(at: str, properties: Any) -> None:
        for name, value in properties.items():
            if value.get("type") == "alias":
                assert f"{at}{name}" not in found
                found[f"{at}{name}"] = value["path"]
            else:
                walk(f"{at}{name}.", value["properties"])

    definition = Definition("i", TableId("delta", "t", "file:/t"), "t", tuple(columns))
    for each in name_fields(definition, fields):
        walk("", each)
    return found


def fields_of(*numbers: int) -> dict[str, str]:
    return {f"s{n}_{part}": "int64" for n in numbers for part in ("known", "low", "high", "nulls")}


LISTED = {"s2_known": "bool", "s2_values": "list<string>", "s2_nulls": "int64"}


NAMES: dict[str, tuple[list[IndexedColumn], dict[str, str], str]] = {
    "two kinds of one column": (
        [column(1, "x"), column(2, "x", "VALUE_LIST")], {**fields_of(1), **LISTED},
        "x.min=s1_low x.max=s1_high x.values=terms.s2_values"),
    "a nested field, and a name with a dot": (
        [column(1, "a.b"), column(3, "`a.b`")], fields_of(1, 3),
        "a.b.min=s1_low a.b.max=s1_high a_b.min=s3_low a_b.max=s3_high"),
    "names that would be one": (
        [column(1, "a_b"), column(3, "`a.b`"), column(4, "`a b`")], fields_of(1, 3, 4),
        "a_b.min=s1_low a_b.max=s1_high a_b_3.min=s3_low a_b_3.max=s3_high a_b_4.min=s4_low "
        "a_b_4.max=s4_high"),
    "an alias here is an object there": (
        [column(1, "a"), column(3, "a.min"), column(4, "a.min.max")], fields_of(1, 3, 4),
        "a.min=s1_low a.max=s1_high a.min_3.min=s3_low a.min_3.max=s3_high"),
    "sketched anew": (
        [column(1, "x"), column(3, "x")], fields_of(1, 3), "x.min=s3_low x.max=s3_high"),
    "other characters": (
        [column(1, "`größe (m²)`"), column(3, "`*`"), column(4, "`..`")], fields_of(1, 3, 4),
        "größe_m².min=s1_low größe_m².max=s1_high _.min=s3_low _.max=s3_high __4.min=s4_low "
        "__4.max=s4_high"),
    "a composite": (
        [column(1, "(a, b)", parts=(("a", "1"), ("b", "2")))], fields_of(1),
        "a_b.min=s1_low a_b.max=s1_high"),
    "too deep": ([column(1, ".".join("abcdefghijklmnopq"))], fields_of(1), ""),
    "not built": ([column(9, "x")], {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMES)
def test_names(case: str) -> None:
    columns, fields, expected = NAMES[case]
    named = dict(pair.split("=") for pair in expected.split())
    assert name_columns(columns, fields) == {f"columns.{n}": field for n, field in named.items()}


def test_names_leave_room_for_columns_to_come() -> None:
    columns = [column(n, f"c{n}") for n in range(1, 200)]
    few = name_columns(columns[:50], fields_of(*range(1, 51)))
    assert len(few) == 100
    many = name_columns(columns, fields_of(*range(1, 200)))
    assert len(many) == 0
    some = name_columns(columns[:90], fields_of(*range(1, 91)))
    assert 0 < len(some) < 180
    assert "columns.c1.min" in some


def search_ordinals(store: OpenSearchStore, query: Any) -> list[int]:
    """Ordinals of the documents that a search selects, as somebody without us would say it."""
    name = store._registry.read("i").entries
    body = {"query": query, "sort": ["ordinal"], "_source": False, "size": 100}
    hits = store._client.call("POST", f"/{name}/_search", body)["hits"]["hits"]
    return [hit["sort"][0] for hit in hits]


def define_columns(*columns: IndexedColumn) -> Definition:
    return Definition("i", TableId("delta", "t", "file:/t"), "default.t", columns)


def test_a_search_by_names(opensearch: str) -> None:
    store = make(opensearch, files=0)
    columns = column(1, "price"), column(2, "price", "VALUE_LIST"), column(4, "seller.name")
    assert store.define(define_columns(*columns), expect=1) == 2
    values = {
        **bounds([10, 20, 30]),
        "s2_known": [True] * 3,
        "s2_values": [["a"], ["b", "c"], ["c"]],
        "s4_known": pa.array([True] * 3),
        "s4_low": pa.array(["x", "y", "z"]),
        "s4_high": pa.array(["x", "y", "z"]),
    }
    store.write("i", entries(list(store.reserve("i", 3)), values), revision=2)
    assert search_ordinals(store, {"range": {"columns.price.min": {"gte": 20}}}) == [1, 2]
    assert search_ordinals(store, {"term": {"columns.price.values": "c"}}) == [1, 2]
    assert search_ordinals(store, {"query_string": {"query": "columns.seller.name.max:y"}}) == [1]
    assert search_ordinals(store, {"exists": {"field": "columns.price.max"}}) == [0, 1, 2]
    name = store._registry.read("i").entries
    counted = {"size": 0, "aggs": {"v": {"terms": {"field": "columns.price.values"}}}}
    buckets = store._client.call("POST", f"/{name}/_search", counted)["aggregations"]["v"]
    assert {b["key"]: b["doc_count"] for b in buckets["buckets"]} == {"a": 1, "b": 1, "c": 2}

    # Names follow the definition, whoever writes next.
    renamed = replace(columns[0], name="amount"), replace(columns[1], name="amount"), columns[2]
    assert store.define(define_columns(*renamed), expect=2) == 3
    assert search_ordinals(store, {"term": {"columns.amount.values": "c"}}) == [1, 2]
    assert search_ordinals(store, {"range": {"columns.amount.min": {"lt": 20}}}) == [0]
    # A column of a name that was another's: it is what the name means now.
    again = replace(columns[0], number=5, identity="col-new")
    assert store.define(define_columns(*renamed, again), expect=3) == 4
    more = {"s5_known": pa.array([True]), "s5_low": pa.array([7]), "s5_high": pa.array([8])}
    store.write("i", entries(list(store.reserve("i", 1)), more), revision=4)
    assert search_ordinals(store, {"term": {"columns.price.max": 8}}) == [3]
    assert search_ordinals(store, {"term": {"columns.amount.max": 20}}) == [1]
    assert search_ordinals(store, {"term": {"columns.price.min": 10}}) == []


@pytest.mark.parametrize(
    "name",
    [
        *("`a.b`", "`.a`", "`a.`", "`*`", "` `", "`a b`", '`a"b`', "`_id`", "`größe`", "`日本`"),
        "a.`b.c`",
    ],
)
def test_a_server_takes_every_name(opensearch: str, name: str) -> None:
    store = make(opensearch, files=0)
    store.define(define_columns(column(1, name)), expect=1)
    store.write("i", entries(list(store.reserve("i", 2)), bounds([1, 2])), revision=2)
    (alias,) = (a for a in name_columns([column(1, name)], fields_of(1)) if a.endswith(".min"))
    assert search_ordinals(store, {"term": {alias: 2}}) == [1]


def test_what_cannot_be_named_is_in_nobodys_way(opensearch: str) -> None:
    """An alias that was there before cannot become an object: the others get their names."""
    store = make(opensearch, files=0)
    store.define(define_columns(column(1, "a")), expect=1)
    store.write("i", entries(list(store.reserve("i", 2)), bounds([1, 2])), revision=2)
    store.define(define_columns(column(6, "a.min"), column(7, "b")), expect=2)
    more = {f"s{n}_{part}": pa.array([n]) for n in (6, 7) for part in ("low", "high")}
    flags = {f"s{n}_known": pa.array([True]) for n in (6, 7)}
    store.write("i", entries(list(store.reserve("i", 1)), {**flags, **more}), revision=3)
    assert search_ordinals(store, {"term": {"columns.b.min": 7}}) == [2]
    assert store.catalogue("i").files.num_rows == 3


def test_an_index_of_an_earlier_release_gets_names(opensearch: str) -> None:
    store = make(opensearch, files=0)
    store.define(define_columns(column(1, "x")), expect=1)
    store._named = Everything()  # type: ignore[assignment]
    store.write("i", entries(list(store.reserve("i", 2)), bounds([1, 2])), revision=2)
    assert search_ordinals(store, {"term": {"columns.x.min": 2}}) == []
    later = at(store, opensearch)
    later.write("i", entries(list(later.reserve("i", 1)), bounds([2])), revision=2)
    assert search_ordinals(store, {"term": {"columns.x.min": 2}}) == [1, 2]


class Everything(set[Any]):
    """As if all names were there."""

    def __contains__(self, item: object) -> bool:
        return True
