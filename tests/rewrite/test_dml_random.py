"""Random commands on twin tables: with the index they do what they do without.

`SKIPPING_TEST_QUERIES` says how many are run; `SKIPPING_TEST_SEED` draws others.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from delta.tables import DeltaTable
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tests.rewrite.commands_twin import (
    NAMES,
    PARTED,
    TABLES,
    Originals,
    Twins,
    looks,
    newest,
    outcome,
    serving,
)
from tests.rewrite.differential import in_catalog_of, make_table, settings
from tests.rewrite.iceberg.tables import MERGE_ON_READ
from tests.rewrite.twelve_files import INDEX, ROWS, contents

pytestmark = pytest.mark.nightly

LIFE = 30
"""Commands on a pair of tables: with each there are fewer files that the index knows."""

KINDS = [*TABLES, *PARTED]

OTHER = """SELECT int(id * 7 % 90) AS k, int(10 * id) AS m, concat('o', id) AS name,
    IF(id % 11 = 0, NULL, int(id % 12)) AS n,
    named_struct('a', int(id % 12), 'b', named_struct('c', string(id))) AS st, int(id % 5) AS i,
    int(id % 9) AS g, 0 AS _f FROM range(90)"""

ENGINES = {
    "spark.sql.adaptive.enabled": ["true", "true", "false"],
    "spark.sql.autoBroadcastJoinThreshold": ["10m", "-1"],
    "spark.databricks.delta.merge.materializeSource": ["auto", "auto", "none", "all"],
    "spark.sql.codegen.factoryMode": ["NO_CODEGEN"] * 9 + ["FALLBACK"],
}


@dataclass(frozen=True)
class Clause:
    """One WHEN of a MERGE. `sets`: columns and their values; none deletes, "*" takes all."""

    when: str
    condition: str = ""
    sets: dict[str, str] | str | None = None

    def sql(self) -> str:
        found = f"WHEN {self.when}{' AND ' * bool(self.condition)}{self.condition} THEN "
        inserts = self.when == "NOT MATCHED"
        if self.sets is None:
            return f"{found}DELETE"
        if isinstance(self.sets, str):
            return found + ("INSERT *" if inserts else "UPDATE SET *")
        columns, values = ", ".join(self.sets), ", ".join(self.sets.values())
        if inserts:
            return f"{found}INSERT ({columns}) VALUES ({values})"
        return f"{found}UPDATE SET {', '.join(f'{c} = {v}' for c, v in self.sets.items())}"

    def add(self, builder: Any) -> Any:
        """The same through the functions of DeltaTable."""
        named = "when" + "".join(map(str.capitalize, self.when.split()))
        condition = self.condition or None
        if self.sets is None:
            return getattr(builder, f"{named}Delete")(condition)
        does = "Insert" if self.when == "NOT MATCHED" else "Update"
        if isinstance(self.sets, str):
            return getattr(builder, f"{named}{does}All")(condition)
        return getattr(builder, f"{named}{does}")(condition, self.sets)


@dataclass(frozen=True)
class Command:
    """A statement on the table `{t}`, or a MERGE, in SQL or from Python."""

    statement: str = ""
    source: str = ""
    on: str = ""
    clauses: tuple[Clause, ...] = ()
    evolves: bool = False
    python: bool = False
    # How far back RESTORE goes, as a share of the versions there are.
    back: float | None = None
    conf: dict[str, str] = field(default_factory=dict)

    def run(self, spark: SparkSession, table: str, versions: int) -> object:
        """Run it on a table with these versions; return the result if there are no sizes in it."""
        if self.back is not None:
            version = 1 + int(self.back * (versions - 1))
            spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}")
            return None
        if self.statement:
            rows = spark.sql(self.statement.format(t=table)).collect()
            return None if self.statement.startswith(("OPTIMIZE", "REFRESH")) else rows
        source = self.source.format(t=table)
        if self.python:
            rows = spark.sql(f"SELECT * FROM ({source})").alias("s")
            builder: Any = DeltaTable.forName(spark, table).alias("t").merge(rows, self.on)
            for clause in self.clauses:
                builder = clause.add(builder)
            if self.evolves:
                builder = builder.withSchemaEvolution()
            counts: DataFrame | None = builder.execute()
            return None if counts is None else counts.collect()  # Delta 3.3 returns nothing
        evolution = "WITH SCHEMA EVOLUTION " * self.evolves
        clauses = " ".join(clause.sql() for clause in self.clauses)
        return spark.sql(
            f"MERGE {evolution}INTO {table} t USING ({source}) s ON {self.on} {clauses}"
        ).collect()


keys = st.integers(0, 62)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """Of rows of the table."""
    key, other = draw(keys), draw(keys)
    return draw(
        st.sampled_from([
            f"t.k = {key}", f"t.k = {key}", f"t.k IN ({key}, {other})",
            f"t.m BETWEEN {10 * key} AND {10 * key + 9}", f"t.m > {1000 + other}",
            f"t.name = 'n{key % 12}-{other % 5}'", f"t.n = {key % 12} AND t.i > 2", "t.n IS NULL",
            f"t.st.a = {key % 12} OR t.k = {other}", f"NOT t.k > {key % 9}",
            f"t.st.b.c = 'c{key % 12}' AND t.k <> {other}", f"t.k = {key} AND length(t.name) > 4",
            f"t.k IN ({key}, NULL)", f"t.k <=> {key}", "t.k IS NULL", f"t.k % 40 = {key % 40}",
            f"t.k + 1 = {key}", f"t.n = {key % 12} AND t.name LIKE 'n{key % 12}-%'",
        ])
    )  # fmt: skip


@st.composite
def sources(draw: st.DrawFn, *, wide: bool) -> str:
    """The rows of a MERGE, with the columns `k` and `m`; all of the table's if `wide`."""
    key, other = draw(keys), draw(keys)
    columns = "k, m, name, n, st, i" if wide else "k, m"
    some = draw(
        st.sampled_from([
            f"other WHERE g = {key % 9} AND i = {other % 5}",
            f"other WHERE k IN ({key}, {other})", f"other WHERE k = {key}",
            f"in_parquet WHERE m IN ({10 * key}, {10 * other})", f"given WHERE k < {key % 9}",
            f"given_cached WHERE k BETWEEN {key} AND {key + 2}",
            f"(SELECT * FROM other WHERE g = {key % 9} ORDER BY k, m LIMIT {1 + other % 7})",
            # Spark does not know that it is always the same.
            f"other WHERE k = {key} AND rand(7) >= 0",
            f"(SELECT *, row_number() OVER (PARTITION BY k ORDER BY m DESC) AS r FROM other"
            f" WHERE g < {1 + key % 3}) WHERE r = 1",
            f"(SELECT * FROM other WHERE g = {key % 9} UNION ALL SELECT * FROM given WHERE"
            f" k = {other + 100})",
            f"other JOIN (SELECT {key % 9} AS g) USING (g) WHERE i > 1", "other",
            f"{{t}} WHERE n = {key % 12}", f"{{t}} WHERE k IN ({key}, {other})",
        ])
    )  # fmt: skip
    more = draw(st.sampled_from(["", f", 'x{key}' AS extra{key % 2}"])) if wide else ""
    given = [f"SELECT {columns}{more} FROM {some}"] * 3
    if not wide:
        given += [
            f"SELECT id AS k, int(100 * id) AS m FROM range({key}, {key + 3})",
            f"SELECT * FROM VALUES ({key}, 1), (NULL, 2), ({other + 100}, 3) AS s(k, m)",
            f"SELECT k, max(m) AS m FROM {{t}} WHERE k % 9 = {key % 9} GROUP BY k",
            # A row with two partners: an error, or deleted once.
            f"SELECT * FROM VALUES ({key}, 1), ({key}, 2), ({other}, 3) AS s(k, m)",
            f"SELECT string(k) AS k, m FROM other WHERE g = {key % 9}",
        ]
    return draw(st.sampled_from(given))


