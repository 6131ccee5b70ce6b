"""Each engine on each format, with each form of filter: its rows, and the files it opens.

`python -m tests.skipping.tables.matrix` prints the table of `docs/quickstart.md`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from skipping import SkippingIndex
from skipping.stores.memory.store import MemoryStore

__all__ = ["ASKED", "ENGINES", "FORMATS", "check", "check_stream", "indexed", "table"]

FILES, ROWS = 12, 40
KEYS = [17, 29]
"""Both in file 5."""
LIST = [29, 31, *range(100_000, 100_498)]
"""500 values, of which two are there."""

ASKED: dict[str, str] = {
    "one value": "h = 17",
    "IN with 500 values": f"h IN ({', '.join(map(str, LIST))})",
    "range": "r BETWEEN 70 AND 90",
    "OR": "h = 17 OR r >= 1180",
    "keys": "h IN (17, 29)",
}
"""The filters as SQL; those of a join as the list of its keys."""

NEEDED = {"one value": {5}, "IN with 500 values": {5, 7}, "range": {0}, "OR": {5, 11}, "keys": {5}}
"""The files with a matching row, which are those that the index leaves."""

COLUMNS = "h VALUE_LIST, r MIN_MAX"


def rows(file: int) -> pa.Table:
    """`h` of the whole range in each file, `r` of a range of its own, a null in each."""
    numbers = range(ROWS)
    return pa.table(
        {
            "id": pa.array([file * ROWS + n for n in numbers], pa.int64()),
            "h": pa.array([file + n * FILES if n else None for n in numbers], pa.int64()),
            "r": pa.array([float(file * 100 + n * 2.5) if n else None for n in numbers]),
        }
    )


def delta(folder: Path, rows: Callable[[int], pa.Table] = rows, files: int = FILES) -> Any:
    """A table of some files, each with the rows of its number."""
    from deltalake import DeltaTable, write_deltalake

    for file in range(files):
        write_deltalake(folder, rows(file), mode="append")
    return DeltaTable(folder)


def iceberg(folder: Path, rows: Callable[[int], pa.Table] = rows, files: int = FILES) -> Any:
    """As above."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=rows(0).schema)
    for file in range(files):
        table.append(rows(file))
    return table


