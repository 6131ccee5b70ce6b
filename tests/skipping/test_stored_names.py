"""What a driver opens by names and roots in a store, which whoever may write there chooses."""

from __future__ import annotations

import http.server
import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import rewrite
import skipping
from providers.errors import TableError
from rewrite.bridge.install import find_hooks
from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.config.options import IndexOptions
from skipping.lookup.lookup import invalidate
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.sources.spark import settings_of, store_of
from skipping.sources.stored import stored_name
from skipping.stores import IndexStore
from skipping.stores.sqlite.store import SqliteStore
from skipping.streaming.jobs import start_all, stop_stream
from tests.rewrite.differential import make_table, settings

pytestmark = pytest.mark.nightly

STREAMED = IndexOptions(auto_refresh=True).pairs()
COLUMN = IndexedColumn(1, "id", "id", "bigint", "MIN_MAX")


@pytest.fixture
def host() -> Iterator[Any]:
    """A host that nobody has a reason to ask; `asked` are the paths of requests to it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_PUT = do_GET

        def log_message(self, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        asked: list[str]

    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Iterator[IndexStore]:
    """A store of the session for one test."""
    with settings(spark, {"spark.skipping.store": f"sqlite:{tmp_path}/store.sqlite"}):
        yield store_of(spark, settings_of(spark))


def plant(store: IndexStore, name: str, table: TableId, **more: Any) -> Definition:
    """A definition as somebody writes it who does not go through CREATE."""
    planted = Definition(str(uuid.uuid4()), table, name, (COLUMN,), options=STREAMED, **more)
    store.define(planted, expect=None)
    return planted


def test_no_statement_opens_what_only_the_store_names(
    spark: SparkSession, host: Any, store: IndexStore, tmp_path: Path
) -> None:
    there = f"http://127.0.0.1:{host.server_port}/x"
    text = tmp_path / "secret.txt"
    text.write_text("secret")
    names = [
        f"parquet.`{there}`",
        f"delta.`{there}`",
        f"spark_catalog.delta.`{there}`",
        f"spark_catalog.default.`{there}`",
        f"text.`{text}`",
        "jdbc.x",
        "(SELECT 1)",
        "range",
        "parquet.`/`",
    ]
    for number, name in enumerate(names):
        plant(store, name, TableId("parquet", str(number), "file:/t"))
    plant(store, f"parquet.`{there}`", TableId("parquet", "", there))  # its identity says so, too
    plant(store, f"delta.`{there}`", TableId("delta", "1", there))
    rows = spark.sql("SHOW SKIPPING INDEXES EXTENDED").collect()
    assert [row.orphan for row in rows] == [True] * (len(names) + 2)
    told = spark.sql("SHOW SKIPPING STREAMS").collect()
    assert len(told) == len(rows)
    assert all("is not opened" in row.error for row in told)
    start_all(spark, SkippingIndex.on)
    assert not any(row.is_local for row in spark.sql("SHOW SKIPPING STREAMS").collect())
    for row in rows:
        with pytest.raises(TableError, match="is not opened"):
            spark.sql(f"RECOVER INDEX JOB `{row['index']}`")
    assert host.asked == []


def test_names_that_the_session_would_use_are_opened(
    spark: SparkSession, store: IndexStore, tmp_path: Path
) -> None:
    names = ["named_in_store", f"delta.`{tmp_path}/d`", f"parquet.`{tmp_path}/p`"]
    spark.range(3).write.format("delta").saveAsTable(names[0])
    spark.range(3).write.format("delta").save(f"{tmp_path}/d")
    spark.range(3).write.parquet(f"{tmp_path}/p")
    for name in names:
        index = SkippingIndex.create(spark, name, "id MIN_MAX")
        index.alter(lambda definition: replace(definition, options=STREAMED))
    shown = spark.sql("SHOW SKIPPING INDEXES").collect()
    assert [row.orphan for row in shown] == [False] * 3
    assert [row.error for row in spark.sql("SHOW SKIPPING STREAMS").collect()] == [None] * 3
    start_all(spark, SkippingIndex.on)
    try:
        assert len(skipping.streams(spark)) == 3
    finally:
        for definition in store.definitions():
            stop_stream(store, definition.value.name)
        spark.sql(f"DROP TABLE {names[0]}")


@pytest.mark.parametrize("part", ["*", "t?", "{a,b}", "[ab]"])
def test_stored_name_refuses_patterns(spark: SparkSession, part: str) -> None:
    root = f"file:/data/{part}"
    definition = Definition("i", TableId("parquet", root, root), f"parquet.`{root}`", (COLUMN,))
    with pytest.raises(TableError, match=r"reads its path as a glob pattern"):
        stored_name(spark, definition)


def test_show_opens_no_file_of_a_folder(
    spark: SparkSession, store: IndexStore, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "part-0.parquet")  # who opens it waits for a writer
    for root, orphan in ((f"file:{tmp_path}", False), (f"file:{tmp_path}/none", True)):
        name, id = f"parquet.`{root}`", TableId("parquet", root, root)
        store.define(Definition(f"i{orphan}", id, name, (COLUMN,)), expect=None)
        (row,) = spark.sql("SHOW SKIPPING INDEXES").where(f"orphan = {orphan}").collect()
        assert row.orphan is orphan


@pytest.mark.parametrize(
    ("root", "folders", "is_opened"),
    [
        ("file:/data/t", "", True),
        ("s3a://lake/t", "", False),
        ("s3a://lake/t", "s3a://lake", True),
        ("s3a://lake/t", "s3a://lake/other, s3a://lake/t/", True),
        ("s3a://lakes/t", "s3a://lake", False),
        ("s3a://lake/a/../../t", "s3a://lake/a", False),
        ("s3a://lake/tt", "s3a://lake/t", False),
        ("file://host/t", "", False),
        ("s3a:lake", "s3a://lake", False),
    ],
)
def test_paths_of_other_file_systems_need_a_setting(
    spark: SparkSession, root: str, folders: str, is_opened: bool
) -> None:
    conf: Any = spark.sparkContext._conf
    conf.set("spark.skipping.tableRoots", folders)
    definition = Definition("i", TableId("delta", "1", root), f"delta.`{root}`", (COLUMN,))
    try:
        if is_opened:
            assert stored_name(spark, definition) == definition.name
        else:
            with pytest.raises(TableError, match=r"is not opened"):
                stored_name(spark, definition)
    finally:
        conf._jconf.remove("spark.skipping.tableRoots")


def test_without_spark_roots_of_other_hosts_are_not_opened(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    there = f"127.0.0.1:{host.server_port}"
    plant(store, "a.b.delta", TableId("delta", "1", f"http://{there}/d"))
    plant(store, "a.b.s3", TableId("parquet", "", "s3a://bucket/p"))
    plant(store, "a.b.file", TableId("parquet", "", f"file://{there}/p"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{there}")
    command = ["refresh", "--all", "--without-spark", "--conf", f"spark.skipping.store={tmp_path}"]
    command[-1] += "/store.sqlite"
    assert main(command) == 1
    said = capsys.readouterr().err
    assert said.count("is not opened: the path comes from the store") == 3
    assert host.asked == []


def test_refresh_all_reaches_a_table_whose_name_another_definition_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    store = SqliteStore(tmp_path / "store.sqlite")
    index = SkippingIndex.create(str(folder), columns="id MIN_MAX", store=store)
    pq.write_table(pa.table({"id": [2]}), folder / "b.parquet")
    plant(store, index.definition.name, TableId("parquet", "", "s3a://bucket/p"))
    command = ["refresh", "--all", "--without-spark", "--conf"]
    assert main([*command, f"spark.skipping.store={tmp_path}/store.sqlite"]) == 1
    assert "is not opened" in capsys.readouterr().err
    assert len(index.files()) == 2


def test_background_verification_reads_only_files_of_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(spark, "elsewhere", "SELECT id AS _f, id FROM range(4)", "id MIN_MAX")
    hooks = find_hooks(spark)
    assert hooks is not None
    index = SkippingIndex.on(spark, "elsewhere")
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"id": [2]}), secret)
    files = index.store.catalogue(
        index.definition.index, fields=["s1_known", "s1_low", "s1_high"]
    ).files
    wrong = [row for row in files.to_pylist() if row["s1_low"] == 0]
    (ordinal,) = index.store.reserve(index.definition.index, 1)
    wrong[0].update(ordinal=ordinal, path=f"file:{secret}", size=secret.stat().st_size)
    entry = pa.Table.from_pylist(wrong, files.schema)
    index.store.write(index.definition.index, entry, revision=index.revision)
    invalidate(index.store)
    try:
        before = hooks.verification.files
        with settings(spark, {"spark.skipping.verification.sampleRate": "1"}):
            spark.sql("SELECT * FROM elsewhere WHERE id = 2").collect()
            assert hooks.verification.settle(60)
        assert hooks.verification.files == before + 3
        assert not [alarm for alarm in rewrite.alarms(spark) if str(tmp_path) in alarm.path]
    finally:
        spark.sql("DROP SKIPPING INDEX ON elsewhere")
        spark.sql("DROP TABLE elsewhere")