@st.composite
def merges(draw: st.DrawFn, *, of_iceberg: bool = False) -> Command:
    wide = draw(st.sampled_from([False, False, True])) and not of_iceberg
    evolves = wide and draw(st.booleans())
    on = draw(
        st.sampled_from([
            *["t.k = s.k"] * 6, "s.k <=> t.k", "t.m = s.m AND t.i = 0", "t.k = s.k AND t.m = s.m",
            "t.k = s.k + 1", "t.k + 1 = s.k", "t.k = s.k OR t.m = s.m", "t.st.a = s.k", "false",
            "t.name = concat('n', int(s.k) % 12, '-1')", "t.k BETWEEN s.k AND s.k + 1",
            "CAST(t.k AS BIGINT) = s.k", "CAST(t.m AS SMALLINT) = s.m",
            "try_cast(t.m AS TINYINT) = s.k", "CAST(t.k AS DECIMAL(4, 0)) = s.k",
            "CAST(t.k AS TINYINT) = s.k",
            "string(t.k) = string(s.k)", "t.k = s.k OR t.n = s.m", "t.m BETWEEN s.m AND s.m + 3",
            "t.k = s.k AND t.i > 0 OR t.name = concat('n', int(s.k) % 12, '-2')",
            "try_cast(t.m AS TINYINT) = s.k OR t.k = s.k",
        ])
    )  # fmt: skip
    on += draw(st.sampled_from(["", "", "", " AND t.n > 3", " AND s.m > 1", " AND t.k < 40"]))
    updates: list[Any] = [
        {"name": "'merged'", "m": "t.m + 1"}, {"m": "s.m"}, {"n": "7"}, {"k": "s.k", "i": "t.i"},
        {"k": "t.k + 200", "st": "NULL"},
    ]  # fmt: skip
    inserts: list[Any] = [{"k": "s.k", "m": "s.m"}, {"k": "s.k", "m": "s.m", "name": "'new'"}]
    if wide:
        updates, inserts = [*updates[:2], *"***"], [inserts[0], *"***"]
    update, insert = st.sampled_from([*updates, None]), st.sampled_from(inserts)
    matched = st.sampled_from(["", "t.i > 1", "s.m > 100", "t.n IS NULL", "t.m < s.m"])
    unmatched = st.sampled_from(["", "", "s.k > 9", "s.m IS NOT NULL", "s.k % 2 = 0"])
    unmatched_by_source = st.sampled_from([
        "t.i > 3", "t.k = 9", "t.n = 5", "t.m > 7000", "t.n IS NULL", "t.k IN (3, 9)",
        "t.name LIKE 'n3-%'", "try_cast(t.m AS TINYINT) = 7", "t.st.a = 4 AND t.i < 3",
        "t.k = 9 OR t.m BETWEEN 200 AND 203", "NOT t.k > 2", "t.k + 1 = 30", "",
    ])  # fmt: skip
    clauses = []
    forms = {"matched": (1, 0), "upsert": (1, 1), "insert": (0, 1), "many": (2, 2)}
    some, others = forms[draw(st.sampled_from([*forms, "matched", "upsert", "insert"]))]
    for n in range(some):
        condition = draw(matched) or "t.i < 4" * (n + 1 < some)
        clauses.append(Clause("MATCHED", condition, draw(update)))
    for n in range(others):
        condition = draw(unmatched) or "s.k > 20" * (n + 1 < others)
        clauses.append(Clause("NOT MATCHED", condition, draw(insert)))
    more = draw(st.sampled_from([0, 0, 0, 1, 1, 2]))
    for n in range(more):
        does = draw(st.sampled_from([None, {"m": "-9"}, {"k": "t.k + 1", "name": "'unmatched'"}]))
        condition = draw(unmatched_by_source) or "t.k < 3" * (n + 1 < more)
        clauses.append(Clause("NOT MATCHED BY SOURCE", condition, does))
    return Command(
        source=draw(sources(wide=wide)),
        on=on,
        clauses=tuple(clauses),
        evolves=evolves,
        python=draw(st.sampled_from([False, False, False, True])) and not of_iceberg,
    )


