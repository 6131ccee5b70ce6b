"""Other engines on our survivors: what they open, and what they are told."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable, write_deltalake

from providers import Unknown
from providers.errors import TableError
from skipping import SkippingIndex
from skipping.filters.arrow import translate
from skipping.filters.polars import translate_polars
from skipping.lookup.query import IndexQuery
from skipping.scans.file_scan import FileScan
from skipping.stores.memory.store import MemoryStore
from tests.conftest import RunPython
from tests.skipping.tables.world import FILES, SCHEMA, World, delta

pytestmark = pytest.mark.nightly


def test_engines_open_only_the_files_that_their_own_filters_leave(world: World) -> None:
    """Also those of a join that DuckDB finds out at run time."""
    index, keys = world.index, [2**53 + 1]
    known = index.scan().indexable_columns()
    asked = translate(pc.field("l") == keys[0], known).predicate
    gone = index._query.find_prunable(asked, index.table.columns())
    paths = [Path(path.removeprefix("file://").removeprefix("file:")) for path, *_ in gone]
    there = {path: path.read_bytes() for path in paths}
    wanted = world.frame.filter(pl.col("l") == keys[0])["id"].to_list()
    assert wanted
    assert len(paths) > FILES // 4
    try:
        for path, content in there.items():
            path.write_bytes(b"x" * len(content))
        db, dimension = world.db, pa.table({"l": keys})
        db.register("dimension", dimension)
        answers = (
            db.sql("SELECT id FROM t JOIN dimension USING (l)").fetchnumpy()["id"].tolist(),
            db.sql(f"SELECT id FROM t WHERE l = {keys[0]}").fetchnumpy()["id"].tolist(),
            world.lazy.filter(pl.col("l") == keys[0]).collect()["id"].to_list(),
            world.lazy.filter(pl.col("l").is_in(keys)).select("id").collect()["id"].to_list(),
            index.scan(keys={"l": keys}).to_dataset().to_table()["id"].to_pylist(),
            index.join(dimension, "l").to_arrow()["id"].to_pylist(),
            pa.table(index.scan(pc.field("l") == keys[0]))["id"].to_pylist(),
        )
        assert [sorted(answer) for answer in answers] == [wanted] * len(answers)
        with pytest.raises((TableError, pa.ArrowException, OSError)):
            index.scan().to_arrow()
    finally:
        for path, content in there.items():
            path.write_bytes(content)


def test_files_that_polars_wrote_have_an_index(tmp_path: Path) -> None:
    """Their schema says that text was kept as views."""
    for n in range(3):
        texts = [f"s{n}", None, f"t{n}"] * 400
        frame = pl.DataFrame({"s": texts, "b": [f"b{n}".encode()] * 1200})
        write_deltalake(tmp_path, frame, mode="append")
    store = MemoryStore("of polars")
    index = SkippingIndex.create(DeltaTable(tmp_path), "s VALUE_LIST, b MIN_MAX", store=store)
    for given in (pl.col("s") == "s1", pc.field("b") == pa.scalar(b"b1")):
        scan = index.scan(given)
        assert len(list(scan.plan_files())) == 1
        assert scan.count() in (400, 1200)


def test_a_dataset_is_read_and_not_changed(world: World) -> None:
    dataset, seven = world.index.scan().to_dataset(), pc.field("i") == 7
    wanted = len(world.frame.filter(pl.col("i") == 7))
    assert (
        dataset.count_rows(filter=seven) == wanted == dataset.to_table(["s"], filter=seven).num_rows
    )
    assert dataset.head(3).num_rows == 3
    assert dataset.to_table({"x": pc.field("d")}).column_names == ["x"]
    assert dataset.partition_expression.equals(pc.scalar(True))
    assert [each.schema for each in dataset.get_fragments()] == [dataset.schema]
    for change in (lambda: dataset.filter(seven), lambda: dataset.replace_schema(SCHEMA)):
        with pytest.raises(NotImplementedError):
            change()


def test_what_arrow_reads_past_a_dataset_says_so_and_does_not_crash(world: World) -> None:
    dataset, other = world.index.scan().to_dataset(), pads.dataset(world.whole)
    for use in (
        lambda: dataset.sort_by("id"),
        lambda: dataset.join(other, "id"),
        lambda: other.join(dataset, "id"),
        lambda: pads.Scanner.from_dataset(dataset).to_table(),
    ):
        with pytest.raises(OSError, match="call to_table first"):
            use()


def test_a_limit_is_of_the_rows_before_an_engines_filter(world: World) -> None:
    few = world.index.scan(limit=3)
    (wanted,) = few.to_duckdb("few").sql("SELECT count(*) FROM few WHERE i IS NULL").fetchall()
    assert wanted[0] <= 3
    assert world.lazy.head(3).filter(pl.col("i") == 7).collect().height <= 3


ENOUGH = """
import sys, duckdb, pyarrow
from deltalake import DeltaTable
from skipping import SkippingIndex
pyarrow.set_cpu_count(1)
index = SkippingIndex.on(DeltaTable(sys.argv[1]), store=sys.argv[2])
db = index.scan().to_duckdb("t")
print(sum(len(db.sql("SELECT id, s FROM t LIMIT 1").fetchall()) for _ in range(60)))
"""


def test_a_query_that_has_enough_leaves_no_work_behind(
    run_python: RunPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read on, in threads of Arrow's that the next query, or the end, waited for."""
    table, store = delta(tmp_path / "t"), f"sqlite:{tmp_path}/store.db"
    index = SkippingIndex.create(table, "i MIN_MAX", store=store)
    opened: list[str] = []
    read = FileScan._rows
    monkeypatch.setattr(
        FileScan, "_rows", lambda self, path: opened.append(path) or read(self, path)
    )
    db = index.scan().to_duckdb("t", duckdb.connect(config={"threads": 1}))
    assert len(db.sql("SELECT id, s FROM t LIMIT 1").fetchall()) == 1
    assert index.scan().to_dataset().head(1).num_rows == 1
    assert 0 < len(opened) < FILES
    ended = run_python("-c", ENOUGH, tmp_path / "t", store)
    assert (ended.returncode, ended.stdout.strip()) == (0, "60"), ended.stderr


def test_a_missing_engine_says_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("duckdb", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    scan = world.index.scan()
    for name, call in (("duckdb", lambda: scan.to_duckdb("t")), ("polars", scan.to_polars)):
        with pytest.raises(ImportError, match=rf"pip install 'lakehouse-file-skipping\[{name}\]'"):
            call()


def test_an_index_that_is_away_skips_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("away")

    wanted = world.index.scan(keys={"i": [7]}).count()
    monkeypatch.setattr(IndexQuery, "find", away)
    scan = world.index.scan(keys={"i": [7]})
    assert scan.count() == wanted
    assert len(list(scan.plan_files())) == len(world.held)
    assert "no file is skipped" in caplog.text


def test_what_is_no_tree_of_arrow_is_unknown() -> None:
    assert translate(object(), {}).columns is None
    assert isinstance(translate_polars(object(), {}), Unknown)
