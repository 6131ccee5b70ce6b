"""Whose answer it is, pages of documents, values, secrets and certificates."""

from __future__ import annotations

import multiprocessing
import random
import ssl
import subprocess
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.index_predicate import (
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    Overlaps,
    Test,
)
from skipping.stores import IDENTITY, Catalogue
from skipping.stores.copy import CopyResult, copy
from skipping.stores.open import open_store
from skipping.stores.opensearch import packed_entries
from skipping.stores.opensearch.credentials import PASSWORD, STORE, USER, Access
from skipping.stores.opensearch.index import Entries
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.cluster import answers, at, make, ordinals
from tests.skipping.stores.proxy import Answer, Front, Request, alter, front, refuse
from tests.skipping.stores.small import DEFINITION, EXPECTED, TESTS, entries
from tests.skipping.stores.test_copying import build_store, rows

pytestmark = [pytest.mark.usefixtures("delete_indexes"), pytest.mark.nightly]

# Forked


@pytest.mark.parametrize("questions", [200, pytest.param(2_000, marks=pytest.mark.soak)])
def test_forked_children_get_their_own_answers(opensearch: str, questions: int) -> None:
    n = 64
    store = make(opensearch, files=n)

    def wrong(seed: int, questions: int = questions) -> int:
        draw = random.Random(seed)
        bad = 0
        for _ in range(questions):
            x = draw.randrange(n)
            (found,) = store.find_prunable(
                "i", [Contains("values", pa.array([f"t{x}"]), "s2")], below=n, timeout=30
            )
            bad += set(range(n)) - set(found) != {o for o in range(x - 2, x + 1) if o >= 0}
        return bad

    assert wrong(0, 5) == 0  # now there is a connection
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    children = [
        context.Process(target=lambda seed=seed: told.put(wrong(seed))) for seed in range(4)
    ]
    for child in children:
        child.start()
    assert wrong(9) == 0
    for child in children:
        child.join()
    assert [told.get() for _ in children if not told.empty()] == [0] * 4


def test_every_search_carries_its_number(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address, kept=1 << 20)
    kept: list[Answer] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        """The answer to the search before, as on a line that two share."""
        answer = to_node(request.body)
        if "_search" not in request.path:
            return answer
        kept.append(answer)
        return kept[-2] if len(kept) > 1 else answer

    store.definitions()
    between.rule = rule
    for use in (store.definitions, lambda: answers(store), lambda: store.catalogue("i")):
        kept[:] = [Answer(200, {**to_any(store), "_shards": {}})]
        with pytest.raises(StoreError, match="another request"):
            use()


def to_any(store: OpenSearchStore) -> Any:
    """A whole answer of another search."""
    direct = f"/{store._access.prefix}catalogue/_search"
    body = {"aggs": {"asked": {"max": {"field": "asked"}, "meta": {"number": "another"}}}}
    return store._client.call("POST", direct, body) | {"timed_out": False}