@st.composite
def commands(draw: st.DrawFn, *, of_iceberg: bool = False) -> Command:
    condition = draw(conditions())
    does = draw(
        st.sampled_from([
            "k = k + 1, name = 'set'", "n = n + 1", "m = -m", "st = named_struct('a', 3, 'b',"
            " named_struct('c', 'new'))", "k = NULL", "i = i",
        ])
    )  # fmt: skip
    conf = {key: draw(st.sampled_from(values)) for key, values in ENGINES.items()}
    # Not by their number alone: simple draws come more often.
    rest = [each for each in REST if not of_iceberg or each in ("refresh", "insert")]
    form = draw(st.sampled_from(["merge"] * 12 + ["delete"] * 5 + ["update"] * 5 + rest))
    if form == "merge":
        merge = draw(merges(of_iceberg=of_iceberg))
        return Command(**{**vars(merge), "conf": conf})
    if form == "restore":
        return Command(back=draw(st.floats(0, 0.99)), conf=conf)
    statement = {
        "delete": f"DELETE FROM {{t}} t WHERE {condition}",
        "update": f"UPDATE {{t}} t SET {does} WHERE {condition}",
        "refresh": "REFRESH SKIPPING INDEX ON indexed",
        "optimize": "OPTIMIZE {t}",
        "insert": f"INSERT INTO {{t}} ({COLUMNS}) SELECT {COLUMNS} FROM other t WHERE {condition}",
    }[form]
    return Command(statement, conf=conf)


