"""verify and background verification find a wrong entry, and report no right one."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import rewrite
from providers.errors import SkippingError, WrongAnswer
from rewrite.bridge.background_verification import BackgroundVerification
from rewrite.bridge.install import find_hooks
from skipping import SkippingIndex
from skipping.indexing.column_sync import current_columns
from skipping.indexing.sketch import Work, sketch_files
from skipping.stores import IDENTITY
from tests.rewrite.differential import make_table, settings

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.nightly,
]

FILES = 6
SAMPLE_RATE = "spark.skipping.verification.sampleRate"
ROWS = f"""SELECT id div 10 AS _f, id, id % 7 AS k, cast(id AS double) / 3 AS x,
    if(id % 5 = 0, double('NaN'), if(id % 2 = 0, -0.0D, 0.0D)) AS odd,
    cast(id AS date) AS d, map('a', id) AS m, parse_json('{{"v": ' || id || '}}') AS v,
    array(cast(id AS float)) AS list, if(id % 3 = 0, null, 's' || id) AS s
    FROM (SELECT id, date_from_unix_date(int(id)) AS d FROM range({10 * FILES}))"""


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    name = make_table(spark, "verified", ROWS.replace("cast(id AS date) AS d", "d"))
    yield name
    spark.sql(f"DROP TABLE {name}")


@pytest.fixture(scope="module")
def right(spark: SparkSession, table: str) -> str:
    spark.sql(
        f"CREATE SKIPPING INDEX ON {table} (id MIN_MAX, k VALUE_LIST, s VALUE_LIST, d MIN_MAX)"
    )
    return table


@pytest.fixture
def wrong(spark: SparkSession) -> Iterator[str]:
    """A table whose index says of the file with the ids from 0 to 9 that they are from 100 on."""
    name = make_table(spark, "wronged", ROWS.replace("cast(id AS date) AS d", "d"))
    index = SkippingIndex.create(spark, name, "id MIN_MAX, k VALUE_LIST", build=False)
    files = index.table.files()
    rows = pa.table(
        [
            pa.array(index.store.reserve(index.definition.index, len(files)), pa.int64()),
            *(files[column] for column in ("path", "size", "stamp")),
            pa.nulls(len(files), pa.string()),
        ],
        schema=IDENTITY,
    )
    pairs = current_columns(index.definition, index.table.columns())
    work = [Work(i, column, i.provider()) for i, column in pairs]
    entries = pa.Table.from_batches([sketch_files(rows.combine_chunks().to_batches()[0], work)])
    sketch = work[0].indexed.sketch
    for bound, by in (("low", 100), ("high", 100)):
        at = entries.schema.get_field_index(f"{sketch}_{bound}")
        values = entries[f"{sketch}_low"].to_pylist() if bound == "low" else entries[at].to_pylist()
        first = min(range(len(values)), key=values.__getitem__)
        values[first] += by
        entries = entries.set_column(at, entries.schema.field(at), pa.array(values, pa.int64()))
    index.store.write(index.definition.index, entries, revision=1)
    spark.sql(f"REFRESH SKIPPING INDEX ON {name}")
    yield name
    spark.sql(f"DROP SKIPPING INDEX ON {name}")
    spark.sql(f"DROP TABLE {name}")


def verification(spark: SparkSession) -> BackgroundVerification:
    hooks = find_hooks(spark)
    assert hooks is not None
    return hooks.verification


class TestVerify:
    @pytest.mark.parametrize(
        ("query", "opened"),
        [
            ("SELECT * FROM {t} WHERE id = 5", 1),
            ("SELECT * FROM {t} WHERE id IN (5, 25) AND k >= 0", 2),
            ("SELECT m, v, list, odd FROM {t} WHERE id BETWEEN 15 AND 25", 2),
            ("SELECT odd FROM {t} WHERE d < date'1970-01-05'", 1),
            ("SELECT sum(x), avg(odd), count(*) FROM {t} WHERE id < 10", 1),
            ("SELECT id FROM {t} WHERE id > 7 ORDER BY id LIMIT 3", 6),
            ("SELECT 1 FROM {t} WHERE id < 0", 0),
            ("SELECT a.id, a.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE b.s = 's7'", None),
        ],
    )
    def test_right_answers(
        self, spark: SparkSession, right: str, query: str, opened: int | None
    ) -> None:
        df = spark.sql(query.format(t=right))
        found = rewrite.verify(df)
        assert found.rows == df.count()
        assert found.without % FILES == 0
        assert found.opened < found.without or opened == FILES
        if opened is not None:
            assert found.opened == opened
        assert str(found).startswith(f"same {found.rows} rows, opened {found.opened} of ")
        assert found.explained.scans

    def test_it_compares_also_where_skipping_is_off(self, spark: SparkSession, right: str) -> None:
        with settings(spark, {"spark.skipping.enabled": "false"}):
            found = rewrite.verify(spark.sql(f"SELECT * FROM {right} WHERE id = 5"))
        assert (found.opened, found.without) == (1, FILES)

    @pytest.mark.parametrize(
        ("columns", "says"),
        [
            ("*", "0 rows with the indexes, 1 without"),
            ("count(*)", "1 rows with the indexes and without, but not the same rows"),
            ("sum(x)", "but not the same rows"),
            ("max(s), max(odd)", "but not the same rows"),
        ],
    )
    def test_a_wrong_entry_is_found(
        self, spark: SparkSession, wrong: str, columns: str, says: str
    ) -> None:
        df = spark.sql(f"SELECT {columns} FROM {wrong} WHERE id = 5")
        with pytest.raises(WrongAnswer, match=says) as error:
            rewrite.verify(df)
        assert "id = ?  MIN_MAX" in str(error.value)
        # What the entry does not touch is right.
        assert rewrite.verify(spark.sql(f"SELECT * FROM {wrong} WHERE id = 15")).opened == 1

    @pytest.mark.parametrize(
        ("query", "why"),
        [
            ("SELECT rand(), id FROM {t}", "differs from run to run"),
            ("SELECT first(id) FROM {t}", "first depends on the order of rows"),
            ("SELECT id FROM {t} LIMIT 3", "Limit may return different rows in each run"),
            ("SELECT count(*) FROM (SELECT id FROM {t} LIMIT 3)", "Limit may return"),
            ("SELECT id FROM {t} TABLESAMPLE (10 PERCENT)", "Sample may return different rows"),
        ],
    )
    def test_what_is_up_to_chance(
        self, spark: SparkSession, right: str, query: str, why: str
    ) -> None:
        with pytest.raises(SkippingError, match=why):
            rewrite.verify(spark.sql(query.format(t=right)))

    def test_floats_added_in_another_order(self, spark: SparkSession) -> None:
        rows = "SELECT id div 100 AS _f, id, 1 / (id + 1) AS x FROM range(2000)"
        make_table(spark, "summed", rows, "id MIN_MAX")
        with settings(spark, {"spark.sql.files.maxPartitionBytes": "4k"}):
            found = rewrite.verify(spark.sql("SELECT sum(x), avg(x) FROM summed WHERE id < 900"))
        assert (found.opened, found.without) == (9, 20)
        assert found.note is None or "last digits" in found.note
        spark.sql("DROP SKIPPING INDEX ON summed")
        spark.sql("DROP TABLE summed")


class TestBackgroundVerification:
    def test_a_wrong_entry_raises_an_alarm(
        self, spark: SparkSession, wrong: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        before, watched = len(rewrite.alarms(spark)), verification(spark)
        df = spark.sql(f"SELECT * FROM {wrong} WHERE id = 5")
        assert df.collect() == []
        assert watched.settle(60)
        assert len(rewrite.alarms(spark)) == before, "nobody asked for it"
        with (
            settings(spark, {SAMPLE_RATE: "1"}),
            caplog.at_level(logging.ERROR),
        ):
            spark.sql(f"SELECT * FROM {wrong} WHERE id = 5 AND k = 5").collect()
            assert watched.settle(60)
        (alarm,) = rewrite.alarms(spark)[before:]
        assert alarm.table == f"spark_catalog.default.{wrong}"
        held = spark.sql(f"SELECT _metadata.file_path AS p FROM {wrong} WHERE id BETWEEN 0 AND 9")
        with settings(spark, {"spark.skipping.enabled": "false"}):
            (path,) = {row.p for row in held.collect()}
        assert alarm.path == re.sub("^file:/+", "file:/", path)
        assert str(alarm) in caplog.text
        assert "which contains a match: run DROP SKIPPING INDEX ON" in str(alarm)

    def test_right_entries_raise_none(self, spark: SparkSession, right: str) -> None:
        before, watched = rewrite.alarms(spark), verification(spark)
        read = watched.files
        with settings(spark, {SAMPLE_RATE: "1"}):
            for condition in (
                "id = 5",
                "id > 33 AND k IN (1, 2)",
                "id = 5 OR d = date'1970-01-31'",
                "s LIKE 's4%' AND x > 3",
                "s IS NULL AND id >= 50",
                "id NOT IN (1, 2, 3) AND id < 4",
                "k = 100",
            ):
                spark.sql(f"SELECT * FROM {right} WHERE {condition}").collect()
            spark.sql(
                f"SELECT * FROM {right} f JOIN (SELECT id FROM {right} WHERE s = 's7') USING (id)"
            ).collect()
            assert watched.settle(60)
        assert watched.files - read > 20
        assert rewrite.alarms(spark) == before

    def test_what_is_gone_is_passed_over(self, spark: SparkSession) -> None:
        make_table(spark, "gone", "SELECT id AS _f, id FROM range(4)", "id MIN_MAX")
        before, watched = rewrite.alarms(spark), verification(spark)
        with settings(spark, {SAMPLE_RATE: "1"}):
            df = spark.sql("SELECT * FROM gone WHERE id = 2")
            df.collect()
            spark.sql("DROP SKIPPING INDEX ON gone")
            spark.sql("DROP TABLE gone")
            assert watched.settle(60)
        assert rewrite.alarms(spark) == before

    def test_more_than_it_can_check_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import threading
        from types import SimpleNamespace
        from typing import Any

        wake = threading.Event()
        watched = BackgroundVerification(lambda: None)  # type: ignore[arg-type, return-value]
        monkeypatch.setattr(watched, "_check", lambda _: wake.wait(60))
        asked: Any = SimpleNamespace(result=SimpleNamespace(pruned=[1]))
        for _ in range(1_000):
            watched.offer(asked)  # does not wait
        assert not watched.settle(0.2)
        wake.set()
        assert watched.settle(60)