def test_a_document_is_known_by_its_id(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    answers(store)
    between.rule = alter(lambda answer: answer.update(_id="0" * 64), b"_doc/")
    with pytest.raises(StoreError, match="another request"):
        answers(store)


def test_a_catalogue_older_than_its_entries(opensearch: str) -> None:
    """As after a restore of one of the two: numbers would be given twice."""
    store = make(opensearch)
    path = f"/{store._access.prefix}catalogue/_doc/{store._registry._keys['i']}"
    old = store._client.call("GET", path)["_source"]
    store.write("i", entries(store.reserve("i", 5)), revision=1)
    store._client.call("PUT", path, old, refresh="true")
    reserved = store.reserve("i", 5)
    assert reserved == range(10, 15)
    again = entries(reserved).set_column(1, "path", pa.array([f"g{o}" for o in reserved]))
    with pytest.raises(StoreError, match="older than"):
        store.write("i", again, revision=1)
    assert ordinals(store) == list(range(10))
    # What was committed under that number is aborted now, so whoever tries again goes on from here.
    store.write("i", again, revision=1)
    found = store.catalogue("i").files["path"].to_pylist()
    assert found == [*(f"f{o}" for o in range(10)), *(f"g{o}" for o in reserved)]
    record = store._registry.read("i")
    counted = {"query": record.visible, "size": 0, "track_total_hits": True}
    answer = store._client.call("POST", f"/{record.entries}/_search", counted)
    assert answer["hits"]["total"]["value"] == 15 + 2  # nothing of the lost write; two pages


# Pages


def test_pages_say_what_documents_say(opensearch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_entries, "_FILES", 4)
    store = make(opensearch, files=0)
    fields = ["s1_known", "s1_low", "s2_known", "s3_raw", "s3_known", "s9_none"]

    def compare_reads() -> pa.Table:
        """By pages, and the same without."""
        kept = store._entries(store._registry.read("i"))
        packed = kept._read_pages(fields)
        assert packed is not None
        whole = store.catalogue("i", fields=fields)
        assert whole.files.equals(packed)
        with monkeypatch.context() as patch:
            patch.setattr(Entries, "_read_pages", lambda *args, **more: None)
            slow = store.catalogue("i", fields=fields)
        assert slow.files.to_pydict() == whole.files.to_pydict()
        assert (slow.files.schema, slow.below) == (whole.files.schema, whole.below)
        return whole.files

    identity = entries(store.reserve("i", 10))
    store.write("i", identity.select(IDENTITY.names), revision=1)
    assert compare_reads()["s1_low"].null_count == 10
    store.write("i", identity.slice(3, 6), revision=1)  # they get sketches
    assert compare_reads()["s1_known"].to_pylist() == [None] * 3 + [True] * 6 + [None]
    raw = pa.array([b"\x00\xff", None, b"y" * 40_000])
    some = entries(store.reserve("i", 3)).append_column("s3_known", pa.array([True] * 3))
    store.write("i", some.append_column("s3_raw", raw), revision=1)
    assert compare_reads()["s3_raw"].to_pylist()[10:] == [b"\x00\xff", None, None]
    assert compare_reads()["s3_known"].to_pylist()[10:] == [True, True, False]
    store.remove("i", pa.array([0, 4, 12]))
    assert compare_reads()["ordinal"].to_pylist() == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    store.remove("i", pa.array(range(13)))
    assert len(compare_reads()) == 0


@pytest.mark.parametrize("damage", ["", "bm8=", None])
def test_without_its_pages_an_index_is_read_all_the_same(
    opensearch: str, damage: str | None
) -> None:
    store = make(opensearch)
    name = store._registry.read("i").entries
    (page,) = store._client.search(name, {"query": {"exists": {"field": "page_number"}}})["hits"][
        "hits"
    ]
    path = f"/{name}/_doc/{page['_id']}"
    if damage is None:
        store._client.call("DELETE", path, refresh="true")
    else:
        store._client.call("PUT", path, {**page["_source"], "page": damage}, refresh="true")
    assert store._entries(store._registry.read("i"))._read_pages([]) is None
    assert ordinals(store) == list(range(10))
    assert answers(store) == EXPECTED


# Values


def test_a_value_too_long_for_a_term_is_unknown(opensearch: str) -> None:
    store = make(opensearch, files=0)
    longest = ["x" * 32_766, "x" * 32_767, "\u00e9" * 16_384]
    table = entries(store.reserve("i", 3)).drop_columns(["s2_values", "s1_low", "s1_high"])
    table = table.append_column("s2_values", pa.array([["a", text] for text in longest]))
    table = table.append_column("s1_low", pa.array(longest))
    raw = pa.array([[b"y" * 16_383], [b"y" * 16_384], [b"y" * 40_000]])
    table = table.append_column("s3_known", pa.array([True] * 3)).append_column("s3_raw", raw)
    store.write("i", table, revision=1)
    asked: list[Test] = [
        Contains("values", pa.array(["b"]), "s2"),
        Contains("values", pa.array(longest), "s2"),
        ContainsOther("values", pa.array(["a"]), "s2"),
        ContainsOther("values", pa.array(["a", *longest]), "s2"),
        ContainsRange("values", longest[0], sketch="s2"),
        ContainsRange("values", "z" * 40_000, sketch="s2"),
        FieldCompare("low", "<", longest[0], "s1"),
        FieldCompare("low", "=", longest[1], "s1"),
        FieldCompare("low", "<", longest[1], "s1"),
        Contains("raw", pa.array([b"z" * 40_000]), "s3"),
        Contains("raw", pa.array([b"y" * 16_383]), "s3"),
    ]
    found = [list(a) for a in store.find_prunable("i", asked, below=9, timeout=30)]
    assert found == [[0], [], [], [0], [], [], [0], [0], [], [0], []]


def test_fields_are_read_ahead(opensearch: str, between: Front) -> None:
    """What a query can answer is answered without one as soon as the fields are there."""
    store = at(make(opensearch), between.address, kept=1 << 20)

    def ask() -> list[int]:
        return list(store.find_prunable("i", TESTS[:1], below=10, timeout=30)[0])

    assert ask() == EXPECTED[0]
    end = time.monotonic() + 30
    while store._fields.get("i", "s1", Catalogue) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    between.seen.clear()
    assert ask() == EXPECTED[0]
    assert [r.method for r in between.seen] == ["GET"]  # the record, whose generation is asked


def test_who_cannot_wait_for_fields_is_answered_without_them(
    opensearch: str, between: Front
) -> None:
    store = at(make(opensearch), between.address)
    go = threading.Event()

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        if b"page_number" in request.body:
            go.wait(30)
        return to_node(request.body)

    between.rule = rule
    keys = pa.array(range(2, 5000))
    asked = [*TESTS, Overlaps("low", "high", keys, "s1")]
    try:
        found = [list(a) for a in store.find_prunable("i", asked, below=99, timeout=2)]
        assert found == [*EXPECTED, []]
    finally:
        go.set()
    found = [list(a) for a in store.find_prunable("i", asked, below=99, timeout=30)]
    assert found == [*EXPECTED, EXPECTED[0]]


# Secrets and certificates


def _pair(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def _require_login(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
    # me:s3cr\u20act, as UTF-8
    if request.headers.get("authorization") == "Basic bWU6czNjcuKCrHQ=":
        return to_node(request.body)
    return Answer(401, {"error": {"type": "security_exception"}, "status": 401})


def test_tls_and_passwords(opensearch: str, tmp_path: Path) -> None:
    certificate, key = _pair(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    good = Access(
        prefix=f"faults-{uuid.uuid4().hex[:12]}-",
        user="me",
        password="s3cr\u20act",
        ca=str(certificate),
        certificate=str(certificate),
        key=str(key),
    )
    with front(opensearch, tls=tls) as between:
        between.rule = _require_login
        server = f"https://{between.address}"
        store = OpenSearchStore(server, good)
        store.define(DEFINITION, expect=None)
        assert len(store.definitions()) == 1
        assert "s3cr" not in repr((good, store.location))
        for access, message in (
            (replace(good, password="wr0ng"), "does not accept the user or the password of me"),
            (replace(good, user=None, password=None), "does not accept"),
            (replace(good, ca=None), "not trusted"),
            (replace(good, ca=str(key)), "cannot be used|not trusted"),
            (replace(good, ca="/nowhere.pem"), "cannot be used|not trusted"),
        ):
            with pytest.raises(StoreError, match=message) as raised:
                OpenSearchStore(server, access).definitions()
            assert "s3cr" not in str(raised.value)
            assert "wr0ng" not in str(raised.value)
        with pytest.raises(StoreError, match="cannot be reached"):
            OpenSearchStore(f"http://{between.address}", good).definitions()
    with pytest.raises(StoreError, match=r"not trusted|cannot be reached"):
        OpenSearchStore(f"https://{opensearch}", good).definitions()


def test_forbidden(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    no = Answer(403, {"error": {"type": "security_exception", "reason": "t7"}, "status": 403})
    between.rule = refuse(no)
    with pytest.raises(StoreError, match="does not allow") as raised:
        answers(store)
    assert "t7" not in str(raised.value)


def test_a_store_that_is_named_later_is_told_nothing(
    opensearch: str, between: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(USER, "svc")
    monkeypatch.setenv(PASSWORD, "s3cret")
    between.rule = _require_login
    store = open_store(f"opensearch://{between.address}")
    with pytest.raises(StoreError, match=f"named at start-up, in {STORE}") as raised:
        store.definitions()
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))
    (asked,) = between.seen
    assert "authorization" not in asked.headers


def test_a_copy_there_and_back(opensearch: str, tmp_path: Path) -> None:
    one = SqliteStore(tmp_path / "one.db")
    build_store(one)
    access = Access(prefix=f"copy-{uuid.uuid4().hex[:12]}-")
    there = OpenSearchStore(f"http://{opensearch}", access, kept=0)
    assert copy(one, there) == CopyResult(1, 4)
    back = SqliteStore(tmp_path / "back.db")
    assert copy(there, back) == CopyResult(1, 4)
    assert rows(back) == rows(one)
    assert there.reserve("i", 1).start >= 7
    with pytest.raises(StoreError, match="has indexes already"):
        copy(one, there)
