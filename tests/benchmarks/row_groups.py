"""What entries per row group could save: `python -m tests.benchmarks.row_groups [data set ...]`.

For large files that a perfect index of files opens: the fraction of their bytes in row groups with
no matching row, the fraction of their rows that Spark's own Parquet reader skips by statistics,
dictionaries, Bloom filters and page indexes, and the fraction of the remaining bytes that lies in
row groups with no matching row. Only the last can be saved by an index with entries per row group.

Bytes are those of the columns that a typical query reads. A page counts by its rows. Keys are drawn
from the rows, so frequent keys are drawn more often. Files are written by Spark (row groups of
128 MB), by pyarrow (1 Mi rows) and by DuckDB (122,880 rows). For the first keys of each condition,
Spark's scan must return the number of rows that the reader here returns.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import duckdb_extensions
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.java_collections import ListConverter
from pyspark.sql import DataFrame, SparkSession
from tqdm import tqdm

from rewrite.demo import flights, planes
from tests.benchmarks.metrics import reads
from tests.benchmarks.report import heading, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import DATA

__all__ = ["main"]

DRAWS = {1: 3, 10: 2, 100: 1}
"""How often a number of keys is drawn."""

# A file is one partition, so that Spark keeps the order of its rows.
SETTINGS = {"spark.sql.files.minPartitionNum": "1", "spark.sql.files.maxPartitionBytes": "8g"}


@dataclass(frozen=True)
class DataSet:
    """A table, the column its rows are ordered by, what a query reads, and the conditions on it.

    `load` creates the table `raw` with at least the given rows. `dimension` returns the key column
    and lists of keys that a filter of a dimension leaves; `ranges` are conditions on dates.
    """

    name: str
    load: Callable[[Any, int], None]
    row_bytes: int
    date: str
    columns: Sequence[str]
    keys: Sequence[str]
    dimension: tuple[str, str, Callable[[Any], list[list[object]]]]
    ranges: tuple[str, Sequence[str]]


def _store_sales(db: Any, rows: int) -> None:
    duckdb_extensions.import_extension("tpcds")
    db.execute("LOAD tpcds")
    db.execute(f"CALL dsdgen(sf={-(-rows // 2_880_000)})")
    db.execute("ALTER TABLE store_sales RENAME TO raw")


def _brands(db: Any) -> list[list[object]]:
    brands = db.execute("SELECT DISTINCT i_brand_id FROM item ORDER BY 1").fetchall()
    return [
        [k for (k,) in db.execute("SELECT i_item_sk FROM item WHERE i_brand_id = ?", b).fetchall()]
        for b in Random(1).sample(brands, 2)
    ]


def _flights(db: Any, rows: int) -> None:
    one_year = flights()  # repeated as the flights of later years
    db.register("one_year", one_year)
    text = (
        "SELECT * REPLACE (year + {0} AS year), (year + {0}) * 10000 + month * 100 + day AS date "
        "FROM one_year"
    )
    db.execute(f"CREATE TABLE raw AS {text.format(0)}")
    for n in range(1, -(-rows // len(one_year))):
        db.execute(f"INSERT INTO raw {text.format(n)}")


def _engines(db: Any) -> list[list[object]]:
    rows = planes()
    return [
        rows.filter(pc.equal(rows["engine"], engine))["tailnum"].to_pylist()
        for engine in ("Turbo-prop", "Turbo-shaft", "Reciprocating")
    ]


def _events(db: Any, rows: int) -> None:
    # As in tests.benchmarks.advice: 1,500 rows at a time have the events of four tenants, of a day.
    words = "['furiously','regular','deposits','sleep','among','quick','pinto','beans','foxes']"
    batch = "(hash(i // 1500, hash(i, 1) % 4) % 500)::BIGINT AS tenant"
    db.execute(f"""
        CREATE TABLE raw AS
        SELECT
            md5(i::VARCHAR) AS event,
            md5((tenant * 1000 + (hash(i, 2) % 200)::BIGINT)::VARCHAR) AS user_id,
            tenant,
            make_timestamp(1000000 * (1700000000 + i // 1500 * 900
                + (hash(i, 3) % 90000)::BIGINT)) AS time,
            'event.' || hash(i, 4) % 40 AS type,
            (hash(i, 5) % 8)::BIGINT + 1 AS version,
            md5((hash(i, 6) >> 26)::VARCHAR) AS trace,
            -20 * ln((1 + hash(i, 7) % 99999) / 1e5) AS amount,
            array_to_string(
                [{words}[1 + (hash(i, w) % 9)::BIGINT] FOR w IN range(10, 26)], ' ') AS payload,
            time::DATE AS day
        FROM (SELECT i, {batch} FROM range({rows}) t(i)) ORDER BY i""")


def _tenants(db: Any) -> list[list[object]]:
    tenants = db.execute("SELECT DISTINCT tenant FROM raw ORDER BY 1 LIMIT 3").fetchall()
    users = "SELECT DISTINCT user_id FROM raw WHERE tenant = ? ORDER BY 1"
    return [[user for (user,) in db.execute(users, one).fetchall()] for one in tenants]


SETS = {
    each.name: each
    for each in (
        DataSet(
            "store_sales",
            _store_sales,
            44,
            "ss_sold_date_sk",
            (
                *("ss_sold_date_sk", "ss_item_sk", "ss_customer_sk", "ss_ticket_number"),
                *("ss_quantity", "ss_ext_sales_price"),
            ),
            ("ss_customer_sk", "ss_ticket_number"),
            ("items of a brand", "ss_item_sk", _brands),
            (
                "dates of a month",
                [f"ss_sold_date_sk BETWEEN {d} AND {d + 29}" for d in (2450905, 2452215)],
            ),
        ),
        DataSet(
            "flights",
            _flights,
            17,
            "date",
            ("date", "tailnum", "carrier", "dest", "dep_delay", "distance"),
            ("tailnum",),
            ("planes of an engine", "tailnum", _engines),
            ("dates of a month", [f"date BETWEEN {m}01 AND {m}31" for m in (201503, 204007)]),
        ),
        DataSet(
            "events",
            _events,
            116,
            "time",
            ("event", "user_id", "tenant", "time", "type", "amount", "day"),
            ("event", "user_id"),
            ("users of a tenant", "user_id", _tenants),
            ("one day", [f"day = DATE '2023-11-{d}'" for d in (18, 25)]),
        ),
    )
}


def main(
    sets: Sequence[str], writers: Sequence[str], megabytes: int, files: int, memory: str
) -> None:
    """Print a table for each data set."""
    for data in (SETS[name] for name in sets):
        rows = megabytes * 1_000_000 // data.row_bytes
        folder = DATA / f"row-groups-{data.name}-{rows * files}"
        folder.mkdir(parents=True, exist_ok=True)
        config = {"memory_limit": memory, "preserve_insertion_order": "true"}
        with (
            benchmark_session(SETTINGS) as spark,
            duckdb.connect(str(folder / "raw.duckdb"), config=config) as db,
        ):
            if not db.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'raw'").fetchall():
                data.load(db, rows * files)
            lines = list(_measure(spark, db, data, rows, files, writers, folder))
            heading(f"Row groups of {data.name}", files=files, rows_a_file=f"{rows:,}")
            table(HEAD, lines)


HEAD = (
    *("layout, writer, keys", "MB a file", "row groups", "files opened", "no match"),
    *("Spark skips", "still to save"),
)


def _measure(
    spark: SparkSession,
    db: Any,
    data: DataSet,
    rows: int,
    files: int,
    writers: Sequence[str],
    folder: Path,
) -> Iterator[Sequence[object]]:
    conditions = list(_conditions(db, data))
    for layout, order in (("generated", "raw"), ("by date", "sorted")):
        if order != "raw":
            db.execute(f"CREATE OR REPLACE TABLE sorted AS FROM raw ORDER BY {data.date}")
        for writer in writers:
            written = []
            for i in range(files):
                part = (
                    f"SELECT * FROM {order} WHERE rowid >= {i * rows} AND rowid < {(i + 1) * rows}"
                )
                written.append(folder / f"{writer}-{i}.parquet")
                WRITERS[writer](spark, db, part, written[-1])
            groups = [File.read(path, data.columns) for path in written]
            for name, texts in tqdm(conditions, desc=f"{layout}, {writer}", disable=None):
                counts = [_count(spark, db, groups, text, n == 0) for n, text in enumerate(texts)]
                total = Counts.add(counts)
                yield (
                    f"{layout}, {writer}, {name}",
                    f"{sum(p.stat().st_size for p in written) / files / 1e6:.0f}",
                    f"{sum(len(g.rows) for g in groups) / files:.0f}",
                    f"{total.files / len(counts):.1f} of {files}",
                    _percent(total.unmatched, total.bytes),
                    _percent(total.rows - total.scanned, total.rows),
                    _percent(total.wasted, total.read),
                )
            for path in written:
                path.unlink()


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


# --- Conditions ----------------------------------------------------------------------------------


def _conditions(db: Any, data: DataSet) -> Iterator[tuple[str, list[str]]]:
    """Names and SQL texts that Spark and DuckDB understand."""
    for column in data.keys:
        for count, draws in DRAWS.items():
            keys = [_draw(db, column, count, Random(seed)) for seed in range(draws)]
            yield f"{column}: {count}", [_is_in(column, each) for each in keys]
    name, column, find = data.dimension
    yield f"{column}: {name}", [_is_in(column, keys) for keys in find(db)]
    name, texts = data.ranges
    yield name, list(texts)


def _draw(db: Any, column: str, count: int, random: Random) -> list[object]:
    (rows,) = db.execute("SELECT count(*) FROM raw").fetchone()
    ids = random.sample(range(rows), 4 * count + 10)
    query = f"SELECT rowid, {column} FROM raw WHERE rowid IN ({', '.join(map(str, ids))})"
    values = dict(db.execute(query).fetchall())
    unique = dict.fromkeys(values[i] for i in ids if values[i] is not None)
    return list(unique)[:count]


def _is_in(column: str, keys: list[object]) -> str:
    return f"{column} IN ({', '.join(map(repr, keys))})"


# --- Writers -------------------------------------------------------------------------------------


def _by_duckdb(spark: SparkSession, db: Any, part: str, path: Path) -> None:
    db.execute(f"COPY ({part}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 122880)")


def _by_pyarrow(spark: SparkSession, db: Any, part: str, path: Path) -> None:
    pq.write_table(db.execute(part).to_arrow_table(), path, row_group_size=1 << 20)


def _by_spark(spark: SparkSession, db: Any, part: str, path: Path) -> None:
    source, target = path.with_suffix(".source"), path.with_suffix(".folder")
    _by_duckdb(spark, db, part, source)
    spark.read.parquet(str(source)).write.mode("overwrite").parquet(str(target))
    (written,) = target.glob("part-*")
    written.rename(path)
    source.unlink()
    shutil.rmtree(target)


WRITERS = {"spark": _by_spark, "pyarrow": _by_pyarrow, "duckdb": _by_duckdb}

# --- Row groups ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A Parquet file: of each row group the rows, and the bytes of some columns."""

    path: Path
    rows: Sequence[int]
    bytes: Sequence[int]

    @classmethod
    def read(cls, path: Path, columns: Sequence[str]) -> File:
        """Read the footer."""
        footer = pq.read_metadata(path)
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        chunks = [[g.column(i) for i in range(g.num_columns)] for g in groups]
        sizes = [
            sum(c.total_compressed_size for c in row if c.path_in_schema in columns)
            for row in chunks
        ]
        return cls(path, [g.num_rows for g in groups], sizes)


