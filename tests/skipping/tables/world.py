"""A random table, its index, and all of its rows as each engine has them."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import ArrowScan

from skipping import SkippingIndex
from skipping.stores import identities
from skipping.stores.memory.store import MemoryStore

NAN = math.nan
DAY = datetime.date(2024, 1, 1)
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "n": pa.decimal128(9, 2),
    }
)
POOLS: dict[str, list[Any]] = {
    "i": [-(2**31), -1, 0, 1, 2, 7, 2**31 - 1],
    "l": [-(2**40), 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1],
    "f": [NAN, -0.0, 0.0, 0.5, -1.5, 1.0, 16777217.0, math.inf, 0.1],
    "d": [NAN, -0.0, 0.0, 0.5, 0.1, 1.0, 1e300, -math.inf],
    "s": ["", "a", "ab", "b", "b\U0001f600", "\U0001f600"],
    "b": [True, False],
    "day": [DAY, datetime.date(1969, 12, 31), datetime.date(2024, 1, 2)],
    "at": [datetime.datetime(2024, 1, d, tzinfo=datetime.timezone.utc) for d in (1, 2, 3)],
    "n": [Decimal("0.00"), Decimal("-1.50"), Decimal("1.50"), Decimal("99999.99")],
    "later": [1, 2, 3],
}
"""Few values of each column, so that many files have no match, and files of one value are many."""

KINDS = ("VALUE_LIST", "MIN_MAX", "BLOOM_FILTER", "VALUE_LIST")
COLUMNS = ", ".join(
    f"{name} {kind}" for name, kind in zip(POOLS, islice(cycle(KINDS), len(POOLS)), strict=True)
)
FILES, ROWS = 24, 6


def rows(random: random.Random, file: int) -> pa.Table:
    """The rows of a file; later ones have a column more."""

    def values(name: str) -> list[Any]:
        some = random.sample(POOLS[name], random.choice([1, 1, 2]))
        pool = [*some, None] if random.random() < 0.4 else some
        return [random.choice(pool) for _ in range(ROWS)]

    schema = SCHEMA if file < FILES // 2 else SCHEMA.append(pa.field("later", pa.int64()))
    numbers = list(range(file * ROWS, (file + 1) * ROWS))
    columns = [numbers, *(values(name) for name in schema.names[1:])]
    return pa.table(columns, schema=schema)


@dataclass
class World:
    """A table, its index, and all of its rows as each engine has them when it reads everything."""

    index: SkippingIndex
    folder: Path
    whole: pa.Table = field(init=False)
    skipped: int = 0

    def __post_init__(self) -> None:
        self.columns = self.index.table.columns()
        self.whole = self.index.scan().to_arrow().sort_by("id")
        self.frame = pl.DataFrame(self.whole)
        self.db = duckdb.connect()
        self.db.register("given", self.whole)
        self.db.execute("SET TimeZone = 'UTC'; CREATE TABLE whole AS SELECT * FROM given")
        self.index.scan().to_duckdb("t", self.db)
        self.lazy = self.index.scan().to_polars()
        files = self.index.files()
        self.held: dict[Any, set[int]] = {}
        for identity in identities(files):
            scan = self.index.scan()
            path = identity[0]
            if isinstance(self.index.table.table, DeltaTable):
                only = scan.files.filter(pc.equal(scan.files["path"], path))
                found = replace(scan, files=only).to_arrow()
            else:
                tasks = [t for t in scan.plan_files() if t.file.file_path == path]
                reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
                found = reader.to_table(tasks)
            self.held[identity] = set(found["id"].to_pylist())

    def has_null_float(self, id: int) -> bool:
        row = self.whole.filter(pc.field("id") == id).to_pylist()[0]
        return row["d"] is None or row["f"] is None

    def lost(self, predicate: Any, ids: set[int]) -> set[int]:
        """Rows of an answer that are in files which are pruned for a predicate."""
        gone = self.index._query.find_prunable(predicate, self.columns)
        self.skipped += len(gone)
        return {id for identity in gone for id in self.held[identity] & ids}


def delta(folder: Path) -> Any:
    for file in range(FILES):
        write_deltalake(folder, rows(random.Random(file), file), mode="append", schema_mode="merge")
    table = DeltaTable(folder)
    table.delete("id % 17 = 3")
    return table


def iceberg(folder: Path) -> Any:
    folder.mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=SCHEMA)
    for file in range(FILES):
        if file == FILES // 2:
            with table.update_schema() as update:
                update.union_by_name(SCHEMA.append(pa.field("later", pa.int64())))
        table.append(rows(random.Random(file), file))
    table.delete("id in (3, 20, 37, 54, 71)")
    return table


FORMATS: dict[str, Callable[[Path], Any]] = {"delta": delta, "iceberg": iceberg}


def ids(table: Any) -> set[int]:
    return set(table["id"].to_pylist() if isinstance(table, pa.Table) else table["id"].to_list())


def make_world(form: str, folder: Path) -> World:
    """A world of one of FORMATS."""
    store = MemoryStore(f"engines-{form}")
    return World(SkippingIndex.create(FORMATS[form](folder), COLUMNS, store=store), folder)
