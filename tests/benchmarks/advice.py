"""How good ANALYZE's choice is: `python -m tests.benchmarks.advice [data set ...]`.

For ten data sets of eight columns each, and budgets of 1, 5 and 20 % of the data: the bytes that
held-out queries do not read with the advised index types, as a fraction of the best subset's. That
is found by trying every subset, with one index type for a column. *Recorded* advice knows other
queries of the same workload, *typical* advice knows none, and is measured by typical queries. The
advice sees a sample of the files; benefit and size are evaluated on all of them. No Spark runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from providers.evaluate import find_prunable_rows
from providers.index_predicate import find_prunable
from providers.predicate import Between, Compare, In, Leaf
from rewrite.demo import flights
from skipping.advise.analyze import list_kinds
from skipping.advise.choose import OPEN_COST
from skipping.advise.history import RANGE, VALUES, RecordedPredicate
from skipping.advise.questions import sketches_of, translate_leaves
from skipping.advise.recommend import (
    ColumnAdvice,
    advise,
    format_type,
    measure_size,
    recommend,
)
from skipping.advise.sample import Sample, choose_files, measure_file
from skipping.tables import PhysicalColumn, TableColumn, files_table
from tests.benchmarks.report import heading, table

__all__ = ["main"]

BUDGETS = (0.01, 0.05, 0.2)
SAMPLED = 24
QUERIES = 40
ROWS = 1_500
FILES = 48

Random = np.random.Generator
Condition = tuple[str, str, float]
"""A column, `=`, `in` or `range`, and the number of keys or the fraction of the rows."""


@dataclass(frozen=True)
class DataSet:
    """Files, the Spark types of the indexed columns, and the workload: conditions joined by AND.

    A workload's queries are equally frequent. A table with `bounds` has those of Delta or Iceberg.
    """

    name: str
    files: Callable[[Random], Iterator[pa.Table]]
    types: Mapping[str, str]
    workload: Sequence[Sequence[Condition]]
    bounds: bool = False


# --- Data ----------------------------------------------------------------------------------------


def _flights(random: Random) -> Iterator[pa.Table]:
    rows = flights()
    day = pc.add(pc.multiply(rows["month"], 100), rows["day"])
    rows = rows.append_column("date", day.cast(pa.int32()))
    names = [*FLIGHTS, "arr_delay", "air_time", "sched_dep_time", "arr_time", "hour", "minute"]
    for value in sorted(pc.unique(day).to_pylist())[::5]:
        yield rows.filter(pc.equal(day, value)).select(names)


FLIGHTS = {
    "date": "int",
    "tailnum": "string",
    "dest": "string",
    "carrier": "string",
    "flight": "bigint",
    "dep_time": "bigint",
    "distance": "bigint",
    "dep_delay": "bigint",
}
WORDS = ("furiously", "regular", "deposits", "sleep", "among", "quick", "pinto", "beans", "foxes")


def _words(random: Random, rows: int, count: int = 6) -> pa.Array:
    picked = random.integers(0, len(WORDS), (rows, count))
    return pa.array([" ".join(WORDS[i] for i in row) for row in picked])


def _hex(numbers: npt.NDArray[np.int64]) -> pa.Array:
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    other = mixed ^ (mixed >> np.uint64(31))
    return pa.array([f"{a:016x}{b:016x}" for a, b in zip(mixed, other, strict=True)])


def _texts(pattern: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array([pattern.format(n) for n in numbers.tolist()])


def _seconds(numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(numbers * 1_000_000 + 1_700_000_000_000_000, pa.timestamp("us", "UTC"))


def _zipf(random: Random, most: int, rows: int = ROWS) -> npt.NDArray[np.int64]:
    return np.minimum(random.zipf(1.3, rows), most).astype(np.int64) * 7_919 % most


def _lineitem(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):  # by date
        shipped = 8_000 + i * 26 + random.integers(0, 26, ROWS)
        part = random.integers(1, 20_000, ROWS)
        yield pa.table(
            {
                "l_orderkey": random.integers(1, 600_000, ROWS),
                "l_partkey": part,
                "l_suppkey": part % 100 * 10 + random.integers(0, 4, ROWS),
                "l_shipdate": pa.array(shipped.astype(np.int32), pa.date32()),
                "l_receiptdate": pa.array(
                    (shipped + random.integers(1, 30, ROWS)).astype(np.int32), pa.date32()
                ),
                "l_extendedprice": random.uniform(900, 100_000, ROWS).round(2),
                "l_quantity": random.integers(1, 51, ROWS),
                "l_shipmode": _texts("MODE {}", random.integers(0, 7, ROWS)),
                "l_comment": _words(random, ROWS),
            }
        )


def _orders(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):  # as generated: by key
        yield pa.table(
            {
                "o_orderkey": np.arange(i * ROWS, (i + 1) * ROWS) * 4,
                "o_custkey": random.integers(1, 50_000, ROWS),
                "o_orderdate": pa.array(
                    random.integers(8_000, 10_500, ROWS).astype(np.int32), pa.date32()
                ),
                "o_totalprice": random.uniform(900, 500_000, ROWS).round(2),
                "o_orderpriority": _texts("{}-PRIORITY", random.integers(1, 6, ROWS)),
                "o_clerk": _texts("Clerk#{:09}", random.integers(0, 4_000, ROWS)),
                "o_orderstatus": _texts("{}", random.integers(0, 3, ROWS)),
                "o_shippriority": random.integers(0, 2, ROWS),
                "o_comment": _words(random, ROWS, 10),
            }
        )


def _store_sales(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):  # by date; a file has some of the stores
        stores = random.choice(400, 12, replace=False)
        yield pa.table(
            {
                "ss_sold_date_sk": 2_450_000 + i * 19 + random.integers(0, 19, ROWS),
                "ss_item_sk": random.integers(1, 18_000, ROWS),
                "ss_customer_sk": _zipf(random, 30_000),
                "ss_store_sk": random.choice(stores, ROWS),
                "ss_promo_sk": random.integers(1, 300, ROWS),
                "ss_ticket_number": i * ROWS // 2 + random.integers(0, ROWS, ROWS),
                "ss_quantity": random.integers(1, 101, ROWS),
                "ss_sales_price": random.uniform(0, 200, ROWS).round(2),
                "ss_ext_tax": random.uniform(0, 90, ROWS),
                "ss_net_profit": random.uniform(-90, 90, ROWS),
            }
        )


def _web_logs(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):
        visitors = random.integers(0, 1 << 24, 150)
        visitor = random.choice(visitors, ROWS)
        url = _zipf(random, 5_000)
        yield pa.table(
            {
                "time": _seconds(i * 3_600 + np.sort(random.integers(0, 3_600, ROWS))),
                "ip": pa.array([f"10.{v >> 16}.{v >> 8 & 255}.{v & 255}" for v in visitor]),
                "url": _texts("https://shop.example.org/articles/{:05}", url),
                "session": _hex(visitor * 10_000 + i),
                "status": random.choice([200, 200, 200, 301, 404, 500], ROWS),
                "agent": _texts("Mozilla/5.0 (build {})", _zipf(random, 300)),
                "size": random.integers(100, 1 << 20, ROWS),
                "seconds": random.exponential(0.2, ROWS),
                "referer": _words(random, ROWS),
            }
        )


def _events(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):  # a file has events of four tenants
        tenants = random.choice(500, 4, replace=False)
        tenant = random.choice(tenants, ROWS)
        user = tenant * 1_000 + random.integers(0, 200, ROWS)
        yield pa.table(
            {
                "event": _hex(np.arange(i * ROWS, (i + 1) * ROWS)),
                "user": _hex(user),
                "tenant": tenant,
                "time": _seconds(i * 900 + random.integers(0, 90_000, ROWS)),
                "type": _texts("event.{}", random.integers(0, 40, ROWS)),
                "version": random.integers(1, 9, ROWS) + i // 8,
                "trace": _hex(random.integers(0, 1 << 40, ROWS) // 4),
                "amount": random.exponential(20.0, ROWS),
                "payload": _words(random, ROWS, 16),
            }
        )


def _sensors(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):  # a file has the devices of one of twelve gateways
        gateway = i % 12
        code = random.integers(0, 200, ROWS) + 1_000 * (i % 7)
        rare = pa.array(random.random(ROWS) > 0.01)
        yield pa.table(
            {
                "device": gateway * 5_000 + random.integers(0, 40, ROWS) * 97,
                "gateway": _texts("gw-{:03}", np.full(ROWS, gateway)),
                "time": _seconds(i // 12 * 86_400 + random.integers(0, 86_400, ROWS)),
                "temperature": random.normal(20, 5, ROWS),
                "pressure": random.normal(1_013, 9, ROWS),
                "battery": random.integers(0, 101, ROWS),
                "firmware": _texts("v1.{}", random.integers(0, 3, ROWS) + i // 30),
                "error": pc.if_else(rare, pa.scalar(None, pa.int64()), pa.array(code)),
                "vibration": random.normal(0, 1, ROWS),
            }
        )


def _payments(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):
        account = random.integers(0, 40_000, ROWS)
        yield pa.table(
            {
                "number": np.arange(i * ROWS, (i + 1) * ROWS) + 10**9,
                "account": _texts("DE{:020}", account * 1_000_003 % 10**15),
                "merchant": random.choice(random.integers(0, 30_000, 250), ROWS),
                "terminal": random.integers(0, 60_000, ROWS),
                "time": _seconds(i * 7_200 + random.integers(0, 7_200, ROWS)),
                "amount": random.exponential(40, ROWS).round(2),
                "currency": _texts("C{:02}", _zipf(random, 30)),
                "reference": _hex(random.integers(0, 1 << 50, ROWS)),
                "memo": _words(random, ROWS, 4),
            }
        )


def _tickets(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):  # new rows, and updates of some old ones
        count = ROWS * 4 // 5
        new = np.arange(i * count, (i + 1) * count)
        old = random.integers(0, max(1, i * count), 8)
        number = np.concatenate([new, random.choice(old, ROWS - len(new))])
        customer = random.choice(random.integers(0, 90_000, 600), ROWS)
        yield pa.table(
            {
                "ticket": number,
                "customer": customer,
                "email": _texts("User{0}@Example{0}.org", customer),
                "updated": _seconds(i * 3_600 + random.integers(0, 3_600, ROWS)),
                "opened": _seconds(number * 2 + random.integers(0, 60, ROWS)),
                "status": _texts("{}", random.integers(0, 5, ROWS)),
                "region": _texts("region-{:02}", (i * 3 + random.integers(0, 4, ROWS)) % 60),
                "priority": random.integers(1, 6, ROWS),
                "text": _words(random, ROWS, 12),
            }
        )


def _variants(random: Random) -> Iterator[pa.Table]:
    for i in range(FILES):  # sorted by chromosome and position, a batch of samples in each
        start = i * 2_600_000
        position = start + np.sort(random.integers(0, 2_600_000, ROWS))
        yield pa.table(
            {
                "chromosome": _texts("chr{}", position // 11_000_000),
                "position": position % 11_000_000,
                "gene": _texts("GENE{:05}", position // 20_000),
                "sample": _texts("S{:05}", random.choice(random.integers(0, 3_000, 60), ROWS)),
                "quality": random.normal(40, 9, ROWS),
                "depth": random.poisson(30, ROWS).astype(np.int64),
                "rs": random.integers(0, 1 << 30, ROWS),
                "filter": _texts("{}", random.integers(0, 4, ROWS)),
                "info": _words(random, ROWS, 5),
            }
        )


def _make_types(longs: str = "", texts: str = "", **others: str) -> dict[str, str]:
    return {
        **dict.fromkeys(longs.split(), "bigint"),
        **dict.fromkeys(texts.split(), "string"),
        **others,
    }


SETS = (
    DataSet(
        "flights",
        _flights,
        FLIGHTS,
        (
            [("tailnum", "=", 1)],
            [("tailnum", "in", 10)],
            [("dest", "=", 1), ("carrier", "=", 1)],
            [("date", "range", 0.05)],
            [("flight", "=", 1)],
            [("dep_time", "range", 0.05)],
        ),
    ),
    DataSet(
        "lineitem",
        _lineitem,
        _make_types(
            "l_orderkey l_partkey l_suppkey l_quantity",
            "l_shipmode",
            l_shipdate="date",
            l_receiptdate="date",
            l_extendedprice="double",
        ),
        (
            [("l_orderkey", "=", 1)],
            [("l_orderkey", "in", 20)],
            [("l_partkey", "=", 1)],
            [("l_partkey", "in", 30)],
            [("l_shipdate", "range", 0.1)],
            [("l_receiptdate", "range", 0.05), ("l_shipmode", "in", 2)],
            [("l_quantity", "range", 0.4), ("l_shipdate", "range", 0.15)],
        ),
        bounds=True,
    ),
    DataSet(
        "orders",
        _orders,
        _make_types(
            "o_orderkey o_custkey o_shippriority",
            "o_orderpriority o_clerk o_orderstatus",
            o_orderdate="date",
            o_totalprice="double",
        ),
        (
            [("o_custkey", "=", 1)],
            [("o_custkey", "in", 10)],
            [("o_orderkey", "=", 1)],
            [("o_orderkey", "range", 0.02)],
            [("o_clerk", "=", 1)],
            [("o_orderdate", "=", 1)],
            [("o_orderdate", "range", 0.05), ("o_orderpriority", "=", 1)],
        ),
    ),
    DataSet(
        "store_sales",
        _store_sales,
        _make_types(
            "ss_sold_date_sk ss_item_sk ss_customer_sk ss_store_sk ss_promo_sk ss_ticket_number "
            "ss_quantity",
            ss_sales_price="double",
        ),
        (
            [("ss_item_sk", "in", 10)],
            [("ss_customer_sk", "=", 1)],
            [("ss_customer_sk", "in", 40)],
            [("ss_store_sk", "in", 3)],
            [("ss_store_sk", "=", 1), ("ss_sold_date_sk", "range", 0.1)],
            [("ss_ticket_number", "=", 1)],
            [("ss_promo_sk", "in", 20)],
        ),
    ),
    DataSet(
        "web logs",
        _web_logs,
        _make_types("status size", "ip url session agent", time="timestamp", seconds="double"),
        (
            [("ip", "=", 1)],
            [("session", "=", 1)],
            [("url", "=", 1)],
            [("url", "in", 10), ("time", "range", 0.2)],
            [("time", "range", 0.02)],
            [("agent", "=", 1), ("status", "=", 1)],
        ),
        bounds=True,
    ),
    DataSet(
        "events",
        _events,
        _make_types("tenant version", "event user type trace", time="timestamp", amount="double"),
        (
            [("event", "=", 1)],
            [("event", "in", 10)],
            [("user", "=", 1)],
            [("tenant", "=", 1), ("type", "=", 1)],
            [("trace", "=", 1)],
            [("time", "range", 0.02)],
            [("version", "=", 1)],
        ),
    ),
    DataSet(
        "sensors",
        _sensors,
        _make_types(
            "device battery error",
            "gateway firmware",
            time="timestamp",
            temperature="double",
            pressure="double",
        ),
        (
            [("device", "=", 1)],
            [("device", "in", 10), ("time", "range", 0.1)],
            [("error", "=", 1)],
            [("gateway", "=", 1)],
            [("firmware", "=", 1), ("battery", "range", 0.1)],
            [("temperature", "range", 0.02)],
        ),
    ),
    DataSet(
        "payments",
        _payments,
        _make_types(
            "number merchant terminal",
            "account currency reference",
            time="timestamp",
            amount="double",
        ),
        (
            [("account", "=", 1)],
            [("account", "in", 5)],
            [("merchant", "=", 1)],
            [("merchant", "in", 30)],
            [("terminal", "=", 1), ("time", "range", 0.3)],
            [("reference", "=", 1)],
            [("number", "=", 1)],
        ),
        bounds=True,
    ),
    DataSet(
        "tickets",
        _tickets,
        _make_types(
            "ticket customer priority",
            "email status region",
            updated="timestamp",
            opened="timestamp",
        ),
        (
            [("ticket", "=", 1)],
            [("ticket", "in", 20)],
            [("customer", "=", 1)],
            [("email", "=", 1)],
            [("region", "=", 1), ("status", "=", 1)],
            [("opened", "range", 0.05)],
            [("updated", "range", 0.02)],
        ),
    ),
    DataSet(
        "variants",
        _variants,
        _make_types("position depth rs", "chromosome gene sample filter", quality="double"),
        (
            [("chromosome", "=", 1), ("position", "range", 0.01)],
            [("gene", "=", 1)],
            [("gene", "in", 20)],
            [("sample", "=", 1)],
            [("sample", "in", 8), ("chromosome", "=", 1)],
            [("rs", "=", 1)],
        ),
    ),
)


# --- Queries -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """Leaves joined by AND, by column, with their conditions."""

    leaves: Sequence[tuple[Condition, Leaf]]


def _draw(
    random: Random, samples: Mapping[str, Sample], workload: Sequence[Sequence[Condition]]
) -> list[Query]:
    """Draw queries with the conditions of a workload, equally often."""
    times = -(-QUERIES // len(workload))
    return [
        Query([(c, _leaf(random, samples[c[0]], c)) for c in conditions])
        for conditions in workload
        for _ in range(times)
    ]


def _leaf(random: Random, sample: Sample, condition: Condition) -> Leaf:
    _, form, amount = condition
    rows = sample.files["drawn"].combine_chunks().flatten()
    if form == "range":
        ordered = rows.take(pc.sort_indices(rows))
        width = int(amount * len(ordered))
        start = int(random.integers(len(ordered) - width))
        return Between("", ordered[start].as_py(), ordered[start + width].as_py())
    picked = rows.take(pa.array(random.integers(len(rows), size=int(amount))))
    return In.of("", picked) if form == "in" else Compare("", "=", picked[0].as_py())


def _typical(types: Mapping[str, str]) -> list[list[Condition]]:
    forms: dict[bool, list[tuple[str, float]]] = {
        False: [("=", 1), ("in", 10), ("range", 0.1)],
        True: [("range", 0.1)],
    }
    return [[(n, *form)] for n, type in types.items() for form in forms[type == "double"]]


class Table:
    """All files of a data set, with the sketches of each index type."""

    def __init__(self, data: DataSet, folder: Path) -> None:
        random = np.random.default_rng(11)
        paths, sizes = [], []
        for i, rows in enumerate(data.files(random)):
            path = folder / f"{i}.parquet"
            pq.write_table(rows, path)
            paths.append(f"file:{path}")
            sizes.append(path.stat().st_size)
        self.data = data
        self.sizes = np.array(sizes, np.int64)
        self.files = files_table(paths, sizes, [{}] * len(paths))
        self.bytes = int(self.sizes.sum())
        chosen = choose_files(self.files, SAMPLED)["path"]
        self.samples: dict[str, Sample] = {}
        self.sampled: dict[str, Sample] = {}
        for name, type in data.types.items():
            bounded = 32 if data.bounds else None
            column = TableColumn(name, name, type, PhysicalColumn((name,)), bounded=bounded)
            works = list_kinds(column, ())
            rows = [
                pa.ipc.open_stream(measure_file({**file, "file": i}, works) or b"").read_all()
                for i, file in enumerate(self.files.to_pylist())
            ]
            seen = pa.concat_tables(rows).combine_chunks()
            self.samples[name] = Sample(tuple(works), seen, 0)
            some = seen.filter(pc.is_in(seen["path"], value_set=chosen.combine_chunks()))
            self.sampled[name] = Sample(tuple(works), some, 0)
        self._sketches = {
            (name, i): sketches_of(work, sample.files)
            for name, sample in self.samples.items()
            for i, work in enumerate(sample.work)
        }

    def prune(self, name: str, i: int, leaf: Leaf) -> BitMap:
        """Return the files that an index type of a column prunes."""
        tests = translate_leaves(self.samples[name].work[i], [leaf])
        if tests is None:
            return BitMap()
        sketches = self._sketches[name, i]
        return BitMap(
            find_prunable(
                tests, lambda test: BitMap(np.flatnonzero(find_prunable_rows(test, sketches)))
            )
        )

    def prune_by_bounds(self, query: Query) -> BitMap:
        """Return the files that the table itself prunes."""
        found = BitMap()
        for (name, _, _), leaf in query.leaves if self.data.bounds else ():
            works = self.samples[name].work
            (i,) = (i for i, work in enumerate(works) if work.indexed.kind == "MIN_MAX")
            found |= self.prune(name, i, leaf)
        return found

    def advise(self, history: Sequence[RecordedPredicate] | None) -> list[ColumnAdvice]:
        """Return the measured columns; with a history or, if it is None, for typical queries."""
        return [
            advise(
                self.sampled[name],
                len(self.files),
                [each for each in history or () if each.identity == name],
                typical=history is None,
            )
            for name in self.data.types
        ]


def _record(table: Table, queries: Sequence[Query]) -> list[RecordedPredicate]:
    """Return what a session records of these queries."""
    found: dict[str, list[float]] = {}
    for query in queries:
        opened = len(table.files) - len(gone := table.prune_by_bounds(query))
        size = table.bytes - int(table.sizes[np.array(gone, np.int64)].sum())
        for (name, form, amount), _ in query.leaves:
            condition = f"{name} {'BETWEEN' if form == 'range' else form}"
            seen = found.setdefault(condition, [0, 0, 0, 0])
            for i, more in enumerate((1, opened, size, 1 if form == "range" else amount)):
                seen[i] += more
    return [
        RecordedPredicate(
            condition,
            name := condition.partition(" ")[0],
            name,
            False,
            RANGE if condition.endswith("BETWEEN") else VALUES,
            int(scans),
            opened,
            size,
            keys / scans,
        )
        for condition, (scans, opened, size, keys) in found.items()
    ]


# --- The best subset -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """An index type of a column: its size, and which files it prunes for which queries."""

    column: str
    spelling: str
    bytes: float
    pruned: int
    """A bit for each query and file."""


class Evaluation:
    """Benefits of subsets for some queries, beyond what the table itself prunes."""

    def __init__(self, table: Table, queries: Sequence[Query]) -> None:
        # The sizes of files differ by less than the cost to open one, so an average does.
        self._mean = table.bytes / len(table.files) + OPEN_COST
        self._own = [table.prune_by_bounds(query) for query in queries]
        self._together = _connect(queries, table.data.types)
        self.read = self._mean * sum(len(table.files) - len(own) for own in self._own)
        self.candidates: dict[str, list[Candidate]] = {}
        for name, sample in table.samples.items():
            self.candidates[name] = [
                Candidate(
                    name,
                    format_type(work),
                    len(table.files) * measure_size(work, sample),
                    self._prune(table, queries, name, i),
                )
                for i, work in enumerate(sample.work)
            ]

    def _prune(self, table: Table, queries: Sequence[Query], name: str, i: int) -> int:
        bits = BitMap()
        for n, (query, own) in enumerate(zip(queries, self._own, strict=True)):
            pruned = BitMap()
            for (column, _, _), leaf in query.leaves:
                if column == name:
                    pruned |= table.prune(name, i, leaf)
            bits |= (pruned - own).shift(n * len(table.files))
        return sum(1 << bit for bit in bits)

    def benefit_of(self, chosen: Sequence[tuple[str, str]]) -> tuple[float, float]:
        """Return (benefit, size) of some columns with index types."""
        taken = [
            c for cs in self.candidates.values() for c in cs if (c.column, c.spelling) in chosen
        ]
        pruned = 0
        for candidate in taken:
            pruned |= candidate.pruned
        return self._mean * pruned.bit_count(), sum(c.bytes for c in taken)

    def find_best(self, budget: float) -> float:
        """Return the benefit of the best of all subsets.

        Columns that no query has together add up, so their subsets are combined without those that
        are larger than others and save no more.
        """
        best = [(0.0, 0)]
        for columns in self._together:
            subsets = [(0.0, 0)]
            for column in columns:
                subsets += [
                    (size + c.bytes, pruned | c.pruned)
                    for size, pruned in subsets
                    for c in _find_rivals(self.candidates[column])
                    if size + c.bytes <= budget
                ]
            counted = _frontier((size, pruned.bit_count()) for size, pruned in subsets)
            best = _frontier(
                (size + more, saved + further)
                for size, saved in best
                for more, further in counted
                if size + more <= budget
            )
        return self._mean * best[-1][1]


def _frontier(sizes: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return (size, saved) in ascending order, without those that save no more than a smaller."""
    found: list[tuple[float, int]] = []
    for size, saved in sorted(sizes, key=lambda pair: (pair[0], -pair[1])):
        if not found or saved > found[-1][1]:
            found.append((size, saved))
    return found