@dataclass(frozen=True, slots=True)
class Counts:
    """What opened files have, and what Spark reads of them after its own filters.

    `unmatched` and `wasted`: of `bytes` and `read`, those in row groups with no matching row.
    """

    files: int
    rows: int
    scanned: int
    bytes: float
    unmatched: float
    read: float
    wasted: float

    @classmethod
    def add(cls, counts: Sequence[Counts]) -> Counts:
        """Return the sums."""
        return cls(*(sum(getattr(c, name) for c in counts) for name in cls.__slots__))


def _count(spark: SparkSession, db: Any, files: Sequence[File], text: str, check: bool) -> Counts:
    matched = _match_groups(db, files, text)
    opened = [file for file in files if matched[str(file.path)]]
    if not opened:
        return Counts(0, 0, 0, 0, 0, 0, 0)
    df = spark.read.parquet(*(str(file.path) for file in opened)).where(text).selectExpr("count(*)")
    scanned, read, wasted, unmatched = 0, 0.0, 0.0, 0
    for file in opened:
        groups = matched[str(file.path)]
        unmatched += sum(size for i, size in enumerate(file.bytes) if i not in groups)
        for group, rows in _read_groups(spark, df, text.split()[0], file):
            size = file.bytes[group] * rows / file.rows[group]
            scanned += rows
            read += size
            wasted += 0 if group in groups else size
    if check:
        df.collect()
        (scan,) = reads(df)
        assert scan.rows == scanned, (text[:80], scan.rows, scanned)
    all_bytes = sum(sum(file.bytes) for file in opened)
    all_rows = sum(sum(file.rows) for file in opened)
    return Counts(len(opened), all_rows, scanned, all_bytes, unmatched, read, wasted)


