"""TPC-H and TPC-DS, with the index and without: `python -m tests.benchmarks.tpc --help`.

DuckDB makes the data and knows the queries. Each fact is cut into files in three layouts: as the
generator writes it, by date, and clustered by a key. The layout decides what can be skipped: in the
generator's order most keys are in every file, so there the index is useless and must cost nothing.
Every join column of a fact has a list of values and bounds. Results are compared for each query.

The third arm, *given*, is what can be reached: the same query on plain Parquet files, those that
the query with the index opened, given as a list.

`--off static.joins report.size` compares with these settings turned off, instead of all of ours.
`--plans` only plans the queries.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import duckdb_extensions
from pyspark.sql import DataFrame, Row, SparkSession
from tqdm import tqdm

from skipping import SkippingIndex
from tests.benchmarks.metrics import Read, broadcasts, opened, reads
from tests.benchmarks.report import Timing, heading, interleaved, ratio, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import DATA

__all__ = ["main"]


@dataclass(frozen=True)
class Fact:
    """A fact table: its join columns, and what its rows are ordered by in each layout."""

    name: str
    joins: Sequence[str]
    date: str
    key: str


@dataclass(frozen=True)
class Suite:
    """A benchmark as DuckDB knows it."""

    name: str
    make: str
    queries: int
    facts: Sequence[Fact]


def _columns(prefix: str, names: str) -> list[str]:
    return [f"{prefix}_{name}" for name in names.split()]


SALES = "sold_date_sk item_sk customer_sk cdemo_sk hdemo_sk addr_sk store_sk promo_sk"
BILLED = (
    "sold_date_sk ship_date_sk item_sk bill_customer_sk bill_cdemo_sk bill_addr_sk promo_sk "
    "warehouse_sk ship_mode_sk"
)
SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "tpch",
            "dbgen",
            22,
            (
                Fact(
                    "lineitem", _columns("l", "orderkey partkey suppkey"), "l_shipdate", "l_partkey"
                ),
                Fact("orders", _columns("o", "orderkey custkey"), "o_orderdate", "o_custkey"),
            ),
        ),
        Suite(
            "tpcds",
            "dsdgen",
            99,
            (
                Fact("store_sales", _columns("ss", SALES), "ss_sold_date_sk", "ss_item_sk"),
                Fact(
                    "catalog_sales",
                    _columns("cs", f"{BILLED} call_center_sk"),
                    "cs_sold_date_sk",
                    "cs_item_sk",
                ),
                Fact(
                    "web_sales",
                    _columns("ws", f"{BILLED} web_site_sk"),
                    "ws_sold_date_sk",
                    "ws_item_sk",
                ),
                Fact(
                    "inventory",
                    _columns("inv", "date_sk item_sk warehouse_sk"),
                    "inv_date_sk",
                    "inv_item_sk",
                ),
            ),
        ),
    )
}
ARMS = ("with", "without", "given")
LAYOUTS = ("generator", "date", "key")
KINDS = "{0} VALUE_LIST(20000), {0} MIN_MAX"
DIALECT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.shuffle.partitions": "4",
}


def main(
    suite: Suite,
    layouts: Sequence[str],
    queries: Sequence[int],
    scale: float,
    files: int,
    warm: int,
    rounds: int,
    off: Sequence[str],
    *,
    given: bool,
    plans: bool,
) -> None:
    """Print a table for each layout."""
    folder = DATA / f"{suite.name}-{scale:g}-{files}"
    texts = generate(suite, scale, folder, files)
    with benchmark_session(DIALECT) as spark:
        for layout in layouts:
            _tables(spark, suite, folder, layout)
            some = {n: texts[n] for n in queries or texts}
            _measure(spark, suite, layout, some, warm, rounds, off, given=given, plans=plans)


def generate(suite: Suite, scale: float, folder: Path, files: int) -> dict[int, str]:
    """Write the Parquet files that are not there yet; the queries by their number."""
    duckdb_extensions.import_extension(suite.name)
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(folder / "raw.duckdb")) as db:
        db.execute(f"LOAD {suite.name}")
        if not db.execute("SELECT 1 FROM duckdb_tables()").fetchall():
            db.execute(f"CALL {suite.make}(sf={scale})")
        names = [
            name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        ]
        facts = {fact.name for fact in suite.facts}
        for name in names:
            if name not in facts and not (folder / "dimensions" / name).exists():
                _cut(db, name, folder / "dimensions" / name, 1)
        for fact in suite.facts:
            for layout, order in zip(LAYOUTS, (None, fact.date, fact.key), strict=True):
                target = folder / layout / fact.name
                if not target.exists():
                    _cut(db, fact.name, target, files, order)
        return dict(db.execute(f"SELECT query_nr, query FROM {suite.name}_queries()").fetchall())


def _cut(db: Any, name: str, target: Path, files: int, order: str | None = None) -> None:
    """A table's rows in a number of Parquet files, in its own order or by a column."""
    source = name
    if order is not None:
        source = "sorted"
        db.execute(f"CREATE OR REPLACE TEMP TABLE sorted AS FROM {name} ORDER BY {order}")
    (rows,) = db.execute(f"SELECT count(*) FROM {source}").fetchone()
    step = max(1, math.ceil(rows / files))
    half = target.with_name(f"{name}.half")
    half.mkdir(parents=True, exist_ok=True)
    for i in tqdm(range(files), unit="file", desc=f"{target.parent.name}/{name}", disable=None):
        some = f"FROM {source} WHERE rowid >= {i * step} AND rowid < {(i + 1) * step}"
        db.execute(f"COPY ({some}) TO '{half}/part-{i:05}.parquet' (FORMAT parquet)")
    half.rename(target)


