"""Random tables, random histories, random conditions: with the index = without, and it skips.

A case is one table and a history of it; after each step, with the index stale and sometimes fresh,
a batch of conditions is asked.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.rewrite.differential import batch, by_group, make_table

pytestmark = pytest.mark.nightly

CASES = 6
BATCH = 12

SCHEMA = {
    "id": "bigint",
    "i": "int",
    "l": "bigint",
    "s": "string",
    "d": "double",
    "dec": "decimal(10,2)",
    "day": "date",
    "ts": "timestamp",
    "ok": "boolean",
    "st": "struct<a:int,b:struct<c:string>>",
}
LEAVES = {**SCHEMA, "st.a": "int", "st.b.c": "string"}
del LEAVES["st"], LEAVES["id"]

VALUES: dict[str, list[Any]] = {
    "int": [-2147483648, -7, 0, 1, 2, 3, 5, 8, 1000, 2147483647],
    "bigint": [-9223372036854775808, -7, 0, 1, 2, 3, 5, 8, 4294967296, 9223372036854775807],
    "string": ["", "a", "ab", "abc", "b", "B", "a%", "\u00e9", "z\U0010ffff", "a b", "a'b\\"],
    "double": [float("nan"), -0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf"), 0.1, 3.0],
    "decimal(10,2)": [Decimal(v) for v in ("0", "1.50", "-1.50", "0.01", "99999999.99", "3")],
    "date": [dt.date(2024, 1, d) for d in (1, 2, 3, 9)] + [dt.date(1970, 1, 1)],
    "timestamp": [
        dt.datetime(2024, 1, d, 1, 2, 3, us) for d, us in ((1, 0), (1, 1), (2, 999_999), (9, 5))
    ],
    "boolean": [True, False],
}


def literal(value: Any, type: str) -> str:
    """A value in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"double('{value}')"
    if isinstance(value, str):
        escaped = value.replace("\\", r"\\").replace("'", r"\'")
        return f"'{escaped}'"
    if isinstance(value, dt.datetime):
        return f"timestamp'{value}'"
    if isinstance(value, dt.date):
        return f"date'{value}'"
    if isinstance(value, Decimal):
        return f"{value}BD"
    return f"{value}L" if type == "bigint" and value != -(2**63) else f"({value})"


def constants(type: str) -> st.SearchStrategy[str]:
    if type == "bigint":
        # Java has no literal for the least one.
        return st.sampled_from(VALUES[type][1:]).map(lambda v: literal(v, type))
    if type == "int":
        return st.sampled_from(VALUES[type][1:]).map(lambda v: literal(v, type))
    return st.sampled_from(VALUES[type]).map(lambda v: literal(v, type))


@st.composite
def leaf(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(sorted(LEAVES)))
    type = LEAVES[column]
    one = constants(type)
    shape = draw(
        st.sampled_from(["=", "cmp", "cmp", "in", "in", "null", "safe", "like", "odd", "function"])
    )
    if shape == "=":
        return f"{column} = {draw(one)}"
    if shape == "cmp":
        op = draw(st.sampled_from(["<", "<=", ">", ">=", "<>"]))
        sides = [column, draw(one)]
        return f" {op} ".join(sides if draw(st.booleans()) else sides[::-1])
    if shape == "in":
        least, most = draw(st.sampled_from([(1, 3), (11, 14)]))
        keys = draw(st.lists(st.one_of(one, one, one, st.just("NULL")), min_size=least,
                             max_size=most))  # fmt: skip
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(keys)})"
    if shape == "null":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if shape == "safe":
        return f"{column} <=> {draw(st.one_of(one, st.just('NULL')))}"
    if shape == "like":
        text = draw(st.sampled_from(["a%", "%", "z%", "a%b", "ab_", "a b%", "\u00e9%", "%b"]))
        return f"{draw(st.sampled_from(['s', 'st.b.c']))} LIKE '{text}'"
    if shape == "function":
        return draw(
            st.sampled_from(
                [
                    "year(day) = 2024",
                    "year(ts) < 2024",
                    "d * 2D > 1D",
                    "date(ts) = date'2024-01-02'",
                    "substr(s, 1, 1) = 'a'",
                    "date_trunc('hour', ts) > timestamp'2024-01-02'",
                    "try_add(i, 1) > 3",
                    "try_multiply(l, -2L) < 3L",
                    "try_subtract(3, i) IN (1, -2, NULL)",
                    "dec / 2 <= 0.75",
                    "substr(st.b.c, 1, 2) >= 'ab'",
                    "st.a DIV 2 = 1",
                ]
            )
        )
    return draw(st.sampled_from(["i = l", "i % 2 = 0", "l % 10 = 7", "ok", "upper(s) = 'AB'",
                                 "bigint(i) = 3L", "i > 1.5", "l = 3.0", "dec = 1.5", "dec > 1",
                                 "day = '2024-01-02'", "ts < date'2024-01-02'", "d = float(0.1)",
                                 "date(ts) = day", "st IS NULL", "rand() >= 0"]))  # fmt: skip


