"""What others put into indices of a store, or into answers: it costs their own table at most."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import StoreError
from skipping.lookup.lookup import Lookup
from skipping.model.definition import TableId
from skipping.stores import IDENTITY, slices
from skipping.stores.opensearch import limits
from skipping.stores.opensearch.client import Client
from skipping.stores.opensearch.packed_entries import PAGE, unpack_pages
from skipping.stores.opensearch.scripts import bitmap_words
from skipping.stores.opensearch.store import OpenSearchStore
from tests.skipping.stores.cluster import answers, at, make, ordinals
from tests.skipping.stores.proxy import Answer, Front, Request, alter, refuse
from tests.skipping.stores.small import DEFINITION, EXPECTED, bit, bits_of, entries

pytestmark = [pytest.mark.usefixtures("delete_indexes"), pytest.mark.nightly]

OTHER = replace(DEFINITION, index="j", table=TableId("delta", "u", "file:/u"), name="u")


def bomb(size: int, *, batches: int = 1) -> str:
    """A page of few bytes that unpacks to so many, again and again."""
    columns = {
        field.name: pa.array(["\0" * size]) if field.name == "path" else pa.nulls(1, field.type)
        for field in IDENTITY
    }
    table, sink = pa.table(columns, schema=IDENTITY), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, IDENTITY, options=options) as writer:
        for _ in range(batches):
            writer.write_table(table)
    return b64encode(sink.getvalue()).decode()


def peak(use: Callable[[], object]) -> tuple[int, int]:
    """Bytes of Arrow and of Python that it takes at most."""
    pool = pa.proxy_memory_pool(before := pa.default_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        use()
        _, python = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    return pool.max_memory(), python


def page_of(store: OpenSearchStore) -> tuple[str, Any]:
    """The path and the source of a page."""
    name = store._registry.read("i").entries
    body = {"query": {"exists": {"field": "page_number"}}, "size": 1}
    hit = store._client.call("POST", f"/{name}/_search", body)["hits"]["hits"][0]
    return f"/{name}/_doc/{hit['_id']}", hit["_source"]


# Pages


@pytest.mark.parametrize("batches", [1, 40])
def test_a_page_that_unpacks_to_much_is_passed_over(
    opensearch: str, batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = make(opensearch)
    path, source = page_of(store)
    size = limits.PAGE + 1 if batches == 1 else limits.PAGE // 32
    forged = bomb(size, batches=batches)
    assert len(forged) < 100_000
    store._client.call("PUT", path, {**source, "page": forged}, refresh="true")
    found: list[int] = []
    arrow, python = peak(lambda: found.extend(ordinals(store)))
    assert found == list(range(10))  # out of the documents
    assert "unpacks to more bytes than allowed" in caplog.text
    assert max(arrow, python) < 16 << 20


def test_pages_with_more_rows_than_documents_are_passed_over(
    opensearch: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that are all alike take next to nothing: four pages of 3 KB took 1 GB and 17 s."""
    store = make(opensearch)
    path, source = page_of(store)
    n = 400_000
    rows = [pa.array([0] * n), pa.array([""] * n), *[pa.array([0] * n)] * 2, pa.array([""] * n)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, IDENTITY, options=options) as writer:
        writer.write_batch(pa.record_batch(rows, schema=IDENTITY))
    forged = {**source, "page": b64encode(sink.getvalue()).decode()}
    assert len(forged["page"]) < 8_000
    for number in range(1, 5):
        at_number = path.replace("/p0.", f"/p{number}.")
        store._client.call("PUT", at_number, {**forged, "page_number": number}, refresh="true")
    found: list[int] = []
    arrow, python = peak(lambda: found.extend(ordinals(store)))
    assert found == list(range(10))  # out of the documents
    assert "more rows than there are documents" in caplog.text
    assert max(arrow, python) < 32 << 20


