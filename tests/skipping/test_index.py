"""The Python twin of the statements."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import skipping
from providers import And, Compare, In, Or, Predicate, StartsWith, Unknown
from providers.errors import Conflict, DefinitionError, StatementError, StoreError, TableError
from skipping import ScanPlan, SkippingIndex
from skipping.indexing.spark import SparkBuild
from skipping.stores import IDENTITY
from skipping.stores.memory.store import MemoryStore

# DataFrame.toArrow of pyspark leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

_numbers = itertools.count()


def make(spark: SparkSession, *, files: int = 4) -> str:
    """Ten rows a file, `id` clustered, the first file's `s` null, the second's half null."""
    name = f"idx{next(_numbers):03}"
    frame = spark.range(0, 10 * files, 1, files).selectExpr(
        "id",
        "CASE WHEN id >= 15 THEN concat('row', id) END AS s",
        "date'2024-01-01' + cast(id AS int) AS day",
        "struct(cast(id AS decimal(10, 2)) AS price) AS a",
    )
    frame.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").saveAsTable(name)
    return name


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("twin")


@pytest.fixture
def t(spark: SparkSession) -> Iterator[str]:
    name = make(spark)
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="module")
def index(spark: SparkSession) -> Iterator[SkippingIndex]:
    name = make(spark)
    columns = "id MIN_MAX, s VALUE_LIST, s MIN_MAX, day MIN_MAX, a.price MIN_MAX"
    yield SkippingIndex.create(spark, name, columns, store=MemoryStore("lookup"))
    spark.sql(f"DROP TABLE {name}")


class TestLookup:
    def test_it_says_what_each_sketch_did_without_values(self, index: SkippingIndex) -> None:
        found = index.lookup(And((Compare("id", ">", 15), Compare("s", "=", "row39"))))
        assert found == ScanPlan(
            index.table.name,
            total=4,
            pruned=3,
            legs=(("id > ?  MIN_MAX", 1), ("s = ?  VALUE_LIST", 3), ("s = ?  MIN_MAX", 3)),
        )
        assert "39" not in str(found)
        assert "- pruned           3  together" in str(found)

    def test_what_does_not_help_is_named(self, index: SkippingIndex) -> None:
        assert index.lookup(StartsWith("s", "", negated=True)).total == 4
        plan = index.lookup(Or((Unknown("rand"), Compare("id", "=", 5))))
        assert plan.unused == ("rand: no index can answer it",)

    @pytest.mark.parametrize(
        ("predicate", "says"),
        [
            (Compare("nope", "=", 5), "no column nope: there are id, s, day"),
            (Compare("a", "=", 5), "a is a struct; name its leaves: a.price"),
            (Compare("id", "=", "five"), "id is bigint: "),
            (Compare("day", "=", "2024-02-30"), "day is date: "),
            (In("id", pa.array(["x"])), "id is bigint: "),
        ],
    )
    def test_what_does_not_fit(self, index: SkippingIndex, predicate: Predicate, says: str) -> None:
        with pytest.raises(DefinitionError) as caught:
            index.lookup(predicate)
        assert str(caught.value).startswith(says)


class TestLife:
    def test_create_on_refresh_files_drop_vacuum(
        self, spark: SparkSession, t: str, store: MemoryStore
    ) -> None:
        index = SkippingIndex.create(
            spark, t, "id MIN_MAX, s VALUE_LIST(9)", store=store, build=False
        )
        assert (index.state.status, index.state.covered) == ("creating", None)
        assert index.lookup(Compare("id", "=", 5)).unknown == 4
        state = index.refresh()
        assert (state.status, state.covered) == ("active", 0)
        assert index.state == state

        again = SkippingIndex.on(spark, f"spark_catalog.default.{t}", store=store)
        assert again.definition == index.definition
        assert not again.replaced
        files = again.files()
        assert files.column_names == [*IDENTITY.names, "id MIN_MAX", "s VALUE_LIST"]
        assert files["id MIN_MAX"].to_pylist() == [True] * 4
        # Ten values are one too many for the list; nulls take no place.
        assert sorted(files["s VALUE_LIST"].to_pylist()) == [False, False, True, True]

        with pytest.raises(Conflict):
            SkippingIndex.create(spark, t, "s MIN_MAX", store=store)
        again.drop()
        with pytest.raises(DefinitionError, match=f"{t} has no skipping index in memory:twin"):
            SkippingIndex.on(spark, t, store=store)
        with pytest.raises(DefinitionError, match=f"index of .*{t} was dropped meanwhile"):
            index.refresh()
        SkippingIndex.create(spark, t, "s MIN_MAX", store=store, build=False)

    def test_vacuum_says_how_many(
        self, spark: SparkSession, t: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = SkippingIndex.create(spark, t, "id MIN_MAX", store=store)
        assert index.vacuum() == 0
        spark.sql(f"OPTIMIZE {t}")
        index.refresh()
        assert index.vacuum() == 0
        forgotten = lambda self, paths: pa.repeat(False, len(paths))  # noqa: E731
        monkeypatch.setattr(type(index.table), "find_reachable", forgotten)
        assert index.vacuum() == 4
        assert len(index.files()) == 1
        assert index.lookup(Compare("id", "=", -1)).kept == 0

    def test_where_and_kinds_in_words(
        self, spark: SparkSession, t: str, store: MemoryStore
    ) -> None:
        with pytest.raises(StatementError, match=r"a closing \) or a comma, not s"):
            SkippingIndex.create(spark, t, "id MIN_MAX s VALUE_LIST", store=store)
        with pytest.raises(DefinitionError, match="unknown index type MINMAX"):
            SkippingIndex.create(spark, t, "id MINMAX", store=store)
        with pytest.raises(DefinitionError, match="WHERE nope = 1"):
            SkippingIndex.create(spark, t, "id MIN_MAX", where="nope = 1", store=store)
        with pytest.raises(TableError, match="cannot open table gone"):
            SkippingIndex.create(spark, "gone", "id MIN_MAX", store=store)
        root = SkippingIndex.create(
            spark, t, "id MIN_MAX", store=MemoryStore(), build=False
        ).table.root
        with pytest.raises(TableError, match="is one version of a table"):
            SkippingIndex.create(spark, f"delta.`{root}@v0`", "id MIN_MAX", store=store)
        assert store.definitions() == ()


class TestFaults:
    def test_two_refreshers_at_once(self, spark: SparkSession, t: str, store: MemoryStore) -> None:
        SkippingIndex.create(spark, t, "id MIN_MAX", store=store, build=False)
        errors: list[Exception] = []
        together = threading.Barrier(2)

        def run() -> None:
            index = SkippingIndex.on(spark, t, store=store)
            together.wait()
            try:
                index.refresh()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        index = SkippingIndex.on(spark, t, store=store)
        assert (index.state.status, index.state.covered) == ("active", 0)
        assert len(index.files()) == len(set(index.files()["path"].to_pylist())) == 4
        assert index.lookup(Compare("id", "=", 5)).kept == 1

    def test_a_refresh_that_was_killed_goes_on_where_it_was(
        self, spark: SparkSession, t: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = SkippingIndex.create(spark, t, "id MIN_MAX", store=store, build=False)
        real, built = SparkBuild.__call__, list[int]()

        def one_by_one(self: SparkBuild, files: pa.Table, work: Any) -> Iterator[pa.Table]:
            for i in range(len(files)):
                yield from real(self, files.slice(i, 1), work)
                built.append(i)

        write, written = store.write, list[int]()

        def dies(*arguments: Any, **named: Any) -> None:
            if written:
                raise StoreError("the process was killed")
            written.append(1)
            write(*arguments, **named)

        monkeypatch.setattr(SparkBuild, "__call__", one_by_one)
        monkeypatch.setattr(store, "write", dies)
        with pytest.raises(StoreError, match="killed"):
            index.refresh()
        assert (index.state.status, index.state.covered) == ("failed", None)
        assert index.lookup(Compare("id", "=", -1)).unknown == 3

        monkeypatch.setattr(store, "write", write)
        built.clear()
        index = SkippingIndex.on(spark, t, store=store)
        assert index.refresh().covered == 0
        assert len(built) == 3
        assert index.lookup(Compare("id", "=", -1)).kept == 0

    def test_a_file_that_vanished_is_unknown(
        self, spark: SparkSession, t: str, store: MemoryStore
    ) -> None:
        index = SkippingIndex.create(spark, t, "id MIN_MAX, s VALUE_LIST", store=store, build=False)
        path = index.table.files()["path"].to_pylist()[0]
        Path(urlsplit(path).path).unlink()
        assert index.refresh().status == "active"
        assert index.files()["id MIN_MAX"].to_pylist().count(True) == 3
        plan = index.lookup(Compare("id", "=", -1))
        assert (plan.total, plan.unknown, plan.kept) == (4, 0, 1)


class TestShown:
    def test_a_repr_says_what_it_is_and_how_fresh(
        self, spark: SparkSession, t: str, store: MemoryStore
    ) -> None:
        index = SkippingIndex.create(spark, t, "id MIN_MAX, s VALUE_LIST", store=store, build=False)
        what = f"<SkippingIndex of spark_catalog.default.{t} (id MIN_MAX, s VALUE_LIST): "
        assert repr(index) == f"{what}0 files, not built yet: refresh>"
        index.refresh()
        assert repr(index) == f"{what}4 files, up to date>"
        spark.sql(f"INSERT INTO {t} SELECT * FROM {t} LIMIT 1")
        assert repr(index) == f"{what}4 files, 1 version behind>"
        spark.sql(f"CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 AS id")
        opened = SkippingIndex.on(spark, t, store=store)
        assert repr(opened) == f"{what}4 files, its table was replaced: refresh>"
        spark.sql(f"DROP TABLE {t}")
        assert repr(opened).startswith(what)  # whatever the catalog says, nothing is raised
        assert opened._repr_html_().startswith("<")

    def test_a_store_that_is_away_fails_no_repr(
        self, spark: SparkSession, t: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = SkippingIndex.create(spark, t, "id MIN_MAX", store=store)

        def away(*_: object, **__: object) -> None:
            raise StoreError("<the store> is away")

        monkeypatch.setattr(MemoryStore, "catalogue", away)
        assert repr(index).endswith("(id MIN_MAX): <the store> is away>")
        assert index._repr_html_().endswith("(id MIN_MAX): &lt;the store&gt; is away&gt;</p>")

    def test_describe_is_what_sql_says(self, spark: SparkSession, t: str) -> None:
        index = SkippingIndex.create(spark, t, "id MIN_MAX, s VALUE_LIST(9), s MIN_MAX")
        facts = index.describe()
        rows = spark.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {t}").collect()
        assert facts == {row.item: row.value for row in rows}
        assert list(facts) == [row.item for row in rows]
        assert facts["column s"] == "string VALUE_LIST, known in 2; string MIN_MAX, known in 4"
        assert (facts["version"], facts["version covered"], facts["files"]) == ("0", "0", "4")
        assert int(facts["index bytes"] or 0) > 1_000
        html = index._repr_html_()
        assert "<th" in html
        assert "string VALUE_LIST, known in 2" in html
        assert "last error" not in html  # there is none
        index.drop()

    def test_of_a_table_without_a_log_versions_are_times(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        path = f"{tmp_path}/p"
        spark.range(4).write.parquet(path)
        index = SkippingIndex.create(spark, f"parquet.`{path}`", "id MIN_MAX")
        facts = index.describe()
        time = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        assert re.fullmatch(time, facts["version"] or "")
        assert re.fullmatch(time, facts["version covered"] or "")
        assert (facts["table"], facts["lag"]) == (f"parquet.`{path}`", "none")
        assert repr(index).startswith(f"<SkippingIndex of parquet.`{path}` (id MIN_MAX): ")
        assert repr(index).endswith("up to date>")
        (row,) = [
            r for r in spark.sql("SHOW SKIPPING INDEXES EXTENDED").collect() if r.table == path
        ]
        assert (row.catalog, row.covered, row["index"]) == ("parquet", None, facts["index"])
        assert row.flint_index_name == f"flint_parquet_file:{path}_skipping_index"
        spark.range(4).write.mode("append").parquet(path)
        assert index.describe()["lag"] == "files were added, changed or removed"
        index.drop()

    def test_files_of_a_store_have_a_size(
        self, spark: SparkSession, t: str, tmp_path: Path
    ) -> None:
        index = SkippingIndex.create(spark, t, "id MIN_MAX", store=f"sqlite:{tmp_path}/s.sqlite")
        size = index.store.size(index.definition.index)
        assert size is not None
        index.add("s VALUE_LIST")
        assert size < index.store.size(index.definition.index) < 20_000
        index.drop()


class TestOptions:
    def test_create_starts_a_stream_as_sql_does(self, spark: SparkSession, t: str) -> None:
        options = {"auto_refresh": True, "refresh_interval": "200ms"}
        index = SkippingIndex.create(spark, t, "id MIN_MAX", options=options)
        try:
            assert index.describe()["maintained by"] == "a stream, every 0.2 s"
            (stream,) = [s for s in skipping.streams(spark) if s.table.endswith(f".{t}")]
            shown = spark.sql("SHOW SKIPPING STREAMS").where(f"table = '{stream.table}'").collect()
            assert [(r["index"], r.is_local, r.covered) for r in shown] == [(stream.index, True, 0)]
            assert shown[0].asDict().keys() == {
                *("table", "index", "owner", "is_local", "running", "version", "covered"),
                *("versions_behind", "files_behind", "seconds_behind", "batch", "error"),
            }
            spark.sql(f"INSERT INTO {t} SELECT * FROM {t} LIMIT 1")
            deadline = time.monotonic() + 60
            while index.state.covered != 1:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            spark.sql(f"DROP SKIPPING INDEX ON {t}")

    def test_wrong_ones_define_nothing(
        self, spark: SparkSession, t: str, store: MemoryStore
    ) -> None:
        settings = '{"number_of_shards": 2}'
        for options, says in (
            ({"auto_refesh": True}, "did you mean auto_refresh"),
            ({"index_mappings": "{}"}, "index_mappings has no meaning here"),
            ({"index_settings": settings}, "in OpenSearch; this store is memory:twin"),
            ({"checkpoint_location": "/elsewhere"}, "is not allowed: use a folder below"),
        ):
            with pytest.raises(DefinitionError, match=says):
                SkippingIndex.create(spark, t, "id MIN_MAX", store=store, options=options)
        with pytest.raises(StatementError, match=r"this store is sqlite:.*") as error:
            spark.sql(
                f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (index_settings = '{settings}')"
            )
        assert str(error.value).endswith("^" * len("index_settings"))
        assert store.definitions() == ()

    def test_build_is_one_of_them(self, spark: SparkSession, t: str, store: MemoryStore) -> None:
        index = SkippingIndex.create(
            spark, t, "id MIN_MAX", store=store, options={"build": False, "max_files_per_batch": 2}
        )
        assert (index.state.covered, index.options.max_files_per_batch) == (None, 2)