def _match_groups(db: Any, files: Sequence[File], text: str) -> dict[str, set[int]]:
    """The row groups with a matching row, by the path of the file."""
    found = {}
    for file in files:
        source = f"read_parquet('{file.path}', file_row_number = true)"
        query = f"SELECT file_row_number FROM {source} WHERE {text}"
        rows = db.execute(query).fetchnumpy()["file_row_number"]
        ends = np.cumsum(file.rows)
        found[str(file.path)] = set(np.searchsorted(ends, rows, side="right").tolist())
    return found


def _read_groups(
    spark: SparkSession, df: DataFrame, column: str, file: File
) -> Iterator[tuple[int, int]]:
    """Numbers of row groups that Spark's Parquet reader reads, and how many rows it returns."""
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.parquet.hadoop
    conf = spark._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(str(file.path))
    source = hadoop.util.HadoopInputFile.fromPath(path, conf)
    options = jvm.org.apache.parquet.HadoopReadOptions.builder(conf, path)
    schema = hadoop.ParquetFileReader.readFooter(conf, path).getFileMetaData().getSchema()
    if (predicate := _convert_condition(jvm, df, schema)) is not None:
        filters = jvm.org.apache.parquet.filter2.compat.FilterCompat
        options = options.withRecordFilter(filters.get(predicate))
    reader = hadoop.ParquetFileReader.open(source, options.build())
    starts = [0, *accumulate(file.rows)]
    chosen = [c for c in schema.getColumns() if c.getPath()[0] == column]
    reader.setRequestedSchema(ListConverter().convert(chosen, spark._jvm._gateway_client))
    try:
        while (store := reader.readNextFilteredRowGroup()) is not None:
            yield starts.index(store.getRowIndexOffset().get()), store.getRowCount()
            store.close()
    finally:
        reader.close()


