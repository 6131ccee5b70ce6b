"""RANGES beside MIN_MAX and VALUE_LIST: room, building, and files that are left for some keys.

`python -m tests.benchmarks.ranges [scale] [files]`: a year of flights in a file a day (UTC), the
same with one row in a hundred in any file, as late data has it, and the join columns of the facts
of TPC-DS and TPC-H, at a scale and in a number of files each. Keys are values of rows of the table.
Last, the time of a question with many keys about many files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean, median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from providers import Column, Domain, In, MinMax, Ranges, SkippingProvider, ValueList
from providers.evaluate import find_prunable_rows
from providers.index_predicate import find_prunable, map_tests
from providers.values import domain_of, encode
from rewrite.demo import flights
from tests.benchmarks.report import heading, interleaved, spread, table
from tests.benchmarks.star import DATA
from tests.benchmarks.tpc import LAYOUTS, SUITES, generate
from tests.providers.spark_oracle import sketch
from tests.providers.spark_oracle import table as sketches

__all__ = ["main"]

KEYS, DRAWS = (1, 10, 100), 20
MANY, ASKED = 100_000, 1_000  # files, and keys of a question to them
LATE = 0.01
OF_FLIGHTS = ("departure", "flight", "tailnum")
Files = Sequence[pa.Array]


def kinds(domain: Domain) -> dict[str, SkippingProvider]:
    """What is compared."""
    columns = (Column("x", domain),)
    return {
        "MIN_MAX": MinMax.of(columns, {}),
        **{f"RANGES({n})": Ranges.of(columns, {"n": n}) for n in (4, 8, 16, 32)},
        "VALUE_LIST": ValueList.of(columns, {}),
    }


def main(scale: float = 1, files: int = 200) -> None:
    """Print a table of the flights and one of the facts."""
    lines = []
    for layout, late in (("a file a day", 0.0), (f"and {LATE:.0%} late", LATE)):
        for name, parts in _flights(late):
            for kind, measured in _measured(parts).items():
                lines.append((f"{name}, {layout}: {kind}", *_row(measured)))
    head = ("files that are left of 366 for", *(f"{k} keys" for k in KEYS), "bytes a file", "ms")
    heading("Flights", rows=len(flights()), columns=", ".join(OF_FLIGHTS))
    table(head, lines)
    for suite in SUITES.values():
        folder = DATA / f"{suite.name}-{scale:g}-{files}"
        generate(suite, scale, folder, files)
        lines = []
        for layout in LAYOUTS:
            found: dict[str, list[list[float]]] = {}
            for fact in suite.facts:
                paths = sorted((folder / layout / fact.name).glob("*.parquet"))
                for column in fact.joins:
                    parts = [pq.read_table(p, columns=[column])[column] for p in paths]
                    for kind, measured in _measured(parts).items():
                        found.setdefault(kind, []).append(measured)
            for kind, of_columns in found.items():
                averages = [mean(values) for values in zip(*of_columns, strict=True)]
                lines.append((f"{layout}: {kind}", *_row(averages)))
        columns = sum(len(fact.joins) for fact in suite.facts)
        heading(suite.name, scale=scale, files_of_a_fact=files, join_columns=columns)
        table((f"files that are left of {files} for", *head[1:]), lines)

    lines = [(name, spread(seconds, 1, 1e3)) for name, seconds in _query().items()]
    heading("IndexQuery", files=MANY, keys=ASKED, rounds=9)
    table(("kind, of numbers", "ms"), lines)


def _query() -> dict[str, list[float]]:
    """Seconds of a question about many files, on fields that are at hand."""
    rng = np.random.default_rng(3)
    keys = pa.array(rng.integers(0, 1 << 40, ASKED))
    asks = {}
    for name, kind in kinds(Domain("integer", pa.int64())).items():
        if isinstance(kind, ValueList):
            continue  # its terms are up to the store
        *ends, nulls = kind.fields()
        values = np.sort(rng.integers(0, 1 << 40, (MANY, len(ends))), axis=1)
        columns = {f"s0_{end.name}": values[:, i] for i, end in enumerate(ends)}
        known = {"s0_known": np.ones(MANY, np.bool_), f"s0_{nulls.name}": np.zeros(MANY, np.int64)}
        asks[name] = partial(_left, kind, pa.table({**columns, **known}), keys)
    return interleaved(asks, rounds=9)


def _row(measured: Sequence[float]) -> tuple[str, ...]:
    *kept, size, seconds = measured
    return (*(f"{n:.1f}" for n in kept), f"{size:,.0f}", f"{1e3 * seconds:.2f}")


def _flights(late: float) -> Iterator[tuple[str, Files]]:
    """Each column, a file a day; of the rows a part is in the file of any other day."""
    rows = flights()
    minutes = pc.multiply(rows["minute"].cast(pa.duration("s")), 60)
    rows = rows.append_column("departure", pc.add(rows["time_hour"], minutes))
    rng = np.random.default_rng(1)
    day = np.unique(pc.floor_temporal(rows["time_hour"], unit="day"), return_inverse=True)[1]
    moved = rng.random(len(day)) < late
    day = np.where(moved, rng.integers(0, day.max() + 1, len(day)), day)
    for name in OF_FLIGHTS:
        column = rows[name].combine_chunks()
        yield name, [column.filter(pa.array(day == d)) for d in range(day.max() + 1)]


def _measured(parts: Sequence[pa.ChunkedArray]) -> dict[str, list[float]]:
    """Of each kind the files left for so many keys, the bytes and the seconds of a file."""
    domain = domain_of(parts[0].type)
    assert domain is not None
    values = [encode(part) for part in parts]
    everything = pa.concat_arrays(values).drop_null()
    rng = np.random.default_rng(7)
    drawn = [
        [everything.take(pa.array(rng.integers(0, len(everything), k))) for _ in range(DRAWS)]
        for k in KEYS
    ]
    found = {}
    for name, kind in kinds(domain).items():
        seconds, kept = [], []
        for part in parts:
            start = time.perf_counter()
            kept.append(sketch(kind, [part]))
            seconds.append(time.perf_counter() - start)
        entries = sketches(kind, kept)
        left = [mean(_left(kind, entries, keys) for keys in of_k) for of_k in drawn]
        found[name] = [*left, entries.nbytes / len(parts), median(seconds)]
    return found


def _left(kind: SkippingProvider, entries: pa.Table, keys: pa.Array) -> int:
    asked = kind.rewrite(In.of("x", keys))
    assert asked is not None
    named = map_tests(asked, lambda test: replace(test, sketch=f"s0{test.sketch}"))
    gone = find_prunable(
        named, lambda test: BitMap(np.flatnonzero(find_prunable_rows(test, entries)))
    )
    return len(entries) - len(gone)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*map(float, given[:1]), *map(int, given[1:]))
