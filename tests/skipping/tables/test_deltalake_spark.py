"""One index for Spark and delta-rs: the same files, columns and identities; either builds it."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import rewrite
from providers import Compare
from skipping import SkippingIndex
from skipping.advise.sampled_verification import verify_files
from skipping.indexing.partition_values import partition_value
from skipping.lookup.binding import Binding
from skipping.spark_api import collect_arrow
from skipping.stores import IDENTITY
from skipping.stores.memory.store import MemoryStore
from skipping.tables.delta.deltalake import DeltaLakeTable
from skipping.tables.delta.spark import DeltaTable as SparkDelta
from skipping.tables.open import open_table
from tests.rewrite.differential import settings
from tests.skipping.tables.formats import SPECIAL, check_random_filters
from tests.skipping.tables.local import COLUMNS, rows

pytestmark = pytest.mark.nightly

NAME = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
TABLES = {
    "mapped by name": [
        f"CREATE TABLE {{t}} (k INT, st STRUCT<a: BIGINT, `b.c`: STRING>, p STRING) USING delta "
        f"PARTITIONED BY (p) TBLPROPERTIES ({NAME})",
        "INSERT INTO {t} SELECT id, named_struct('a', id * 10, 'b.c', 'x'), 'a b' "
        "FROM range(0, 50, 1, 1)",
        "DELETE FROM {t} WHERE k IN (3, 7)",
        "ALTER TABLE {t} RENAME COLUMN k TO key",
        "ALTER TABLE {t} RENAME COLUMN p TO `p q`",
        "INSERT INTO {t} VALUES (90, NULL, '%20'), (91, named_struct('a', 5, 'b.c', 'y'), NULL)",
    ],
    "mapped by id": [
        "CREATE TABLE {t} (k INT, t TIMESTAMP_NTZ) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')",
        "INSERT INTO {t} VALUES (1, TIMESTAMP_NTZ '2024-05-01 10:00:00')",
        "INSERT INTO {t} VALUES (90, NULL)",
    ],
    "widened, with checkpoints": [
        "CREATE TABLE {t} (k INT, n INT) USING delta TBLPROPERTIES "
        "('delta.enableTypeWidening' = 'true', 'delta.checkpointPolicy' = 'v2', "
        "'delta.checkpointInterval' = '2')",
        "INSERT INTO {t} VALUES (1, 1)",
        "ALTER TABLE {t} ALTER COLUMN k TYPE BIGINT",
        "INSERT INTO {t} VALUES (90, 5000)",
    ],
    "partitioned by all types": [
        "CREATE TABLE {t} (k INT, i INT, d DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, f FLOAT, "
        "x DOUBLE, dec DECIMAL(10,2), b BOOLEAN, s STRING) USING delta "
        "PARTITIONED BY (i, d, ts, n, f, x, dec, b, s)",
        "INSERT INTO {t} SELECT 1, -7, DATE '0001-01-01', TIMESTAMP '2024-05-01 10:00:00', "
        "TIMESTAMP_NTZ '2024-05-01 10:00:00.5', 0.1F, 1e10D, -0.01, true, 'x/y z' UNION ALL "
        "SELECT 90, NULL, NULL, NULL, NULL, FLOAT('NaN'), DOUBLE('-Infinity'), NULL, false, ''",
    ],
}


@pytest.fixture(scope="module", params=TABLES)
def folder(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    made = tmp_path_factory.mktemp("shared") / "a b%"
    for statement in TABLES[request.param]:
        spark.sql(statement.format(t=f"delta.`{made}`"))
    return made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/index.sqlite"


def ordered(files: pa.Table | None) -> list[Any]:
    assert files is not None
    rows = files.to_pylist()
    return sorted((r["path"], r["size"], r["stamp"], dict(r["partition"])) for r in rows)


def indexable(table: Any) -> str:
    kept = (c for c in table.columns().values() if c.refusal is None)
    return ", ".join(f"{c.name if '.' in c.name else f'`{c.name}`'} VALUE_LIST" for c in kept)


class TestOneTable:
    def test_both_see_the_same(self, spark: SparkSession, folder: Path) -> None:
        theirs = open_table(spark, f"delta.`{folder}`")
        assert isinstance(theirs, SparkDelta)
        ours = DeltaLakeTable(DeltaTable(folder))
        assert (ours.id, ours.name, ours.version()) == (theirs.id, theirs.name, theirs.version())
        facts = attrgetter("name", "identity", "type", "physical", "partition", "refusal")
        assert [*map(facts, ours.columns().values())] == [*map(facts, theirs.columns().values())]
        for version in (1, ours.version()):
            found, known = ours.files(version), theirs.files(version)
            assert found.schema == known.schema
            assert _identities(found) == _identities(known)
            types = {c.logged_as: c.type for c in ours.columns().values()}
            for file, other in zip(ordered(found), ordered(known), strict=True):
                for key, text in other[3].items():
                    if key in file[3]:  # in another spelling, maybe
                        mine = partition_value(file[3][key], types[key])
                        assert mine is not None
                        assert mine.equals(partition_value(text, types[key])), key
                    else:
                        assert key == "ts" or text in (None, ""), "where delta-rs says less"
            since = ours.changes(-1, version)
            assert ordered(since) == ordered(theirs.changes(-1, version))

    @pytest.mark.parametrize(
        ("folder", "builder"),
        [
            ("mapped by name", "Spark"),
            ("mapped by name", "delta-rs"),
            ("mapped by id", "delta-rs"),
            ("widened, with checkpoints", "delta-rs"),
            ("partitioned by all types", "Spark"),
            ("partitioned by all types", "delta-rs"),
        ],
        indirect=["folder"],
    )
    def test_what_one_builds_the_other_asks(
        self, spark: SparkSession, folder: Path, url: str, builder: str
    ) -> None:
        name, table = f"delta.`{folder}`", DeltaTable(folder)
        columns = indexable(DeltaLakeTable(table))
        if builder == "Spark":
            built = SkippingIndex.create(spark, name, columns, store=url)
            other = SkippingIndex.on(table, store=url)
        else:
            built = SkippingIndex.create(table, columns, store=url)
            other = SkippingIndex.on(spark, name, store=url)
        assert other.definition == built.definition
        assert other.refresh() == other.state
        assert len(other.pending()) == 0
        first = next(iter(DeltaLakeTable(table).columns()))
        for asked in (f"{first} = 1", f"{first} > 50"):
            plan = built.lookup(asked)
            assert str(plan) == str(other.lookup(asked))
            assert plan.unknown == 0
            assert plan.kept is not None
            assert plan.kept < (plan.total or 0)
            local = SkippingIndex.on(table, store=url).scan(asked)
            assert len(local.plan_files()) == plan.kept
            wanted = collect_arrow(spark.read.format("delta").load(str(folder)).where(asked))
            assert _rows(local.to_arrow()) == _rows(wanted)


def _identities(files: pa.Table) -> list[Any]:
    return sorted((row["path"], row["size"], row["stamp"]) for row in files.to_pylist())


def _rows(table: pa.Table) -> list[str]:
    """Rows that can be compared; an empty text of a partition is null to delta-rs."""
    rows = table.to_pylist()
    return sorted(repr({k: None if v == "" else v for k, v in row.items()}) for row in rows)


def test_spark_skips_by_what_delta_rs_built(spark: SparkSession, tmp_path: Path) -> None:
    """And opens nothing else: all other files are garbage. The table is delta-rs' own."""
    folder, url = tmp_path / "t x", f"sqlite:{tmp_path}/index.sqlite"
    for i, p in enumerate(SPECIAL):
        written = pa.table({"k": [i, i + 100], "s": [f"s{i}", None], "p": [p, p]})
        write_deltalake(folder, written, mode="append", partition_by=["p"])
    index = SkippingIndex.create(DeltaTable(folder), "k VALUE_LIST, p VALUE_LIST", store=url)
    with settings(spark, {"spark.skipping.store": url}):
        frame = spark.read.format("delta").load(str(folder))
        for row in index.why("k = 4").to_pylist():
            if row["pruned"]:
                Path(row["path"].removeprefix("file:")).write_bytes(b"no parquet" * 400)
        kept = frame.where("k = 4")
        assert [tuple(row) for row in kept.collect()] == [(4, "s4", SPECIAL[4])]
        (scan,) = rewrite.explain(kept).scans
        assert scan.kept == 1 < (scan.total or 0), "of those that Delta's bounds leave"