conditions: st.SearchStrategy[str] = st.recursive(
    leaf(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} AND {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=4,
)


@st.composite
def files(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """The rows of some files; a file draws from few values, so that others can be skipped."""
    made = []
    for _ in range(draw(st.integers(2, 5))):
        pools = {
            name: draw(st.lists(st.sampled_from([*VALUES[type], None]), min_size=1, max_size=2))
            for name, type in LEAVES.items()
        }
        empty = draw(st.integers(0, 4)) == 0
        rows = []
        for _ in range(draw(st.integers(1, 4))):
            row = {name: draw(st.sampled_from(pool)) for name, pool in pools.items()}
            a, c = row.pop("st.a"), row.pop("st.b.c")
            inner = None if draw(st.integers(0, 3)) == 0 else {"c": c}
            row["st"] = None if empty else {"a": a, "b": inner}
            rows.append(row)
        made.append(rows)
    return made


STEPS = {
    "append": None,
    "delete": "DELETE FROM {t} WHERE i IN (1, 2, 3) OR s = 'a'",
    "delete by id": "DELETE FROM {t} WHERE id % 3 = 0",
    "update": "UPDATE {t} SET i = 8, s = 'updated', d = double('NaN') WHERE id % 4 = 1",
    "merge": """MERGE INTO {t} t USING (SELECT id FROM {t} WHERE id % 5 < 2) u ON t.id = u.id
        WHEN MATCHED AND t.id % 5 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET t.l = 3""",
    "optimize": "OPTIMIZE {t}",
    "restore": "RESTORE TABLE {t} TO VERSION AS OF {v}",
    "rename": "ALTER TABLE {t} RENAME COLUMN i TO swap;"
    "ALTER TABLE {t} RENAME COLUMN {k} TO i;ALTER TABLE {t} RENAME COLUMN swap TO {k}",
    "drop and add": "ALTER TABLE {t} DROP COLUMN s;ALTER TABLE {t} ADD COLUMN s string",
    "refresh": "REFRESH SKIPPING INDEX ON {t}",
    "overwrite": "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id % 2 = 0",
}
"""Statements; `rename` gives the table's two int columns each other's name."""


@dataclass(frozen=True)
class Case:
    """A table, what is done to it, and what is asked in between."""

    mode: str
    vectors: bool
    first: list[list[dict[str, Any]]]
    steps: list[str]
    more: list[list[dict[str, Any]]]
    asked: list[list[str]]
    kinds: dict[str, str] = field(default_factory=dict)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps = draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=3))
    batch = st.lists(conditions, min_size=BATCH, max_size=BATCH)
    return Case(
        draw(st.sampled_from(["none", "name", "id"])),
        draw(st.booleans()),
        draw(files()),
        steps,
        draw(files()),
        [draw(batch) for _ in range(len(steps) + 1)],
        {name: draw(st.sampled_from(["VALUE_LIST", "VALUE_LIST(2)", "MIN_MAX", "both"]))
         for name in LEAVES},
    )  # fmt: skip


totals: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def floor() -> Iterator[None]:
    """Most of what can be skipped must have been, else nothing was tested.

    The run is the same each time: of 316 files without a match 185 were skipped. The floor is four
    fifths of that.
    """
    yield
    if totals["queries"]:
        print(dict(totals))
        assert totals["skipped"] > 0.47 * totals["without"], totals


def write(spark: SparkSession, parts: list[list[dict[str, Any]]], start: int) -> Any:
    names = ["id", "k", *[name for name in SCHEMA if name != "id"], "_f"]
    rows: list[tuple[Any, ...]] = []
    for f, part in enumerate(parts):
        for row in part:
            whole = {**row, "id": start + len(rows), "k": f, "_f": f}
            rows.append(tuple(whole[name] for name in names))
    types = {**SCHEMA, "k": "int", "_f": "int"}
    return spark.createDataFrame(rows, ", ".join(f"{name} {types[name]}" for name in names))


def ask(spark: SparkSession, table: str, asked: Sequence[str], history: str) -> None:
    found = batch(spark, table, asked, history)
    without = found.total - found.held
    totals.update(queries=len(asked), files=found.total, without=without, skipped=found.skipped)


@settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def test_with_the_index_is_without(spark: SparkSession, case: Case) -> None:
    play(spark, case)


def play(spark: SparkSession, case: Case) -> None:
    table = f"random_{totals['tables']}"
    totals["tables"] += 1
    mapped = case.mode != "none"
    make_table(
        spark,
        table,
        write(spark, case.first, 0),
        properties={
            "delta.columnMapping.mode": case.mode,
            "delta.enableDeletionVectors": str(case.vectors).lower(),
        },
    )
    columns = []
    for name, kind in case.kinds.items():
        columns += [
            f"{name} {k}" for k in (("VALUE_LIST", "MIN_MAX") if kind == "both" else (kind,))
        ]
    spark.sql(f"CREATE SKIPPING INDEX ON {table} ({', '.join(columns)})")
    done = [f"{case.mode}, vectors {case.vectors}, {columns}"]
    ask(spark, table, case.asked[0], "\n".join(done))
    versions = 1
    for step, asked in zip(case.steps, case.asked[1:], strict=True):
        if step in ("rename", "drop and add") and not mapped:
            continue
        if step == "append":
            current = spark.table(table).columns
            more = write(spark, case.more, 1000 * totals["tables"]).select(*current, "_f")
            by_group(more).write.format("delta").mode("append").saveAsTable(table)
        else:
            for statement in str(STEPS[step]).split(";"):
                spark.sql(statement.format(t=table, v=versions, k="k"))
        done.append(step)
        ask(spark, table, asked, "\n".join(done))
    spark.sql(f"DROP TABLE {table}")