def _convert_condition(jvm: Any, df: DataFrame, schema: Any) -> Any:
    """The condition of the scan as Spark gives it to the Parquet reader, or None."""
    sql = jvm.org.apache.spark.sql
    none = jvm.scala.Option.empty()
    rebase = getattr(sql.catalyst.util, "RebaseDateTime$RebaseSpec")(
        sql.internal.LegacyBehaviorPolicy.CORRECTED(), none
    )
    converter = sql.execution.datasources.parquet.ParquetFilters(
        schema, True, True, True, True, 10, True, rebase
    )
    strategy = getattr(getattr(sql.execution.datasources, "DataSourceStrategy$"), "MODULE$")
    plan = df._jdf.queryExecution().sparkPlan()
    while plan.children().nonEmpty():
        plan = plan.children().head()
    predicate = None
    conditions = plan.dataFilters()
    for i in range(conditions.size()):
        translated = strategy.translateFilter(conditions.apply(i), True)
        made = converter.createFilter(translated.get()) if translated.isDefined() else none
        if made.isDefined():
            both = getattr(jvm.org.apache.parquet.filter2.predicate.FilterApi, "and")
            predicate = made.get() if predicate is None else both(predicate, made.get())
    return predicate


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--writers", nargs="+", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--megabytes", type=int, default=128, help="of a file, about")
    parser.add_argument("--files", type=int, default=2, help="of a layout")
    parser.add_argument("--memory", default="4GB", help="DuckDB's limit")
    main(**vars(parser.parse_args()))