def test_deletion_vectors_of_either_version(spark: SparkSession, tmp_path: Path, url: str) -> None:
    """The sketch is of the file, so a version without the vector finds the row again."""
    folder = tmp_path / "é x"
    name = f"delta.`{folder}`"
    spark.sql(
        f"CREATE TABLE {name} (k BIGINT) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {name} SELECT id FROM range(0, 1000, 1, 1)")
    spark.sql(f"INSERT INTO {name} SELECT id FROM range(1000, 2000, 1, 1)")
    spark.sql(f"DELETE FROM {name} WHERE k % 100 = 7")
    newest, before = DeltaTable(folder), DeltaTable(folder, version=2)
    index = SkippingIndex.create(newest, "k MIN_MAX", store=url)
    old = SkippingIndex.on(before, store=url)
    assert (index.scan("k < 300").count(), old.scan("k < 300").count()) == (297, 300)
    assert len(index.scan("k < 300").plan_files()) == 1
    assert (index.scan("k = 107").count(), old.scan("k = 107").count()) == (0, 1)
    assert index.scan().to_arrow()["k"].to_pylist().count(1007) == 0
    assert index.scan().count() == spark.read.format("delta").load(str(folder)).count() == 1980
    clone = f"delta.`{tmp_path}/clone`"
    spark.sql(f"CREATE TABLE {clone} SHALLOW CLONE {name}")
    spark.sql(f"INSERT INTO {clone} VALUES (5000)")
    cloned = SkippingIndex.create(DeltaTable(tmp_path / "clone"), "k MIN_MAX", store=url)
    assert cloned.scan("k < 300").count() == 297
    assert len(cloned.scan("k >= 1000 AND k < 2100").plan_files()) == 1