def _tables(spark: SparkSession, suite: Suite, folder: Path, layout: str) -> None:
    """The tables of a layout as Delta tables in a database of their own, with their indexes."""
    spark.sql(f"CREATE DATABASE {suite.name}_{layout}")
    spark.sql(f"USE {suite.name}_{layout}")
    facts = {fact.name: fact for fact in suite.facts}
    for path in sorted([*(folder / "dimensions").iterdir(), *(folder / layout).iterdir()]):
        if not any((path / "_delta_log").glob("*.json")):  # nor a conversion that was cut
            spark.sql(f"CONVERT TO DELTA parquet.`{path}`")
        spark.sql(f"CREATE TABLE {path.name} USING delta LOCATION '{path}'")
        if path.name in facts:
            columns = ", ".join(KINDS.format(column) for column in facts[path.name].joins)
            SkippingIndex.create(spark, path.name, columns)


@dataclass(frozen=True)
class Run:
    """What one run of a statement gave; its DataFrame would keep all that was broadcast for it."""

    rows: list[Row]
    facts: Sequence[Read]
    broadcasts: int


def _measure(
    spark: SparkSession,
    suite: Suite,
    layout: str,
    texts: dict[int, str],
    warm: int,
    rounds: int,
    off: Sequence[str],
    *,
    given: bool,
    plans: bool,
) -> None:
    lines, other, filled = [], [], 0
    everything = {arm: [0.0] * rounds for arm in (ARMS if given else ARMS[:2])}
    first = dict.fromkeys(ARMS[:2], 0.0)
    for number, text in tqdm(texts.items(), unit="query", desc=layout, disable=None):
        last: dict[str, list[Run]] = {}
        arms: dict[str, Callable[[], object]] = {
            arm: partial(_run, spark, layout, text, arm, last, off, plans=plans) for arm in first
        }
        # What is new pays for what both need, compiled code above all: each in turn is the first.
        turned = dict(sorted(arms.items(), reverse=number % 2 == 0))
        for arm, (took, *_) in interleaved(turned, rounds=warm, warm=0).items():
            first[arm] += took
        if given:
            listed = _given(spark, suite, text)
            arms["given"] = partial(
                _run, spark, layout, listed, "given", last, ("enabled",), plans=plans
            )
        seconds = interleaved(arms, rounds=rounds, warm=int(given))
        if any(not _equal(last[arm], last["without"]) for arm in arms):
            other.append(f"q{number}")
        filled += any(run.rows for run in last["with"])
        for arm, spent in seconds.items():
            everything[arm] = [a + b for a, b in zip(everything[arm], spent, strict=True)]
        lines.append((f"q{number}", *_counts(last), *_times(seconds)))
    heading(
        suite.name,
        other_rows=", ".join(other) or "in no query",
        layout=layout,
        queries=len(texts),
        with_rows=filled,
        rounds=f"{rounds} after {warm + given}",
        index=KINDS.format("each join column"),
        without=", ".join(off),
    )
    lines.append(("all", "", "", "", "", *_times(everything)))
    head = ("query", "files", "rows joined", "MB", "broadcasts", "s", "without", "with/without")
    table((*head, "given", "with/given") if given else head, lines)
    one, another = first["with"], first["without"]
    print(f"  first runs of all: {one:.1f} s, without {another:.1f} s, ratio {one / another:.2f}")
    if other:
        raise AssertionError(f"{suite.name} in {layout} order: other rows in {', '.join(other)}")


