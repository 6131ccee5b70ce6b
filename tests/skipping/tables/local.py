"""Tables without Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.conftest import WITHOUT_JAVA, RunPython

UTC = datetime.timezone.utc
COLUMNS = (
    "k VALUE_LIST, big MIN_MAX, s VALUE_LIST, s MIN_MAX, day MIN_MAX, ts MIN_MAX, x MIN_MAX, "
    "d VALUE_LIST, b VALUE_LIST, st.a MIN_MAX, st.t.y VALUE_LIST"
)


def rows(i: int) -> pa.Table:
    """A file's rows: values of its own, and nulls."""
    return pa.table(
        {
            "k": pa.array([i, i + 10, None], pa.int32()),
            "big": pa.array([2**40 + i] * 3, pa.int64()),
            "s": [f"s{i}", None, "all"],
            "day": [datetime.date(2024, 1, 1 + i)] * 3,
            "ts": [datetime.datetime(2024, 1, 1, i, tzinfo=UTC)] * 3,
            "x": [1.5 * i, float("nan"), -0.0],
            "d": pa.array([Decimal("1.50") + i] * 3, pa.decimal128(10, 2)),
            "b": [i % 2 == 0, None, None],
            "st": pa.array(
                [{"a": i, "t": {"y": f"y{i}"}}, {"a": None, "t": None}, None],
                pa.struct([("a", pa.int64()), ("t", pa.struct([("y", pa.string())]))]),
            ),
        }
    )  # fmt: skip


def make(catalog: SqlCatalog, *, files: int = 4, partition: str = "", **properties: str) -> Table:
    table = catalog.create_table(("db", "t"), schema=rows(0).schema, properties=properties)
    if partition:
        with table.update_spec() as spec:
            spec.add_identity(partition)
    for i in range(files):
        table.append(rows(i))
    return table


def plain(table: pa.Table) -> list[Any]:
    """Rows that can be compared: NaN as text."""
    return sorted(map(repr, table.to_pylist()))


def run_without_spark(run_python: RunPython, program: str, folder: Path) -> list[str]:
    """Run a program with a path that has no Java; return what it prints.

    Its last line has the modules of Spark, and of libraries in `others`, that it has imported.
    """
    end = """
import sys
spark = ("pyspark", "py4j", "delta", "rewrite")
print([name for name in (*spark, *others) if name in sys.modules])
"""
    run = run_python("-c", program + end, cwd=folder, env=WITHOUT_JAVA)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()