def test_pages_are_used_after_removals_and_later_sketches(
    opensearch: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = make(opensearch)
    store.remove("i", pa.array(range(8)))
    made = entries(range(8, 10))
    later = [n.replace("s1_", "s5_").replace("s2_", "s6_") for n in made.schema.names]
    made = made.rename_columns(later)
    store.write("i", made, revision=1)
    kept = store._entries(store._registry.read("i"))
    packed = kept._read_pages(["s1_low", "s5_low"])
    assert packed is not None
    assert packed["ordinal"].to_pylist() == [8, 9]
    assert packed["s5_low"].to_pylist() == packed["s1_low"].to_pylist() == [2, 0]
    assert not caplog.text


def test_pages_that_together_are_too_much_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    page = {PAGE: bomb(1 << 20)}
    assert len(unpack_pages([page] * 3, [], [], {}, most=3)) == 3
    monkeypatch.setattr(limits, "TABLE", 2 << 20)
    with pytest.raises(StoreError, match="more than 2 MB, the limit of a read"):
        unpack_pages([page] * 3, [], [], {}, most=3)


def test_documents_that_together_are_too_much_are_an_error(
    opensearch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(opensearch, files=200)
    monkeypatch.setattr(limits, "TABLE", 1_000)
    lookup = Lookup(store, ttl=0)
    with pytest.raises(StoreError, match="the limit of a read"):
        lookup.entries.get("i", timeout=30)
    store.define(OTHER, expect=None)  # no matter of others
    assert lookup.entries.get("j", timeout=30).entries.files.num_rows == 0


def test_lists_where_values_should_be_are_not_kept(
    opensearch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents of a table are limited by their bytes, of which such numbers take nine times."""
    store = make(opensearch)
    record = store._registry.read("i")
    body = {"ordinal": 0, "generation": record.generation, "identity": "x", "path": "x", "size": 1}
    for n in range(8):
        forged = {**body, "ordinal": 20 + n, "stamp": [300] * 500_000}
        store._client.call("PUT", f"/{record.entries}/_doc/x{n}", forged, refresh="true")
    pages = Client.pages
    monkeypatch.setattr(Client, "pages", lambda *a, **more: pages(*a, **{**more, "size": 1}))

    def read() -> None:
        with pytest.raises(StoreError, match="has a list where a value should be"):
            store.catalogue("i")

    assert max(peak(read)) < 60 << 20


# Bitmaps


def test_a_bitmap_has_no_more_words_than_were_asked_for(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    assert answers(store) == EXPECTED
    between.rule = alter(
        lambda a: a["aggregations"]["tests"]["buckets"]["0"]["words"].update(value=[-1] * 1_000_000)
    )
    with pytest.raises(StoreError, match="no bitmap: it has 1000000 words, not 1"):
        answers(store)


def test_words_of_a_bitmap() -> None:
    assert list(bitmap_words([1, -(2**63)], 2)) == [0, 127]
    assert not bitmap_words(None, 2)
    assert not bitmap_words([], 2)
    with pytest.raises(StoreError, match="3 words, not 2"):
        bitmap_words([0, 0, 0], 2)


def test_one_long_value_of_a_filter_is_not_laid_down(
    opensearch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one file, each bit would take the room of 64."""
    store = make(opensearch, files=0)
    made = bits_of(store.reserve("i", 10))
    at_filter = made.schema.get_field_index("s3_filter")
    values = [bytes(4 << 20), *made["s3_filter"].to_pylist()[1:]]
    made = made.set_column(at_filter, "s3_filter", pa.array(values, pa.large_binary()))
    store.write("i", made, revision=1)
    monkeypatch.setattr(slices, "HEAVY", 1)  # so that it is read
    kept = at(store, opensearch, kept=64 << 20)
    found: list[int] = []
    _, python = peak(lambda: found.extend(*kept.find_prunable("i", [bit(0)], below=10, timeout=60)))
    assert python < 64 << 20
    assert found == []  # nothing is known of any


# Answers


def test_values_of_an_answer_are_counted(between: Front, opensearch: str) -> None:
    store = at(make(opensearch), between.address)
    text = [1] * (limits.VALUES + 10)
    between.rule = refuse(Answer(200, {"hits": text}))
    with pytest.raises(StoreError, match="more than 16,000,000 values"):
        answers(store)


# The catalogue


def bulk(store: OpenSearchStore, documents: Iterator[tuple[str, Any]], *, each: int = 10) -> None:
    name = f"{store._access.prefix}catalogue"
    lines = [(json.dumps({"create": {"_id": id}}), json.dumps(body)) for id, body in documents]
    for start in range(0, len(lines), each):
        text = "".join(f"{a}\n{b}\n" for a, b in lines[start : start + each])
        store._client.call("POST", f"/{name}/_bulk", text)
    store._client.call("POST", f"/{name}/_refresh")


@pytest.mark.parametrize("key", ["q{:07d}", "{:064x}"])
def test_many_foreign_documents_stop_no_table(
    opensearch: str, between: Front, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESPONSE", 8 << 20)
    monkeypatch.setattr(limits, "DOCUMENTS", 1 << 20)
    made = make(opensearch)
    made.define(OTHER, expect=None)
    body = {"format": 1, "indexes": ["i", "j"], "heads": {"x": {"definition": "d" * 200_000}}}
    bulk(made, ((key.format(n), {**body, "key": key.format(n)}) for n in range(50)))
    store = at(made, between.address)
    sizes: list[int] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        answer = to_node(request.body)
        sizes.append(len(json.dumps(answer.body)))
        return answer

    between.rule = rule
    found = store.definitions()
    assert {each.value.index for each in found if each.value.fault is None} == {"i", "j"}
    assert sum(each.value.fault is not None for each in found) == 50
    # Nothing keeps what they hold.
    assert all(error.__traceback__ is None for _, error in store._registry._foreign.values())
    # They are not read again, and the next to ask is served as if they were not there.
    sizes.clear()
    assert len(store.definitions()) == 52
    assert sum(sizes) < 30_000
    assert answers(store) == EXPECTED
    fresh = at(made, opensearch)  # one that never listed anything
    assert answers(fresh) == EXPECTED


def test_index_of_a_table_is_found_among_50_000_foreign_documents(
    opensearch: str, between: Front
) -> None:
    made = make(opensearch)
    body = {"format": 1, "indexes": [], "heads": {}}
    tiny = ((f"{n:064x}", {**body, "key": f"{n:064x}"}) for n in range(50_000))
    bulk(made, tiny, each=5_000)
    store = at(made, between.address)
    paths: list[str] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        paths.append(request.path)
        return to_node(request.body)

    between.rule = rule
    assert Lookup(store, ttl=0).definition(DEFINITION.table, timeout=5) == DEFINITION
    assert [path.split("/")[2] for path in paths] == ["_doc"]


def test_a_foreign_document_that_changed_is_read_again(opensearch: str) -> None:
    store = make(opensearch)
    name, key = f"{store._access.prefix}catalogue", store._registry._keys["i"]
    sound = store._client.document(name, key)["_source"]
    store._client.call("PUT", f"/{name}/_doc/{key}", {**sound, "heads": {}}, refresh="true")
    assert store.definitions() == ()
    broken = {**sound, "heads": {"i": {}}}
    store._client.call("PUT", f"/{name}/_doc/{key}", broken, refresh="true")
    for _ in range(2):
        (found,) = store.definitions()
        assert found.value.fault is not None
    store._client.call("PUT", f"/{name}/_doc/{key}", sound, refresh="true")
    (found,) = store.definitions()
    assert found.value == DEFINITION
    store._client.call("PUT", f"/{name}/_doc/{key}", broken, refresh="true")
    assert store.definitions()[0].value.fault is not None
    store._client.call("DELETE", f"/{name}/_doc/{key}", refresh="true")
    assert store.definitions() == ()


def test_a_document_that_is_too_large_stops_its_own_table(
    opensearch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(opensearch)
    store.define(OTHER, expect=None)
    name, key = f"{store._access.prefix}catalogue", store._registry._keys["i"]
    sound = store._client.document(name, key)["_source"]
    sound["heads"]["i"]["state"] = "x" * 3_000_000
    store._client.call("PUT", f"/{name}/_doc/{key}", sound, refresh="true")
    monkeypatch.setattr(limits, "DOCUMENTS", 1 << 20)
    sane, faulty = sorted(store.definitions(), key=lambda each: each.value.fault is not None)
    assert sane.value == OTHER
    assert "too large for a document of this store" in str(faulty.value.fault)
    with pytest.raises(StoreError, match="more than 1 MB"):
        answers(store)
