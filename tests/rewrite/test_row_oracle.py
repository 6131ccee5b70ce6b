"""Random conditions on functions, texts and indexed expressions: no file with a match is pruned.

Spark evaluates each condition on each row, in its interpreter. A file of rows on which the only
condition there is fails is not pruned either, so that the query fails as it does without us.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyroaring import BitMap
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from providers.errors import SkippingError
from skipping.model.definition import Expression
from skipping.spark_api import collect_arrow
from skipping.tables import PhysicalColumn, TableColumn
from skipping.tables.computed import analyse
from tests.rewrite.differential import ENABLED, settings
from tests.rewrite.random_conditions import KINDS, ZONES, applied, condition, function
from tests.rewrite.row_oracle import Files, oracle_of, values_of

ROWS = 150  # of a table; each is a file, and 150 other files have several
KINDS_OF = {
    "every": ["MIN_MAX", "VALUE_LIST limit=2", "BLOOM_FILTER"],
    "string": ["NGRAM", "NGRAM n=2", "NGRAM n=2 fold=true"],
}
ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"
WRITTEN = {
    ZONE: "UTC",
    ANSI: "true",
    ENABLED: "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def test_no_file_with_a_match_is_pruned(spark: SparkSession, tmp_path: Path) -> None:
    found = play(spark, 1, tmp_path / "rows", conditions=100, rows=40)
    assert found["checks"] > 5_000
    assert found["pruned"] > 0.25 * found["without"]


def test_no_file_that_a_command_needs_is_pruned(spark: SparkSession, tmp_path: Path) -> None:
    name = table(spark, random.Random(3), tmp_path / "rows", 40)
    found = commands(spark, 3, name, tmp_path / "rows", 100)
    assert found["decisions"] > 5_000
    assert found["pruned"] > 0.1 * found["without"]


def test_keys_and_texts(spark: SparkSession, tmp_path: Path) -> None:
    name = table(spark, random.Random(2), tmp_path / "rows", 50)
    found = functions(spark, 2, name, 120)
    assert found["keys"] > 1_000
    assert found["texts"] > 0


@pytest.mark.soak
def test_100_000_files_of_commands(spark: SparkSession, tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    seed = 300
    while totals["decisions"] < 100_000:
        folder = tmp_path / str(seed)
        name = table(spark, random.Random(seed), folder, ROWS)
        totals += commands(spark, seed, name, folder, 120)
        seed += 1
        print(f"next seed {seed}:", dict(totals), flush=True)
    assert totals["pruned"] > 0.1 * totals["without"]


@pytest.mark.soak
def test_a_million_checks(spark: SparkSession, tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    seed = 100
    while totals["checks"] < 1_000_000:
        folder = tmp_path / str(seed)
        totals += play(spark, seed, folder, conditions=800)
        totals += functions(spark, seed, f"rows_{folder.name}", 400)
        seed += 1
        print(f"next seed {seed}:", dict(totals), flush=True)
    assert totals["pruned"] > 0.25 * totals["without"]


def test_keys_at_the_ends_of_time(spark: SparkSession, tmp_path: Path) -> None:
    """Timestamps end in the year 294247."""
    micros = [2**63 - 1, -(2**63), 0, 86_400_000_000 * 100_000_000, -86_400_000_000 * 100_000_000]
    frame = spark.createDataFrame([(m,) for m in micros], "k bigint")
    with settings(spark, WRITTEN):
        frame.selectExpr("timestamp_micros(k) AS ts").write.parquet(str(tmp_path / "ends"))
    frame = spark.read.parquet(str(tmp_path / "ends"))
    oracle = oracle_of(spark, frame)
    for key in ("date(ts)", "date(ts::timestamp_ntz)", "year(ts)"):
        e = oracle.expression(frame._jdf, key)
        assert {oracle.keys(e, seed) for seed in range(20)} <= {0, len(micros)}


def drawn(rng: random.Random) -> dict[str, str]:
    return {ZONE: rng.choice(ZONES), ANSI: rng.choice(["true", "false"]), ENABLED: "false"}


def table(spark: SparkSession, rng: random.Random, folder: Path, rows: int) -> str:
    """A view of rows of random values, which are a Parquet file in a folder."""
    values = [
        (n, *(None if rng.randrange(12) == 0 else kind.draw(rng) for kind in KINDS.values()))
        for n in range(rows)
    ]
    types = ", ".join(f"{name} string" for name in KINDS)
    columns = [f"{kind.sql.format(name)} AS {name}" for name, kind in KINDS.items()]
    with settings(spark, WRITTEN):
        made = spark.createDataFrame(values, f"id int, {types}").selectExpr("id", *columns)
        made.coalesce(1).write.parquet(str(folder))
    name = f"rows_{folder.name}"
    spark.read.parquet(str(folder)).createOrReplaceTempView(name)
    return name


def play(
    spark: SparkSession, seed: int, folder: Path, *, conditions: int, rows: int = ROWS
) -> Counter[str]:
    """Conditions on one table: most in the session that computed the expressions."""
    rng = random.Random(seed)
    name = table(spark, rng, folder, rows)
    first, second = drawn(rng), drawn(rng)
    with settings(spark, first):
        indexed = expressions(spark, name, rng, conditions // 15)
        oracle = oracle_of(spark, spark.table(name).orderBy("id"))
    values = values_of(folder)
    columns = {c: (kind.type, values[c]) for c, kind in KINDS.items()}
    columns |= {identity: (type, found) for identity, (_, type, found) in indexed.items()}
    files = Files(columns, KINDS_OF, rng, rows)
    given = [None, *(drawn for drawn, _, _ in indexed.values())]
    totals: Counter[str] = Counter()
    for n in range(conditions):
        where = condition(rng, rng.choice(given) if n % 3 == 1 else None)
        with settings(spark, first if n % 3 else second):
            totals += check(spark, f"seed {seed}: {where}", name, where, oracle, files, indexed)
    return totals


def expressions(
    spark: SparkSession, name: str, rng: random.Random, n: int
) -> dict[str, tuple[tuple[str, str], str, pa.ChunkedArray]]:
    """Functions that can be indexed, by identity: as they were drawn, their types and values."""
    columns = {c: TableColumn(c, c, kind.type, PhysicalColumn((c,))) for c, kind in KINDS.items()}
    zone, ansi = spark.conf.get(ZONE) or "", spark.conf.get(ANSI) == "true"
    found: dict[str, tuple[tuple[str, str], str, pa.ChunkedArray]] = {}
    for _ in range(n):
        given = function(rng)
        sql = applied(*given)
        try:
            made = analyse(spark, Expression(sql, zone, ansi, ()), columns)
            values = collect_arrow(spark.table(name).orderBy("id").selectExpr(f"{sql} AS v"))["v"]
        except (SkippingError, PySparkException, Py4JError):
            continue  # it cannot be indexed, or fails on a row
        found[made.text()] = (given, made.type(), values)
    return found


def check(
    spark: SparkSession,
    label: str,
    name: str,
    where: str,
    oracle: Any,
    files: Files,
    indexed: dict[str, Any],
) -> Counter[str]:
    conditions = oracle.conditions(spark.table(name)._jdf, where)
    if conditions is None:
        return Counter()
    texts = spark.sparkContext._jvm.java.util.HashSet(list(indexed))  # type: ignore[union-attr]
    found = files.find_prunable(bytes(oracle.question(conditions, texts)))
    outcomes = oracle.outcomes(conditions)
    lost = found & files.held(outcomes, "t")
    assert not lost, f"{label}: rows {[files.rows[n] for n in lost]}"
    alone = is_alone([c.toString() for c in conditions])
    failing = found & files.held(outcomes, "e") if alone else ()
    assert not failing, f"{label} fails on rows {[files.rows[n] for n in failing]}"
    without = len(files.rows) - len(files.held(outcomes, "te"))
    return Counter(conditions=1, checks=len(files.rows), pruned=len(found), without=without)


def is_alone(conditions: list[str]) -> bool:
    """Whether there is one condition but for those that Spark adds: that its columns are there."""
    others = [c for c in conditions if not re.fullmatch(r"isnotnull\(\w+#\d+\)", c)]
    added = (c for c in conditions if c not in others)
    return len(others) == 1 and all(
        re.search(rf"\b{c.removeprefix('isnotnull(')[:-1]}\b", others[0]) for c in added
    )


def commands(spark: SparkSession, seed: int, name: str, folder: Path, n: int) -> Counter[str]:
    """MERGE commands: keys of functions that are joined with OR, and up to two conditions of WHEN
    NOT MATCHED BY SOURCE. A file is pruned if no operand has a key in it, and no condition is
    true in it."""
    rng = random.Random(seed)
    values = values_of(folder)
    files = Files({c: (kind.type, values[c]) for c, kind in KINDS.items()}, KINDS_OF, rng, ROWS)
    frame = spark.table(name).orderBy("id")
    oracle = oracle_of(spark, frame)
    no_expressions = spark.sparkContext._jvm.java.util.HashSet()  # type: ignore[union-attr]
    totals: Counter[str] = Counter()
    for _ in range(n):
        with settings(spark, drawn(rng)):
            label = f"seed {seed}:"
            pruned, needed = BitMap(range(len(files.rows))), BitMap()
            for _ in range(rng.choice([1, 1, 2, 2, 3])):
                sql = cast_of(rng) if rng.randrange(2) else applied(*function(rng))
                e = oracle.expression(frame._jdf, sql)
                keys = None if e is None else oracle.drawKeys(e, rng.randrange(2**31))
                if keys is None:
                    continue
                label += f" {sql} IN keys OR"
                pruned &= files.find_prunable(bytes(oracle.keysQuestion(keys[0], no_expressions)))
                needed |= files.held(keys[1], "te")
            if not needed:
                continue
            for _ in range(rng.choice([0, 1, 1, 2])):
                where = condition(rng)
                conditions = oracle.conditions(frame._jdf, where)
                if conditions is None:
                    pruned = BitMap()
                    continue
                label += f" NOT MATCHED BY SOURCE AND {where}"
                pruned &= files.find_prunable(bytes(oracle.question(conditions, no_expressions)))
                needed |= files.held(oracle.outcomes(conditions), "t")
            lost = pruned & needed
            assert not lost, f"{label}: rows {[files.rows[n] for n in lost]}"
            without = len(files.rows) - len(needed)
            totals += Counter(decisions=len(files.rows), pruned=len(pruned), without=without)
    return totals


def cast_of(rng: random.Random) -> str:
    """A cast of a number, to fewer digits in most cases."""
    types = ["tinyint", "smallint", "int", "bigint", "decimal(5, 0)", "decimal(12, 1)", "string"]
    column = rng.choice(["b", "h", "i", "l", "m", "w"])
    return f"{rng.choice(['cast', 'cast', 'try_cast'])}({column} AS {rng.choice(types)})"


def functions(spark: SparkSession, seed: int, name: str, n: int) -> Counter[str]:
    """Functions as keys of joins, where no row is lost; two of one text have the same values."""
    rng = random.Random(seed)
    oracle = oracle_of(spark, spark.table(name))
    known: dict[str, tuple[str, list[str | None]]] = {}
    totals: Counter[str] = Counter()
    confs = drawn(rng)
    for i in range(n):
        confs = confs if i % 50 else drawn(rng)
        with settings(spark, confs):
            sql = applied(*function(rng))
            e = oracle.expression(spark.table(name)._jdf, sql)
            if e is None:
                continue
            label = f"seed {seed}: {sql} with {confs}"
            for _ in range(3):
                kept = oracle.keys(e, rng.randrange(2**31))
                assert not isinstance(kept, str), f"{label}: {kept}"
                totals["keys"] += kept or 0
            text = oracle.text(e)
            if text is not None:
                values = list(oracle.values(e))
                before = known.setdefault(text, (label, values))
                assert before[1] == values, f"{label} is not {before[0]}"
                totals["texts"] += before[0] != label
    return totals
