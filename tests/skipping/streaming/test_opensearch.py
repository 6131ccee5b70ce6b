"""A stream whose index is kept in OpenSearch, and what happens to that while it writes."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from providers import Compare, IsNull
from skipping import SkippingIndex
from skipping.sources.spark import settings_of, store_of
from skipping.stores import identities
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.opensearch import Node
from tests.rewrite.differential import same_rows, settings, skips
from tests.skipping.stores.proxy import Answer, Front, Request, forward, front
from tests.skipping.streaming.conftest import QUICK, append, caught_up, until

pytestmark = pytest.mark.nightly

COLUMNS = "id MIN_MAX, s VALUE_LIST, id BLOOM_FILTER"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """One that may be killed."""
    node = Node()
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.fixture
def between(node: Node) -> Iterator[Front]:
    with front(node.address) as made:
        yield made


@pytest.fixture
def followed(spark: SparkSession, between: Front) -> Iterator[str]:
    """A table with a stream whose index is behind the front."""
    name = f"searched_{uuid.uuid4().hex[:8]}"
    append(spark, name, files=4)
    where = {
        "spark.skipping.store": f"opensearch://{between.address}",
        "spark.skipping.opensearch.prefix": f"{name}-",
        "spark.skipping.mode": "fallback",
        "spark.skipping.timeout": "5s",
    }
    with settings(spark, where):
        store = store_of(spark, settings_of(spark))
        assert isinstance(store, OpenSearchStore)
        store._lease = 2.0  # else it takes a minute to be sure that a writer is dead
        spark.sql(f"CREATE SKIPPING INDEX ON {name} ({COLUMNS}) WITH ({QUICK})")
        yield name
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
    spark.sql(f"DROP TABLE {name}")


def reads_right(spark: SparkSession, name: str) -> None:
    """Whatever the store does."""
    for condition in ("id = 5", "id = 105", "s = '3' AND id > 100", "id = 100000"):
        same_rows(spark, f"SELECT * FROM {name} WHERE {condition}")


def as_from_scratch(spark: SparkSession, name: str, folder: Path) -> None:
    """Assert that nothing is lost or doubled, and every question is answered as by a new index."""
    index = SkippingIndex.on(spark, name)
    new = SkippingIndex.create(spark, name, COLUMNS, store=SqliteStore(folder / "scratch.sqlite"))
    assert sorted(identities(index.files())) == sorted(identities(new.files()))
    points = [Compare("id", "=", value) for value in range(3, 320, 30)]
    texts = [Compare("s", "=", str(value)) for value in range(0, 9, 3)]
    for question in (*points, *texts, Compare("id", ">", 205), IsNull("id")):
        answers = [i.why(question).drop_columns(["ordinal"]).sort_by("path") for i in (index, new)]
        assert answers[0] == answers[1], question
    skips(spark, f"SELECT * FROM {name} WHERE id = 5")


def is_of_entries(request: Request) -> bool:
    return "_bulk" in request.path and request.body.count(b"\n") > 2


def test_the_node_is_killed_in_mid_bulk(
    spark: SparkSession, node: Node, between: Front, followed: str, tmp_path: Path
) -> None:
    until(lambda: caught_up(spark, followed))
    killed: list[int] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer | None:
        if killed:
            return None
        if not is_of_entries(request):
            return to_node(request.body)
        lines = request.body.splitlines(keepends=True)
        half = len(lines) // 4 * 2
        to_node(b"".join(lines[:half]))
        killed.append(half)
        node.signal(signal.SIGKILL)
        return None

    between.rule = rule
    append(spark, followed, files=6, start=100)
    until(lambda: killed)
    reads_right(spark, followed)
    between.rule = forward
    node.start()
    reads_right(spark, followed)
    until(lambda: caught_up(spark, followed), seconds=180)
    reads_right(spark, followed)
    as_from_scratch(spark, followed, tmp_path)


@pytest.mark.soak
def test_a_node_that_is_busy_again_and_again(
    spark: SparkSession, between: Front, followed: str, tmp_path: Path
) -> None:
    until(lambda: caught_up(spark, followed))
    refused: list[str] = []
    busy = {"error": {"type": "es_rejected_execution_exception"}, "status": 429}

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        """Of the first hundred requests two of three are refused, and half of a bulk's items."""
        if len(refused) < 100 and (len(between.seen) % 3 or not is_of_entries(request)):
            refused.append(request.path)
            return Answer(429, busy)
        answer = to_node(request.body)
        if is_of_entries(request) and len(refused) < 200:
            for item in answer.body["items"][::2]:
                refused.append("item")
                for said in item.values():
                    said.update(busy)
            answer.body["errors"] = True
        return answer

    between.rule = rule
    append(spark, followed, files=6, start=100)
    append(spark, followed, files=2, start=200)
    until(lambda: len(refused) >= 100)
    reads_right(spark, followed)
    until(lambda: caught_up(spark, followed), seconds=180)
    assert "item" in refused, json.dumps(sorted(set(refused)))
    as_from_scratch(spark, followed, tmp_path)


def test_a_node_that_hangs(
    spark: SparkSession, node: Node, between: Front, followed: str, tmp_path: Path
) -> None:
    until(lambda: caught_up(spark, followed))
    node.signal(signal.SIGSTOP)
    try:
        with settings(spark, {"spark.skipping.timeout": "500ms"}):
            append(spark, followed, files=3, start=100)
            reads_right(spark, followed)
    finally:
        node.signal(signal.SIGCONT)
    until(lambda: caught_up(spark, followed))
    as_from_scratch(spark, followed, tmp_path)