COLUMNS = "k, m, n, i"
REST = [*["refresh"] * 7, "insert", "insert", "restore", "optimize"]


def draw_all(
    commands: st.SearchStrategy[Command], count: int, run: Callable[[Command], None]
) -> None:
    """Run commands: `count`, or the number that the environment has."""
    chosen = os.environ.get("SKIPPING_TEST_SEED")

    @hypothesis.settings(
        max_examples=int(os.environ.get("SKIPPING_TEST_QUERIES", count)),
        deadline=None,
        derandomize=chosen is None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(commands)
    def run_one(command: Command) -> None:
        run(command)

    (run_one if chosen is None else hypothesis.seed(int(chosen))(run_one))()


@pytest.fixture(scope="module")
def originals(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The folders that twins are copied from, and what MERGE takes rows from."""
    make_table(spark, "other", OTHER)
    folder = str(tmp_path_factory.mktemp("sources") / "parquet")
    spark.table("other").write.parquet(folder)
    spark.read.parquet(folder).createOrReplaceTempView("in_parquet")
    rows = spark.table("other").where("k % 5 = 2")
    spark.createDataFrame(rows.collect(), rows.schema).createOrReplaceTempView("given")
    spark.table("given").where("true").createOrReplaceTempView("given_cached")
    spark.catalog.cacheTable("given_cached")
    yield Originals(spark)
    spark.catalog.uncacheTable("given_cached")
    Twins.drop(spark)
    spark.sql("DROP TABLE other")


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.soak)])
def test_random_commands(
    spark: SparkSession, originals: dict[str, str], tmp_path: Path, count: int
) -> None:
    totals: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    twins: Twins | None = None

    def timed(what: str, began: float) -> None:
        seconds[what] += time.perf_counter() - began

    def drawn(command: Command) -> None:
        nonlocal twins
        if totals["commands"] % LIFE == 0:
            began = time.perf_counter()
            if twins is not None:
                assert twins.differ_in_time() is None, twins.kind
            timed("history", began)
            life = totals["commands"] // LIFE
            folder = tmp_path / str(life)
            began = time.perf_counter()
            twins = Twins.make(spark, originals, KINDS[life % len(KINDS)], folder)
            timed("make", began)
        assert twins is not None
        totals["commands"] += 1
        said = f"{totals['commands']} {twins.kind}: {command}"
        if "INDEX" in command.statement:
            began = time.perf_counter()
            command.run(spark, "indexed", 0)
            timed("refresh", began)
            return
        seen = newest(spark)
        versions = len(twins.versions("indexed"))
        # The index lets such a MERGE rewrite fewer files.
        copies = any(each.when == "NOT MATCHED BY SOURCE" for each in command.clauses)
        alike = twins.laid_out_alike() and not copies
        outcomes = []
        for table in NAMES:
            began = time.perf_counter()
            with serving(spark, table), settings(spark, command.conf):
                outcomes.append(outcome(lambda t=table: command.run(spark, t, versions)))
            timed(table, began)
            if table == "indexed":
                scans = list(looks(spark, seen))
        assert outcomes[0] == outcomes[1], said
        began = time.perf_counter()
        assert twins.differ() is None, said
        made = len(twins.versions("indexed")) - versions
        assert len(twins.versions("twin")) == versions + made, said
        if made:
            nested = copies and " = " not in command.on
            told = twins.differ_in_commits(made, alike=alike, nested=nested)
            assert told is None, f"{said}: {told}"
            totals["compared to the file"] += alike
        timed("compare", began)
        totals["failed" if isinstance(outcomes[0], str) else "done"] += 1
        totals[f"made {made}"] += 1
        totals["files"] += sum(scan.total for scan in scans)
        totals["skipped"] += sum(scan.pruned for scan in scans)
        totals["pruned"] += any(scan.pruned for scan in scans)
        if isinstance(outcomes[0], str):
            totals[outcomes[0]] += 1

    draw_all(commands(), count, drawn)
    assert twins is not None
    assert twins.differ_in_time() is None, twins.kind
    print(dict(totals), {what: round(took, 1) for what, took in seconds.items()})
    assert totals["skipped"] > totals["files"] / 10, totals


ICEBERG = {
    "copy-on-write": {"write.merge.mode": "copy-on-write", "format-version": "2"},
    "positions": {**dict.fromkeys(MERGE_ON_READ, "merge-on-read"), "format-version": "2"},
    "vectors": {**dict.fromkeys(MERGE_ON_READ, "merge-on-read"), "format-version": "3"},
}


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=pytest.mark.soak)])
def test_random_commands_of_iceberg(
    spark: SparkSession, originals: dict[str, str], count: int
) -> None:
    totals: Counter[str] = Counter()

    def renew() -> str:
        kind = [*ICEBERG][totals["commands"] // LIFE % len(ICEBERG)]
        make_table(spark, "indexed", ROWS, INDEX, properties=ICEBERG[kind])
        make_table(spark, "twin", ROWS, properties=ICEBERG[kind])
        return kind

    def run(command: Command) -> None:
        if totals["commands"] % LIFE == 0:
            totals["kind"] = [*ICEBERG].index(renew())
        totals["commands"] += 1
        said = f"{totals['commands']} {[*ICEBERG][totals['kind']]}: {command}"
        if "INDEX" in command.statement:
            command.run(spark, "indexed", 0)
            return
        seen = newest(spark)
        outcomes = []
        for table in NAMES:
            with serving(spark, table), settings(spark, command.conf):
                outcomes.append(outcome(lambda t=table: command.run(spark, t, 0)))
            if table == "indexed":
                scans = list(looks(spark, seen))
        assert outcomes[0] == outcomes[1], said
        assert contents(spark, "indexed") == contents(spark, "twin"), said
        totals["failed" if isinstance(outcomes[0], str) else "done"] += 1
        totals["files"] += sum(scan.total for scan in scans)
        totals["skipped"] += sum(scan.pruned for scan in scans)
        totals["pruned"] += any(scan.pruned for scan in scans)

    with in_catalog_of(spark, "iceberg"):
        make_table(spark, "other", OTHER)
        try:
            draw_all(commands(of_iceberg=True), count, run)
        finally:
            spark.sql("DROP SKIPPING INDEX IF EXISTS ON indexed")
            for table in (*NAMES, "other"):
                spark.sql(f"DROP TABLE IF EXISTS {table}")
    print(dict(totals))
    assert totals["skipped"] > totals["files"] / 10, totals