def _connect(queries: Sequence[Query], columns: Iterable[str]) -> list[set[str]]:
    """Return groups of columns: those of one query are in one group."""
    groups = [{column} for column in columns]
    for query in queries:
        names = {name for (name, _, _), _ in query.leaves}
        touched = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names]
        groups.append(set().union(*touched))
    return groups


def _find_rivals(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Drop those that prune nothing, or nothing that a smaller one does not prune, too."""
    found: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: c.bytes):
        if candidate.pruned and all(candidate.pruned & ~other.pruned for other in found):
            found.append(candidate)
    return found[::-1]


def main(*names: str) -> None:
    """Print a table of each kind of advice."""
    rows: dict[str, list[list[object]]] = {"recorded": [], "typical": []}
    for data in SETS:
        if names and data.name not in names:
            continue
        with TemporaryDirectory() as folder:
            made = Table(data, Path(folder))
        for how, printed in rows.items():
            printed.append([data.name, len(made.files), f"{made.bytes / 1e6:.1f}"])
            for measured in _measure(made, how):
                printed[-1].extend(measured)
    head = ["data set", "files", "MB"]
    for budget in BUDGETS:
        head += [f"{budget:.0%}: best", "advised", "of best", "size"]
    for how, printed in rows.items():
        heading(f"Bytes that queries do not read, {how} advice", sampled=SAMPLED, queries=QUERIES)
        table(head, printed)


def _measure(made: Table, how: str) -> Iterator[list[object]]:
    workload = made.data.workload if how == "recorded" else _typical(made.data.types)
    random = np.random.default_rng(5)
    past, held_out = (_draw(random, made.samples, workload) for _ in range(2))
    columns = made.advise(_record(made, past) if how == "recorded" else None)
    evaluation = Evaluation(made, held_out)
    for budget in BUDGETS:
        best = evaluation.find_best(budget * made.bytes)
        chosen = [
            (column.name, kind.spelling)
            for column in recommend(columns, len(made.files), budget * made.bytes)
            for kind in column.all_advised
        ]
        benefit, size = evaluation.benefit_of(chosen)
        share = benefit / best if best else 1.0
        print(f"{made.data.name}, {how}, {budget:.0%}: {share:.1%}", chosen, file=sys.stderr)
        yield [
            f"{best / evaluation.read:.1%}",
            f"{benefit / evaluation.read:.1%}",
            f"{share:.1%}",
            f"{size / made.bytes:.2%}",
        ]


if __name__ == "__main__":
    main(*sys.argv[1:])