def test_what_was_pruned_is_read_again(spark: SparkSession, tmp_path: Path, url: str) -> None:
    write_deltalake(tmp_path / "t", pa.table({"k": range(10)}))
    index = SkippingIndex.create(DeltaTable(tmp_path / "t"), "k VALUE_LIST", store=url)
    columns = index.table.columns()
    for k, wrong in ((50, 0), (5, 1)):
        bound = Binding(columns)
        asked = bound.leaf(Compare("k", "=", k))
        files = index.files().select(IDENTITY.names)
        found = verify_files(files, index.definition, columns, asked, bound.columns, dated=False)
        assert (found.files, len(found.wrong)) == (1, wrong)


LITERALS = {
    "k": ["0", "1", "12", "1.5", "-1", "2147483648", "NULL", "2.0"],
    "big": ["1099511627776", "1099511627778", "0", "1.5e12"],
    "s": ["'s1'", "'all'", "''", "'s'", "NULL"],
    "day": ["'2024-01-02'", "DATE '2024-01-03'", "'1999-01-01'"],
    "ts": ["'2024-01-01T01:00:00Z'", "TIMESTAMP '2024-01-01 02:00:00+00:00'"],
    "x": ["0", "1.5", "-0.0", "3", "1e300", "0.1"],
    "d": ["2.50", "1.5", "2", "2.505", "1e3"],
    "b": ["true", "false"],
    "st.a": ["0", "2", "NULL", "1.5"],
    "st.t.y": ["'y1'", "'y'"],
}


def a_filter(random: Random, depth: int = 2) -> str:
    """A condition as WHERE takes it, of columns of all types."""
    if depth and random.random() < 0.5:
        legs = [a_filter(random, depth - 1) for _ in range(2)]
        joined = f"({random.choice([' AND ', ' OR ']).join(legs)})"
        return f"NOT {joined}" if random.random() < 0.3 else joined
    column = random.choice([*LITERALS])
    one, other = (random.choice(LITERALS[column]) for _ in range(2))
    no = random.choice(["", "", "NOT "])
    forms = [f"{column} {op} {one}" for op in ("=", "!=", "<", "<=", ">", ">=", "<=>")]
    forms += [f"{column} {no}IN ({one}, {other})", f"{column} {no}BETWEEN {one} AND {other}"]
    forms += [f"{column} IS {no}NULL", f"NOT ({column} = {one})"]
    if column in ("s", "st.t.y"):
        forms.append(f"{column} {no}LIKE 's1%'")
    return random.choice(forms)


def test_random_filters_give_the_rows_that_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    folder, random = tmp_path / "t", Random(19)
    for i in range(4):
        numbers = pa.array(range(3 * i, 3 * i + 3), pa.int64())
        write_deltalake(folder, rows(i).append_column("n", numbers), mode="append")
    index = SkippingIndex.create(DeltaTable(folder), COLUMNS, store=MemoryStore("random"))
    filters = [a_filter(random) for _ in range(150)]
    check_random_filters(index, spark.read.format("delta").load(str(folder)), filters)
