"""The option `index_settings`, on a real node: shards and replicas, and the same answers."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.index_predicate import Contains, FieldCompare
from skipping.config.options import IndexOptions
from skipping.stores.memory.store import MemoryStore
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from tests.skipping.stores.proxy import Answer, Front, refuse
from tests.skipping.stores.samples import ask, bits, bounds, definition, entries, filters

SHARDS = '{"number_of_shards": 3, "number_of_replicas": 0}'
FILES = 60


@pytest.fixture
def prefix(opensearch: str) -> Iterator[str]:
    prefix = f"{uuid.uuid4().hex[:12]}-"
    yield prefix
    url = f"http://{opensearch}/{prefix}*"
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=60).close()


def make_with(opensearch: str, prefix: str) -> dict[str, Any]:
    """The settings of the one index with entries, as the server has them."""
    with urllib.request.urlopen(f"http://{opensearch}/{prefix}*/_settings", timeout=60) as answer:
        found = json.loads(answer.read())
    (name,) = [name for name in found if not name.endswith("catalogue")]
    settings: dict[str, Any] = found[name]["settings"]["index"]
    return settings


def test_the_index_has_them_and_answers_alike(opensearch: str, prefix: str) -> None:
    chosen = IndexOptions.of({"index_settings": SHARDS})
    stores = [OpenSearchStore(f"http://{opensearch}", Access(prefix=prefix)), MemoryStore()]
    numbers = range(FILES)
    values = {
        **bounds([n % 20 for n in numbers]),
        "s2_known": [True] * FILES,
        "s2_values": [[f"v{n % 7}", f"w{n}"] for n in numbers],
        **filters([bytes([1 << (n % 8), 0]) for n in numbers], [1] * FILES),
    }
    for store in stores:
        store.define(definition(options=chosen.pairs()), expect=None)
        store.reserve("i", FILES)
        for start in range(0, FILES, 20):
            part = {name: column[start : start + 20] for name, column in values.items()}
            store.write("i", entries(range(start, start + 20), part), revision=1)
        store.remove("i", pa.array([3, 33, 53]))
    cluster, memory = stores
    settings = make_with(opensearch, prefix)
    assert (settings["number_of_shards"], settings["number_of_replicas"]) == ("3", "0")
    assert "auto_expand_replicas" not in settings

    tests = [
        FieldCompare("low", "<=", 5, "s1"),
        Contains("values", pa.array(["v3", "w11"]), "s2"),
        bits([[0, 1], [2, 3]]),
    ]
    for test in tests:
        assert ask(cluster, test) == ask(memory, test)
        assert ask(cluster, test, below=30) == ask(memory, test, below=30)
    fresh = OpenSearchStore(f"http://{opensearch}", Access(prefix=prefix))
    for store in (cluster, fresh):
        whole = store.catalogue("i", fields=["s1_low"])
        assert whole.files.equals(memory.catalogue("i", fields=["s1_low"]).files)
        assert whole.below == FILES
    since = cluster.catalogue("i").generation
    cluster.write("i", entries([5], bounds([5])), revision=1)  # what is there stays as it is
    assert cluster.catalogue("i", since=since).files.num_rows == 0
    listed = pa.concat_tables(list(cluster.entries("i"))).sort_by("ordinal")
    assert listed["ordinal"].to_pylist() == [n for n in numbers if n not in (3, 33, 53)]
    assert (cluster.size("i") or 0) > 5_000


def test_without_them_there_is_one_shard_and_replicas_follow_the_nodes(
    opensearch: str, prefix: str
) -> None:
    store = OpenSearchStore(f"http://{opensearch}", Access(prefix=prefix))
    store.define(definition(), expect=None)
    assert store.size("i") == 0
    store.reserve("i", 1)
    store.write("i", entries([0], bounds([1])), revision=1)
    settings = make_with(opensearch, prefix)
    assert (settings["number_of_shards"], settings["auto_expand_replicas"]) == ("1", "0-1")


def test_who_may_not_ask_for_its_size_does_without(between: Front, prefix: str) -> None:
    store = OpenSearchStore(f"http://{between.address}", Access(prefix=prefix))
    store.define(definition(), expect=None)
    store.reserve("i", 1)
    store.write("i", entries([0], bounds([1])), revision=1)
    forbidden = Answer(403, {"error": {"type": "security_exception"}, "status": 403})
    between.rule = refuse(forbidden, b"/_stats")
    assert store.size("i") is None
    assert len(store.catalogue("i").files) == 1


@pytest.mark.parametrize("stored", ['{"codec": "x"}', "{", '{"number_of_shards": 5000}', "[]"])
def test_what_no_release_writes_is_not_handed_on(opensearch: str, prefix: str, stored: str) -> None:
    store = OpenSearchStore(f"http://{opensearch}", Access(prefix=prefix))
    store.define(definition(options=(("index_settings", stored),)), expect=None)
    store.reserve("i", 1)
    with pytest.raises(StoreError, match="invalid index_settings: run DROP"):
        store.write("i", entries([0], bounds([1])), revision=1)


@pytest.mark.parametrize(("files", "shards"), [(500_000, "1"), (1_000_001, "3"), (2**30, "16")])
def test_shards_follow_the_files_of_the_first_build(
    opensearch: str, prefix: str, files: int, shards: str
) -> None:
    store = OpenSearchStore(f"http://{opensearch}", Access(prefix=prefix))
    store.define(definition(), expect=None)
    store.reserve("i", files)
    store.write("i", entries([0, files - 1], bounds([1, 2])), revision=1)
    assert make_with(opensearch, prefix)["number_of_shards"] == shards
    assert ask(store, FieldCompare("low", ">", 1, "s1")) == [0]