def parquet(folder: Path) -> Any:
    """With a dictionary, which the other formats decode, and not every engine knows."""
    folder.mkdir()
    for file in range(FILES):
        path, kinds = folder / f"{file}.parquet", pa.array(["a", "b"] * (ROWS // 2))
        pq.write_table(rows(file).append_column("kind", kinds.dictionary_encode()), path)
        os.utime(path, (1_700_000_000, 1_700_000_000))  # as one that is not written any more
    return str(folder)


FORMATS: dict[str, Callable[[Path], Any]] = {
    "Delta": delta,
    "Iceberg v2": iceberg,
    "Parquet": parquet,
}


def indexed(format: str, folder: Path) -> SkippingIndex:
    store = MemoryStore(f"matrix {format}")
    return SkippingIndex.create(FORMATS[format](folder), COLUMNS, store=store)


def spoiled(path: Path, content: bytes) -> bytes:
    """Garbage; but a folder's schema is in the footer of its first file, so that stays."""
    if path.name != "0.parquet":
        return b"x" * len(content)
    footer = int.from_bytes(content[-8:-4], "little") + 8
    return b"x" * (len(content) - footer) + content[-footer:]


@contextmanager
def only(folder: Path, needed: set[int]) -> Iterator[None]:
    """Meanwhile files that are not needed are garbage, of the same size and time."""
    there = {}
    for path in folder.rglob("*.parquet"):
        if pq.read_table(path, columns=["id"])["id"][0].as_py() // ROWS not in needed:
            there[path] = path.read_bytes(), path.stat().st_mtime_ns
    assert len(there) == FILES - len(needed)
    try:
        for path, (content, time) in there.items():
            path.write_bytes(spoiled(path, content))
            os.utime(path, ns=(time, time))
        yield
    finally:
        for path, (content, time) in there.items():
            path.write_bytes(content)
            os.utime(path, ns=(time, time))


DIMENSION = pa.table({"h": pa.array(KEYS, pa.int64()), "name": ["a", "b"]})


def scanned(index: SkippingIndex, asked: str) -> Any:
    """What the index leaves by a filter that it is given; of keys, the join."""
    return index.join(DIMENSION, "h") if asked == "keys" else index.scan(ASKED[asked])


def own_sql(asked: str) -> str:
    if asked == "keys":
        return "SELECT t.id FROM t JOIN dimension ON t.h = dimension.h"
    return f"SELECT id FROM t WHERE {ASKED[asked]}"


def arrow(scan: Any, asked: str | None) -> list[int]:
    h, r = pc.field("h"), pc.field("r")
    filters = {
        "one value": h == 17,
        "IN with 500 values": h.isin(LIST),
        "range": (r >= 70) & (r <= 90),
        "OR": (h == 17) | (r >= 1180),
        "keys": h.isin(KEYS),
    }
    dataset = scan.to_dataset()
    found = dataset.to_table(["id"], filter=None if asked is None else filters[asked])
    return found["id"].to_pylist()


def duckdb(scan: Any, asked: str | None) -> list[int]:
    import duckdb as library

    with library.connect() as db:
        scan.to_duckdb("t", db).register("dimension", DIMENSION)
        sql = "SELECT id FROM t" if asked is None else own_sql(asked)
        return [id for (id,) in db.sql(sql).fetchall()]


def polars(scan: Any, asked: str | None) -> list[int]:
    import polars as pl

    h, r = pl.col("h"), pl.col("r")
    filters = {
        "one value": h == 17,
        "IN with 500 values": h.is_in(LIST),
        "range": r.is_between(70, 90),
        "OR": (h == 17) | (r >= 1180),
    }
    frame = scan.to_polars()
    if asked == "keys":
        frame = frame.join(pl.LazyFrame(DIMENSION), on="h")
    elif asked is not None:
        frame = frame.filter(filters[asked])
    return frame.select("id").collect()["id"].to_list()


def pandas(scan: Any) -> list[int]:
    import pandas as library

    if hasattr(library.DataFrame, "from_arrow"):  # of pandas 3
        return library.DataFrame.from_arrow(scan)["id"].tolist()
    return pa.table(scan).to_pandas()["id"].tolist()


def datafusion(scan: Any) -> list[int]:
    from datafusion import SessionContext

    context = SessionContext()
    context.from_arrow(scan, name="t")
    return context.sql("SELECT id FROM t").to_pydict().get("id", [])


def daft(scan: Any) -> list[int]:
    import daft as library

    # Daft reads no dictionaries: the folder has one.
    return library.from_arrow(scan.select("id", "h")).to_pydict()["id"]


def own(scan: Any, asked: str | None) -> list[int]:
    """The format's own reader: PyIceberg's, and of Delta and Parquet that of this project."""
    assert asked is None
    return scan.to_arrow()["id"].to_pylist()


ENGINES: dict[str, Callable[[Any, str | None], list[int]]] = {
    "Format": own,
    "Arrow": arrow,
    "DuckDB": duckdb,
    "Polars": polars,
}

STREAMS: dict[str, Callable[[Any], list[int]]] = {
    "pandas": pandas,
    "DataFusion": datafusion,
    "Daft": daft,
}
"""Libraries that read a scan through `__arrow_c_stream__`."""

OWN: dict[str, tuple[str, ...]] = {
    "Format": (),
    "Arrow": ("one value", "IN with 500 values", "range", "OR", "keys"),
    "DuckDB": ("one value", "IN with 500 values", "range", "keys"),
    "Polars": ("one value", "IN with 500 values", "range", "OR"),
}
"""The filters of an engine's own by which files are skipped."""


def matches(row: dict[str, Any], asked: str) -> bool:
    h, r = row["h"], row["r"]
    if h is None:
        return False
    return {
        "one value": h == 17,
        "IN with 500 values": h in LIST,
        "range": 70 <= r <= 90,
        "OR": h == 17 or r >= 1180,
        "keys": h in KEYS,
    }[asked]


def expected_ids(asked: str) -> list[int]:
    return [r["id"] for f in range(FILES) for r in rows(f).to_pylist() if matches(r, asked)]


def check_stream(index: SkippingIndex, folder: Path, library: str, asked: str) -> None:
    """The library reads the rows of the scan, and opens no other file."""
    with only(folder, NEEDED[asked]):
        assert sorted(STREAMS[library](scanned(index, asked))) == expected_ids(asked)


def check(index: SkippingIndex, folder: Path, engine: str, asked: str) -> None:
    """The rows are those of the whole table, and no file is opened that is not needed.

    First by a filter that the index is given, then by one of the engine's own. By what is not in
    `OWN` no file is skipped, and the rows are right all the same.
    """
    run = ENGINES[engine]
    wanted = expected_ids(asked)
    with only(folder, NEEDED[asked]):
        found = sorted(run(scanned(index, asked), None))
        assert found == wanted, (engine, asked, found)
        if asked in OWN[engine]:
            found = sorted(run(index.scan(), asked))
            assert found == wanted, (engine, asked, found)
            return
        if engine == "Format":
            return
        with pytest.raises(Exception, match=r"cannot read|Parquet"):  # of each engine's own class
            run(index.scan(), asked)
    found = sorted(run(index.scan(), asked))
    assert found == wanted, (engine, asked, found)


def table() -> str:
    """What the page says: by whose filter no file is opened that is not needed."""
    heads = {"keys": "keys of a join"}
    methods = {"Format": "arrow", "Arrow": "dataset", "DuckDB": "duckdb", "Polars": "polars"}
    lines = [["read by", *(heads.get(asked, asked) for asked in ASKED)]]
    lines += [
        [
            f"`to_{methods[engine]}()`",
            *("scan or engine" if asked in OWN[engine] else "scan" for asked in ASKED),
        ]
        for engine in ENGINES
    ]
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([rows[0], "|---" * (len(ASKED) + 1) + "|", *rows[1:]])


def main() -> None:
    """Check the named library of STREAMS on every format; print the table without a name."""
    if len(sys.argv) == 1:
        print(table())
        return
    for format in FORMATS:
        with TemporaryDirectory() as folder:
            index = indexed(format, Path(folder) / "t")
            for asked in ASKED:
                check_stream(index, Path(folder) / "t", sys.argv[1], asked)
                print(format, asked, flush=True)


if __name__ == "__main__":
    main()
