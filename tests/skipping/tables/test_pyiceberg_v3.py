"""PyIceberg on tables that it cannot write: format version 3, made by Spark, with all that has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from providers.errors import TableError
from skipping import SkippingIndex
from skipping.spark_api import collect_arrow
from skipping.stores.memory.store import MemoryStore
from tests.rewrite.iceberg.tables import MERGE_ON_READ, delete_by_value
from tests.skipping.tables.local import plain

pytestmark = pytest.mark.nightly

COLUMNS = "k VALUE_LIST, s VALUE_LIST, p VALUE_LIST, five MIN_MAX, k MIN_MAX"


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, SqlCatalog, Path]]:
    """A catalog that Spark and PyIceberg share, and the folder that all of it is in."""
    folder = tmp_path_factory.mktemp("v3")
    prefix, warehouse = "spark.sql.catalog.v3", f"file://{folder}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    uri = f"sqlite:{folder}/catalog.sqlite"
    for key, value in {"type": "jdbc", "uri": f"jdbc:{uri}", "warehouse": warehouse}.items():
        spark.conf.set(f"{prefix}.{key}", value)
    spark.sql("CREATE NAMESPACE v3.db")
    made = SqlCatalog("v3", uri=uri.replace(":", ":///", 1), warehouse=warehouse)
    yield "v3.db", made, folder
    made.close()


@pytest.fixture(scope="module")
def table(spark: SparkSession, lake: tuple[str, SqlCatalog, Path]) -> Table:
    """Position deletes of version 2, then deletion vectors; a tag, a branch, a default, a spec.

    No bounds in its manifests: what is skipped is the index's doing.
    """
    t = f"{lake[0]}.t"
    properties = {**dict.fromkeys(MERGE_ON_READ, "merge-on-read"), "format-version": "2"}
    properties["write.metadata.metrics.default"] = "none"
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE {t} (k INT, s STRING, p STRING) USING iceberg TBLPROPERTIES ({pairs})")
    for i in range(4):
        spark.sql(
            f"INSERT INTO {t} SELECT INT(id * 10 + {i}), concat('s', id * 10 + {i}), 'p{i}' "
            "FROM range(0, 10, 1, 1)"
        )
    spark.sql(f"DELETE FROM {t} WHERE k IN (2, 12)")
    spark.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    spark.sql(f"ALTER TABLE {t} CREATE TAG before")
    spark.sql(f"DELETE FROM {t} WHERE k IN (11, 21, 22, 53)")
    spark.sql(f"ALTER TABLE {t} CREATE BRANCH side")
    spark.sql(f"INSERT INTO {t}.branch_side VALUES (1000, 'side', 'p9')")
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, t)
    integer = iceberg.types.Types.IntegerType.get()
    default = iceberg.expressions.Literal.of(5)
    loaded.updateSchema().addColumn("five", integer, None, default).commit()
    spark.sql(f"REFRESH TABLE {t}")
    spark.sql(f"ALTER TABLE {t} ADD PARTITION FIELD p")
    spark.sql(f"INSERT INTO {t} VALUES (2000, 'new', 'p1', 6)")
    spark.sql(f"UPDATE {t} SET s = 'changed' WHERE k = 32")  # keeps the row's id in its file
    return lake[1].load_table("db.t")


@pytest.fixture(scope="module")
def index(table: Table) -> SkippingIndex:
    return SkippingIndex.create(table, COLUMNS, store=MemoryStore("v3"))


FILTERS = {
    "k = 1": 1,
    "k = 11": 1,
    "k = 2": 1,
    "k = 32": 2,
    "k in (1, 12, 93)": 3,
    "k > 93": 1,
    "k between 90 and 91": 2,
    "k is null": 0,
    "k not in (2000)": 5,
    "s = 'changed'": 1,
    "s = 's12' or k = 2000": 2,
    "p = 'p1'": 2,
    "p != 'p1'": 4,
    "five = 5": 5,
    "five = 6": 5,
    "five != 5": 5,
    "five is null": 4,
    "five is not null": 6,
    "five = 5 and k = 31": 1,
    "not (k < 2000)": 1,
    "k = 4000": 0,
}
"""Filters, and how many of the six files may have a match."""


@pytest.mark.parametrize("given", FILTERS)
def test_the_same_rows_from_fewer_files(table: Table, index: SkippingIndex, given: str) -> None:
    cut, whole = index.scan(given), table.scan(given)
    assert plain(cut.to_arrow()) == plain(whole.to_arrow())
    assert cut.count() == whole.count()
    # Of files with a partition the log tells one by itself.
    assert len(list(whole.plan_files())) == (5 if given.startswith("p ") else 6)
    assert len(list(cut.plan_files())) == FILTERS[given]
    verified = cut.verify()
    assert (verified.rows, verified.opened) == (whole.count(), FILTERS[given])
    assert verified.note is None


def test_it_is_what_spark_reads(
    spark: SparkSession, table: Table, index: SkippingIndex, lake: tuple[str, SqlCatalog, Path]
) -> None:
    wanted = collect_arrow(spark.table(f"{lake[0]}.t"))
    assert plain(index.scan().to_arrow()) == plain(wanted)
    assert len(wanted) == 40 - 6 + 1
    assert index.lookup("k = 32").kept == 2
    assert sum(not gone for gone in index.why("k = 31")["pruned"].to_pylist()) == 1


def test_every_snapshot_branch_and_tag(table: Table, index: SkippingIndex) -> None:
    """The entries are of files, so whatever version has a file is served by one index."""
    deleted = {"k = 12": 0, "k = 21": 0, "k in (1, 11)": 0, "five = 5": 0}
    skipped = 0
    for snapshot in table.snapshots():
        for given in deleted:
            at = {"snapshot_id": snapshot.snapshot_id}
            whole, cut = table.scan(given, **at), index.scan(given, **at)
            rows = whole.to_arrow()
            assert plain(cut.to_arrow()) == plain(rows), (snapshot.summary, given)
            deleted[given] = max(deleted[given], len(rows))
            skipped += len(list(whole.plan_files())) - len(list(cut.plan_files()))
    assert deleted == {"k = 12": 1, "k = 21": 1, "k in (1, 11)": 2, "five = 5": 40}
    assert skipped > 4 * len(table.snapshots())
    for ref, count in {"before": 1, "side": 0, "main": 0}.items():
        cut = index.scan("k = 11").use_ref(ref)
        assert len(list(cut.plan_files())) == 1
        assert len(cut.to_arrow()) == cut.count() == count
    (row,) = index.scan("k > 500").use_ref("side").to_arrow().to_pylist()
    assert (row["k"], row["s"]) == (1000, "side")


def test_row_lineage_is_not_of_pyiceberg(table: Table, index: SkippingIndex) -> None:
    for scan in (table.scan, index.scan):
        with pytest.raises(ValueError, match="_row_id"):
            scan("_row_id = 1").to_arrow()
        with pytest.raises(ValueError, match="_row_id"):
            scan(selected_fields=("k", "_row_id")).to_arrow()


def _ask(index: SkippingIndex) -> dict[str, Callable[[], Any]]:
    scan = index.scan("k = 31")
    return {
        "refresh": index.refresh,
        "lookup": lambda: index.lookup("k = 31"),
        "why": lambda: index.why("k = 31"),
        "files": lambda: index.files("k = 31"),
        "files of a condition": lambda: index.table.files(where="k = 31"),
        "pending": index.pending,
        "describe": index.describe,
        "repr": lambda: (repr(index), index._repr_html_()),
        "vacuum": index.vacuum,
        "to_arrow": scan.to_arrow,
        "to_arrow_batch_reader": lambda: scan.to_arrow_batch_reader().read_all(),
        "to_pandas": scan.to_pandas,
        "to_polars": scan.to_polars,
        "to_duckdb": lambda: scan.to_duckdb("t"),
        "count": scan.count,
        "verify": scan.verify,
        "use_ref": lambda: scan.use_ref("side").count(),
    }


def test_nothing_writes_to_the_table(
    table: Table, lake: tuple[str, SqlCatalog, Path], tmp_path: Path
) -> None:
    _, catalog, folder = lake
    root = Path("/" + table.location().removeprefix("file:").lstrip("/"))
    assert root.is_relative_to(folder)

    def there() -> tuple[str, bytes, dict[Path, tuple[int, int]]]:
        files = {f: (f.stat().st_size, f.stat().st_mtime_ns) for f in root.rglob("*")}
        location = catalog.load_table("db.t").metadata_location
        return location, (folder / "catalog.sqlite").read_bytes(), files

    before = there()
    assert len(before[2]) > 20
    store = f"sqlite:{tmp_path}/index.sqlite"
    index = SkippingIndex.create(table, COLUMNS, store=store, where="k < 2000 or five = 6")
    asked = _ask(index)
    for what, ask in asked.items():
        ask()
        assert there() == before, what
    index.add("five VALUE_LIST")
    index.remove("five")
    index.drop()
    index.vacuum()
    assert there() == before


def test_advice_needs_spark(table: Table) -> None:
    given: Any = table
    with pytest.raises(TableError, match="ANALYZE needs a Spark session, not a Table"):
        SkippingIndex.analyze(given, "db.t")


def test_equality_deletes_are_refused_by_name(
    spark: SparkSession, lake: tuple[str, SqlCatalog, Path]
) -> None:
    """PyIceberg cannot read them, unless their bounds say that no row of a filter is concerned."""
    database, catalog, _ = lake
    spark.sql(
        f"CREATE TABLE {database}.e USING iceberg TBLPROPERTIES ('format-version' = '3') "
        "AS SELECT INT(id) AS k FROM range(0, 10, 1, 1)"
    )
    spark.sql(f"INSERT INTO {database}.e VALUES (10)")
    delete_by_value(spark, f"{database}.e", 3)
    table = catalog.load_table("db.e")
    index = SkippingIndex.create(table, "k VALUE_LIST", store=MemoryStore("equality"))
    assert (index.lookup("k = 3").kept, index.lookup("k = 10").kept) == (1, 1)
    for scan in (table.scan, index.scan):
        with pytest.raises(ValueError, match="does not yet support equality deletes"):
            scan("k > 2").to_arrow()
        assert scan("k = 10").to_arrow()["k"].to_pylist() == [10]
    assert len(list(index.scan("k = 10").plan_files())) == 1