def _equal(some: list[Run], others: list[Run]) -> bool:
    return all(same(a.rows, b.rows) for a, b in zip(some, others, strict=True))


def _run(
    spark: SparkSession,
    layout: str,
    text: str,
    arm: str,
    last: dict[str, list[Run]],
    off: Sequence[str],
    *,
    plans: bool,
) -> None:
    last[arm] = []
    for df, rows in _answers(spark, text, () if arm == "with" else off, plans=plans):
        facts = [read for read in reads(df) if f"/{layout}/" in read.location]
        last[arm].append(Run(rows, facts, broadcasts(df)))


def _answers(
    spark: SparkSession, text: str, off: Sequence[str], *, plans: bool = False
) -> Iterator[tuple[DataFrame, list[Row]]]:
    """Run or plan a query, with some settings turned off; some have two statements."""
    for name in off:
        spark.conf.set(f"spark.skipping.{name}", "false")
    try:
        for statement in filter(None, map(str.strip, text.split(";"))):
            df = spark.sql(statement)
            yield df, [] if plans else df.collect()
    finally:
        for name in off:
            spark.conf.unset(f"spark.skipping.{name}")


def _given(spark: SparkSession, suite: Suite, text: str) -> str:
    """The query on the files that it opens: of a fact that is read twice, on those of both."""
    paths: dict[str, set[str]] = {}
    for df, _ in _answers(spark, text, ()):
        for location, found in opened(df).items():
            paths.setdefault(Path(location).name, set()).update(found)
    for fact in suite.facts:
        if fact.name in paths:
            rows = spark.table(fact.name).limit(0)
            if paths[fact.name]:
                rows = spark.read.schema(rows.schema).parquet(*sorted(paths[fact.name]))
            rows.createOrReplaceTempView(f"given_{fact.name}")
            text = re.sub(rf"\b{fact.name}\b", f"given_{fact.name}", text, flags=re.IGNORECASE)
    return text


def _counts(last: dict[str, list[Run]]) -> tuple[str, ...]:
    """Files, rows and bytes of all scans of facts, with and without."""

    def both(of: Callable[[Read], float], form: str) -> str:
        sums = [sum(of(f) for run in last[arm] for f in run.facts) for arm in ("with", "without")]
        return form.format(*sums)

    return (
        both(lambda read: read.files, "{:,} of {:,}"),
        both(lambda read: read.joined, "{:,} of {:,}"),
        both(lambda read: read.bytes / 1e6, "{:,.0f} of {:,.0f}"),
        " of ".join(str(sum(r.broadcasts for r in last[arm])) for arm in ("with", "without")),
    )


def _times(seconds: dict[str, Sequence[float]] | dict[str, list[float]]) -> tuple[str, ...]:
    spent: dict[str, Timing] = dict(seconds)
    times = [f"{median(spent[arm]):.2f}" for arm in ARMS[:2]]
    times.append(ratio(spent["with"], spent["without"]))
    if "given" in spent:
        times += [f"{median(spent['given']):.2f}", ratio(spent["with"], spent["given"])]
    return tuple(times)


def same(some: list[Row], others: list[Row]) -> bool:
    """Whether two results have the same rows, in any order; doubles add up in any order, too."""
    if len(some) != len(others):
        return False
    return all(
        _alike(a, b)
        for left, right in zip(sorted(some, key=_order), sorted(others, key=_order), strict=True)
        for a, b in zip(left, right, strict=True)
    )


def _order(row: Row) -> tuple[str, ...]:
    return tuple(
        f"{value:.6g}" if isinstance(value, float | Decimal) else str(value) for value in row
    )


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    parser.add_argument("--queries", nargs="+", type=int, default=(), help="numbers; all of them")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--files", type=int, default=200, help="of each fact")
    parser.add_argument("--warm", type=int, default=3, help="first rounds, at least 1")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--off", nargs="+", default=("enabled",), help="of the other arm")
    parser.add_argument("--given", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--plans", action="store_true", help="plan the queries only")
    options = vars(parser.parse_args())
    main(SUITES[options.pop("suite")], **options)
