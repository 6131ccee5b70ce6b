"""How Java numbers an index's files: page by page, after a refresh only those that came."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewrite.bridge import callbacks, protocol
from rewrite.bridge.callbacks import Answers
from skipping.lookup.lookup import invalidate
from skipping.stores.open import open_store
from tests.rewrite.differential import Compared, make_table, same_rows, settings

FILES, PAGE = 7, 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From which file on Java asked."""
    seen: list[int] = []
    answer = Answers._files

    def spy(self: Answers, lookup, header, deadline):  # type: ignore[no-untyped-def]
        seen.append(header[protocol.FIRST])
        return answer(self, lookup, header, deadline)

    monkeypatch.setattr(Answers, "_files", spy)
    monkeypatch.setattr(callbacks, "_PAGE", PAGE)
    return seen


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    name = make_table(spark, "paged", f"SELECT int(id) AS k, id AS _f FROM range({FILES})")
    store = {
        "spark.skipping.store": f"sqlite:{tmp_path}/store.sqlite",
        "spark.skipping.timeout": "60s",
    }
    with settings(spark, store):
        spark.sql("CREATE SKIPPING INDEX ON paged (k VALUE_LIST)")
        yield name
    spark.sql("DROP TABLE paged")


def look(spark: SparkSession, k: int) -> Compared:
    invalidate(open_store(spark.conf.get("spark.skipping.store")))
    return same_rows(spark, f"SELECT * FROM paged WHERE k = {k}")


def test_pages(spark: SparkSession, table: str, asked: list[int]) -> None:
    assert look(spark, FILES - 1).opened == 1
    assert asked == [0, 2, 4, 6]
    assert look(spark, 0).opened == 1
    spark.sql("INSERT INTO paged SELECT /*+ COALESCE(1) */ 99")
    spark.sql("REFRESH SKIPPING INDEX ON paged")
    for k in (0, 99):
        assert look(spark, k).opened == 1
    assert asked == [0, 2, 4, 6, FILES]
    spark.sql("DELETE FROM paged WHERE k = 3")
    spark.sql("INSERT INTO paged SELECT /*+ COALESCE(1) */ 3")
    spark.sql("REFRESH SKIPPING INDEX ON paged")
    assert look(spark, 3).opened == 1
    assert asked[5:] == [FILES + 1]


def test_what_did_not_come_in_time_is_read(
    spark: SparkSession, table: str, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages after the first come late: their files are read, and known to later queries."""
    answer = Answers._files

    def slowly(self: Answers, lookup, header, deadline):  # type: ignore[no-untyped-def]
        if header[protocol.FIRST]:
            time.sleep(1.5)
        return answer(self, lookup, header, deadline)

    monkeypatch.setattr(Answers, "_files", slowly)
    with settings(spark, {"spark.skipping.timeout": "2s"}):
        first = look(spark, 0)
        assert 1 < first.opened <= FILES  # of the first page one, and what was not there
        deadline = time.monotonic() + 60
        while look(spark, 0).opened > 1:
            assert time.monotonic() < deadline
            time.sleep(0.2)
