"""Statements while one method of ours after the other fails: rows are as without us.

Run as a program with a folder; prints a report as JSON. It has a JVM of its own, whose copy of our
classes is prepared by `FaultInjector.java`.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession

import rewrite
from rewrite.bridge import classes, install
from rewrite.bridge.install import find_hooks
from tests.jvm import compile_java, load_folder, spark_jars
from tests.rewrite.differential import (
    ENABLED,
    by_group,
    in_catalog_of,
    make_table,
    settings,
    spelled,
)

BEGUN = time.monotonic()
FILES = 6
FACT = f"""SELECT id, int(id % 60) AS k, concat('key ', id % 60) AS s, int(id % {FILES}) AS m,
    timestamp_seconds(86400 * (id % 60)) AS ts, repeat(sha2(string(id), 512), 20) AS pad,
    int(id % {FILES}) AS _f FROM range(240)"""
DIM = """SELECT int(id) AS k, concat('key ', id) AS s, int(id % 6) AS a, int(id % 7) AS g,
    0 AS _f FROM range(60)"""
INDEX = """k VALUE_LIST, k MIN_MAX, s VALUE_LIST, s NGRAM, id MIN_MAX, ts MIN_MAX,
    (k, m) VALUE_LIST, lower(s) VALUE_LIST"""
PARTS = {"write.delete.mode", "write.update.mode", "write.merge.mode"}
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
JOIN = "SELECT f.id, d.g FROM {t} f JOIN {d} d ON f.k = d.k WHERE d.a = 3"

READS: dict[str, tuple[str, Mapping[str, str]]] = {
    "one value": ("SELECT * FROM {t} WHERE k = 3", {}),
    "values or text": ("SELECT id FROM {t} WHERE k IN (3, 7) OR s LIKE '%ey 12%'", {}),
    "two columns": ("SELECT id FROM {t} WHERE (k = 3 AND m = 3) OR (k = 4 AND m = 4)", {}),
    "a function": ("SELECT id FROM {t} WHERE date(ts) = date'1970-01-04'", {}),
    "an expression": (
        "SELECT id FROM {t} WHERE lower(s) = 'key 3' AND lower(CAST(k AS STRING)) = '3'", {}),
    "no file": ("SELECT count(*), max(id) FROM {t} WHERE k = 999", {}),
    "join": (JOIN, {}),
    "join, sort-merge": (JOIN, SMJ),
    "join, not adaptive": (JOIN, PLAIN),
    "join, not adaptive, sort-merge": (JOIN, {**PLAIN, **SMJ}),
    "join, interpreted": (JOIN, INTERPRETED),
    "join, interpreted, not adaptive": (JOIN, {**INTERPRETED, **PLAIN, **SMJ}),
    "join by two columns": (
        "SELECT f.id FROM {t} f JOIN {d} d ON f.k = d.k AND f.m = d.a WHERE d.g = 3", {}),
    "join by two columns, sort-merge": (
        "SELECT f.id FROM {t} f JOIN {d} d ON f.k = d.k AND f.m = d.a WHERE d.g = 3", SMJ),
    "join by a range": (
        "SELECT f.id FROM {t} f JOIN (SELECT min(k) AS a, max(k) AS b FROM {d} WHERE k IN (3, 4))"
        " ON f.k BETWEEN a AND b", {}),
    "outer join of an aggregate": (
        "SELECT d.k, n FROM {d} d LEFT JOIN (SELECT k, count(*) AS n FROM {t} GROUP BY k) f"
        " ON f.k = d.k WHERE d.a = 3", {}),
    "join with rows of a LIMIT": (
        "SELECT f.id FROM {t} f JOIN (SELECT k FROM {d} WHERE a = 3 LIMIT 99) d ON f.k = d.k", {}),
    "join with first rows": (
        "SELECT f.id FROM {t} f JOIN (SELECT k FROM {d} ORDER BY k LIMIT 2) d ON f.k = d.k", {}),
    "join with first rows, not adaptive": (
        "SELECT f.id FROM {t} f JOIN (SELECT k FROM {d} ORDER BY k LIMIT 2) d ON f.k = d.k", PLAIN),
    "join with groups": (
        "SELECT f.id, d.g FROM {t} f JOIN (SELECT k, s, max(g) AS g FROM {d} WHERE a = 3"
        " GROUP BY k, s) d ON f.k = d.k", {}),
    "IN, EXISTS, OR": (
        "SELECT id FROM {t} f WHERE k IN (SELECT k FROM {d} WHERE a = 3 AND g = 1)"
        " OR EXISTS (SELECT 1 FROM {d} d WHERE d.k = f.k AND d.a = 4 AND d.g = 2)", {}),
    "NOT IN": ("SELECT id FROM {t} WHERE k NOT IN (SELECT k FROM {d} WHERE a < 5)", {}),
    "a scalar subquery": (
        "SELECT id FROM {t} WHERE k = (SELECT max(k) FROM {d} WHERE a = 3)", {}),
    "a correlated subquery": (
        "SELECT k, (SELECT sum(f.id) FROM {t} f JOIN (SELECT d.k AS a) ON f.k = a) FROM {d} d"
        " WHERE a = 3", {}),
    "the first rows": ("SELECT id, k FROM {t} ORDER BY id DESC LIMIT 3", {}),
    "some rows": ("SELECT count(*) FROM (SELECT id FROM {t} WHERE k > -1 LIMIT 5)", {}),
    "equal parts": (
        "SELECT /*+ REPARTITION(2, s) */ s, id FROM {t} WHERE k = 3 UNION ALL"
        " SELECT /*+ REPARTITION(2, s) */ s, id FROM {t} WHERE k = 4", {}),
    "two prunings, joined": (
        "WITH c AS (SELECT f.id FROM {t} f JOIN {d} d ON f.k = d.k WHERE d.a = 3)"
        " SELECT a.id, b.id FROM c a JOIN c b ON a.id = b.id", {}),
    "a temporary view": ("SELECT id FROM {format}_view WHERE k = 5", {}),
    "a view": ("SELECT id FROM spark_catalog.default.{format}_stored WHERE k = 5", {}),
    "EXPLAIN": ("EXPLAIN EXTENDED " + JOIN, {}),
}  # fmt: skip
"""By name: a query on a fact and a dimension of each format, and its settings."""

VERSIONS: dict[str, str] = {
    "time travel": "SELECT id FROM {t} VERSION AS OF {version} WHERE k = 3",
    "a join of a version": "SELECT f.id FROM {t} VERSION AS OF {version} f JOIN {d} d"
    " ON f.k = d.k WHERE d.a = 3",
    "a stream joined with it": "STREAM {d} JOIN {t}",
}
"""Those of tables with versions."""

COMMANDS: dict[str, Sequence[str]] = {
    "DELETE": ("DELETE FROM {w} WHERE k = 3", "INSERT INTO {w} SELECT * FROM {t} WHERE k = 3"),
    "DELETE by a subquery": (
        "DELETE FROM {w} WHERE k IN (SELECT k FROM {d} WHERE a = 3 AND g < 2)",
        "INSERT INTO {w} SELECT * FROM {t} WHERE k IN (SELECT k FROM {d} WHERE a = 3 AND g < 2)",
    ),
    "UPDATE": ("UPDATE {w} SET pad = s WHERE k IN (4, 5)",),
    "MERGE": (
        "MERGE INTO {w} USING (SELECT * FROM {d} WHERE a = 3) d ON {w}.k = d.k"
        " WHEN MATCHED AND d.g > 4 THEN UPDATE SET pad = d.s WHEN NOT MATCHED THEN INSERT (k)"
        " VALUES (d.k)",
    ),
    "MERGE that only inserts": (
        "MERGE INTO {w} USING (SELECT * FROM {d} WHERE a = 4) d ON {w}.k = d.k"
        " WHEN NOT MATCHED THEN INSERT (k) VALUES (d.k)",
    ),
}
"""Commands that leave {w} as it is once all of them have run."""

COPIES: dict[str, Sequence[str]] = {
    "CREATE TABLE AS SELECT": (
        "DROP TABLE IF EXISTS {t}_copy",
        "CREATE TABLE {t}_copy USING {format} AS " + JOIN,
        "SELECT * FROM {t}_copy",
    ),
    "INSERT SELECT": (
        "DROP TABLE IF EXISTS {t}_sink",
        "CREATE TABLE {t}_sink USING {format} AS SELECT id FROM {t} WHERE k = 999",
        "INSERT INTO {t}_sink SELECT id FROM {t} WHERE k IN (3, 4)",
        "SELECT * FROM {t}_sink",
    ),
    "a function": (
        "CREATE OR REPLACE TEMPORARY FUNCTION threes() RETURNS TABLE (id BIGINT)"
        " RETURN SELECT id FROM {t} WHERE k = 3",
        "SELECT id FROM threes()",
    ),
    "a cache": (
        "UNCACHE TABLE IF EXISTS cached",
        "DROP VIEW IF EXISTS cached",
        "CACHE TABLE cached AS SELECT * FROM {t} WHERE k = 3",
        "SELECT c.id, f.id FROM cached c JOIN {t} f ON f.k = c.k",
        "UNCACHE TABLE cached",
        "SELECT id FROM {t} WHERE k = 3",
    ),
}

NEW_SESSION = ("JoinPruningRule$Inject", "SkippingSqlParser$Inject")
"""Classes that are called when a session begins."""

MAIN = {
    "FilePruningRule.apply": "delta: one value",
    "JoinPruningRule.apply": "delta: join",
    "PrunedFileIndex.list": "delta: join, not adaptive",
    "PrunedBatchScan.filter": "iceberg: join, not adaptive",
    "PrunedBatchScan$PrunedBatch.planInputPartitions": "iceberg: one value",
}
"""Methods on the way of each query, and a statement that calls them."""

EXEMPT = {
    "SkippingCommand": "stands only in the plan of a statement of ours, which raises",
    "IndexedExpression": "of statements of ours",
}
"""Classes that may fail: with them fails what is ours, not a query."""

UNCALLED = {
    "ExecutionLog.onApplicationEnd": "Spark calls it when it stops, and catches what it raises",
    "SkippingExtension.apply": "Spark or `enable` calls it before any query; there it may raise",
}
"""Methods that no statement calls."""

FAULTS = ((0, "stack", 3), (1, "state", 2), (2, "link", 1))
"""The calls of a method that fail (0: each), with what, and in how many statements."""


def log(text: str) -> None:
    """Print how far the run is."""
    print(f"{time.monotonic() - BEGUN:.0f} s: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Statement:
    """Some SQL of one name and format; the last one gives the rows that are compared."""

    name: str
    texts: tuple[str, ...]
    conf: Mapping[str, str] = field(default_factory=dict)


def sql(spark: SparkSession, text: str) -> list[str]:
    """The rows of a statement."""
    return spelled(spark.sql(text).collect())


def stream(spark: SparkSession, text: str) -> list[str]:
    """The rows of a stream of one table joined with another one: STREAM dimension JOIN fact."""
    _, dimension, _, fact = text.split(" ")
    given = spark.readStream.table(dimension).where("a = 3").select("k", "g")
    joined = given.join(spark.table(fact), "k").select("id", "g")
    sink = joined.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
    sink.start().awaitTermination()
    return spelled(spark.table("streamed").collect())


@dataclass
class Report:
    """What was tried; `failures` raised or gave other rows, in `idle` runs nothing failed."""

    entries: list[str]
    harmless: list[str]
    statements: int = 0
    reached: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    idle: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        """Note a failure."""
        log(text)
        self.failures.append(text)


def prepare() -> dict[str, Any]:
    """Have the classes of the next session prepared; filled once it has begun."""
    find_jar, make_secret = classes.find_jar, install.make_secret
    found: dict[str, Any] = {}

    def inject() -> Path:
        """Return a copy of the jar whose methods can fail."""
        jar, folder = find_jar(), Path(tempfile.mkdtemp())
        gateway: Any = SparkContext._gateway
        jvm = gateway.jvm
        here = Path(__file__).parent
        sources = [here / "FaultInjector.java", here / "Faults.java"]
        compile_java(sources, spark_jars(), folder)
        loader = load_folder(gateway, folder, classes._load(gateway, jar))
        made = jvm.java.util.HashMap()
        with zipfile.ZipFile(jar) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        for name, code in entries.items():
            if name.endswith(".class"):
                made.put(name, code)
        given = jvm.java.util.ArrayList()
        given.add(made)
        given.add(loader)
        type = loader.loadClass("rewrite.faults.FaultInjector")
        injector = type.getConstructors()[0].newInstance(given.toArray())
        injector.inject()
        found["entries"] = list(injector.entries())
        found["harmless"] = list(injector.harmless())
        entries |= {str(name): bytes(made.get(name)) for name in made.keySet().toArray()}
        faults = folder / "rewrite" / "faults" / "Faults.class"
        entries["rewrite/faults/Faults.class"] = faults.read_bytes()
        changed = folder / jar.name
        with zipfile.ZipFile(changed, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, content)
        return changed

    def secret() -> str:
        return cast("str", found.setdefault("secret", make_secret()))

    cast("Any", install).make_secret = secret
    cast("Any", classes).find_jar = inject
    return found


class Matrix:
    """Runs statements with faults; `spark` is the session that has our hooks."""

    def __init__(self, spark: SparkSession, java: Any, faults: Any, report: Report) -> None:
        self._spark = spark
        self._java = java
        self._faults = faults
        self._report = report
        self._expected: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}

    def run(self, spark: SparkSession, statement: Statement) -> list[str]:
        rows: list[str] = []
        with settings(spark, statement.conf):
            for text in statement.texts:
                rows = stream(spark, text) if text.startswith("STREAM") else sql(spark, text)
        # Plans differ, and say where we are.
        return [] if statement.texts[-1].startswith("EXPLAIN") else rows

    def reach(self, statements: Sequence[Statement]) -> dict[str, dict[str, int]]:
        """What each statement gives without us, and then which methods it calls, how often."""
        calls: dict[str, dict[str, int]] = {}
        for statement in statements:
            try:
                with settings(self._spark, {ENABLED: "false"}):
                    self._expected[statement.name] = self.run(self._spark, statement)
                self._faults.arm("nothing", 0, "")
                begun = time.monotonic()
                rows = self.run(self._spark, statement)
                self.seconds[statement.name] = time.monotonic() - begun
            except Exception as error:
                self._report.fail(f"{statement.name} fails without a fault: {str(error)[:500]}")
                continue
            if rows != self._expected[statement.name]:
                self._report.fail(f"{statement.name}: other rows without a fault")
                self._expected[statement.name] = rows
            for entry, count in dict(self._faults.calls()).items():
                calls.setdefault(entry, {})[statement.name] = count
        return calls

    def check(self, entry: str, call: int, failure: str, statement: Statement) -> None:
        """Run a statement while a method fails at a call of it, or (0) at each."""
        what = f"{statement.name}, {entry} fails at call {call or 'each'}"
        is_new = entry.split(".")[0] in NEW_SESSION
        session = self._spark.newSession() if is_new else self._spark
        self._faults.arm(entry, call, failure)
        try:
            rows = self.run(session, statement)
        except Exception as error:
            lines = [line for line in str(error).split("\n") if line.strip()]
            self._report.fail(f"{what}: {' | '.join(lines)[:600]}")
            rows = self._expected[statement.name]
        thrown = self._faults.disarm()
        if rows != self._expected[statement.name]:
            self._report.fail(f"{what}: other rows")
        self._report.runs[entry] = self._report.runs.get(entry, 0) + 1
        self._report.faults += thrown
        self._report.idle += not thrown

    def check_explained(self, entry: str, statement: Statement) -> None:
        """Explain and the counters have class and message of a failure."""
        with self._failing(entry, "state"), settings(self._spark, statement.conf):
            frame = self._spark.sql(statement.texts[0])
            frame.collect()
        counted = self._java.executions().totals().json()
        # Counted are scans, and without keys a scan may still be pruned by its filter.
        counters = [] if entry == "JoinPruningRule.apply" else [counted]
        for text in (str(rewrite.explain(frame)), *counters):
            if f"IllegalStateException: a fault in {entry}" not in text:
                self._report.fail(f"{entry} is not in {text[:2000]}")

    def check_raised(self, entry: str, statement: Statement) -> None:
        """Cancellation and errors of the JVM end the query; so does each failure in mode strict."""
        for failure, mode, expected in (
            ("interrupt", "fallback", "InterruptedException"),
            ("memory", "fallback", "OutOfMemoryError"),
            ("state", "strict", "spark.skipping.mode is strict"),
        ):
            conf = {**statement.conf, "spark.skipping.mode": mode}
            with self._failing(entry, failure), settings(self._spark, conf):
                try:
                    self._spark.sql(statement.texts[0]).collect()
                    raised = "nothing"
                except Exception as error:
                    raised = str(error)
            self._spark._jvm.java.lang.Thread.interrupted()  # type: ignore[union-attr]
            if expected not in raised:
                self._report.fail(f"{entry}: {expected} became {raised[:500]}")

    def check_without_python(self, statements: Sequence[Statement], secret: str) -> None:
        """Nobody answers what Java asks; what it sent with each question stays a secret."""
        gateway: Any = self._spark.sparkContext._gateway
        # Py4J closes what its threads read from, which waits for them.
        for connection in gateway._callback_server.connections:
            connection.socket.shutdown(socket.SHUT_RDWR)
        gateway.shutdown_callback_server()
        for statement in statements:
            try:
                rows = self.run(self._spark, statement)
            except Exception as error:
                self._report.fail(f"{statement.name} without Python: {error}")
                continue
            if rows != self._expected[statement.name]:
                self._report.fail(f"{statement.name} without Python: other rows")
        try:
            self._spark.sql("SELECT in_network('10.1.2.3', '10.0.0.0/8')").collect()
            self._report.fail("a network is known without Python")
        except Exception as error:
            # Py4J's own message has all that Java sent.
            if "Python did not answer" not in str(error) or secret in str(error):
                self._report.fail(f"the error without Python is {error}")

    @contextmanager
    def _failing(self, entry: str, failure: str) -> Iterator[None]:
        self._faults.arm(entry, 0, failure)
        try:
            yield
        finally:
            if not self._faults.disarm():
                self._report.fail(f"{entry} was not called")


def make(spark: SparkSession) -> Iterator[Statement]:
    """The tables of three formats, and the statements on them."""
    for format in ("delta", "iceberg", "parquet"):
        with in_catalog_of(spark, "iceberg" if format == "iceberg" else "delta") as place:
            t, d = (f"{place.namespace}.{format}_{name}" for name in ("fact", "dim"))
            if format == "parquet":
                for name, rows in ((t, FACT), (d, DIM)):
                    by_group(spark.sql(rows)).write.format("parquet").saveAsTable(name)
                spark.sql(f"CREATE SKIPPING INDEX ON {t} ({INDEX})")
            else:
                make_table(spark, t, FACT, INDEX)
                make_table(spark, d, DIM)
            spark.sql(f"CREATE TEMP VIEW {format}_view AS SELECT id, k FROM {t}")
            spark.sql(f"CREATE VIEW spark_catalog.default.{format}_stored AS SELECT id, k FROM {t}")
        fill = partial(str.format, t=t, d=d, format=format)
        for name, (text, conf) in READS.items():
            yield Statement(f"{format}: {name}", (fill(text),), conf)
        for name, texts in COPIES.items():
            yield Statement(f"{format}: {name}", tuple(map(fill, texts)))
        if format == "parquet":
            continue
        history = "DESCRIBE HISTORY {t}"
        if format == "iceberg":
            history = "SELECT snapshot_id FROM {t}.snapshots"
        version = spark.sql(fill(history)).collect()[0][0]
        for name, text in VERSIONS.items():
            yield Statement(f"{format}: {name}", (fill(text, version=version),))
        modes = ("copy-on-write", "merge-on-read") if format == "iceberg" else ("",)
        for mode in modes:
            w = f"{t}_{mode[:4]}written".replace("-", "_")
            with in_catalog_of(spark, format):
                properties = dict.fromkeys(PARTS, mode) if mode else {}
                make_table(spark, w, FACT, INDEX, properties=properties)
            shown = f"SELECT id, k, s, m, ts, pad FROM {w}"
            # Delta has no DELETE by a subquery.
            commands = {n: c for n, c in COMMANDS.items() if mode or "subquery" not in n}
            for text in (text for texts in commands.values() for text in texts):
                spark.sql(fill(text, w=w))
            for name, texts in commands.items():
                filled = [fill(text, w=w) for text in texts]
                yield Statement(f"{format} {mode}: {name}", (*filled, shown))


def choose(
    entry: str, names: Mapping[str, int], call: int, most: int, seconds: Mapping[str, float]
) -> list[str]:
    """Return statements that call a method so often, of each format in turn, the faster half."""
    able = [name for name in names if names[name] >= call and name in seconds]
    by_format: dict[str, list[str]] = {}
    for name in sorted(able, key=lambda name: seconds[name]):
        by_format.setdefault(name.split(":")[0].split(" ")[0], []).append(name)
    # Another one for each method, so that all have their turn.
    for found in by_format.values():
        start = sum(map(ord, entry)) % ((len(found) + 1) // 2)
        found[:] = found[start:] + found[:start]
    turns = zip_longest(*by_format.values())
    return [name for turn in turns for name in turn if name is not None][:most]


def report_of(folder: Path) -> Report:
    """Try all."""
    prepared = prepare()
    spark = rewrite.session(
        SparkSession.builder.master("local[2]")
        .config("spark.sql.warehouse.dir", str(folder))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
    )
    spark.sparkContext.setLogLevel("OFF")
    hooks = find_hooks(spark)
    assert hooks is not None
    type = hooks.java.getClass().getClassLoader().loadClass("rewrite.faults.Faults")
    faults = type.getConstructors()[0].newInstance(spark._jvm.java.util.ArrayList().toArray())  # type: ignore[union-attr,operator]
    report = Report(entries=prepared["entries"], harmless=prepared["harmless"])
    matrix = Matrix(spark, hooks.java, faults, report)
    statements = list(make(spark))
    log(f"{len(statements)} statements")
    report.statements = len(statements)
    named = {statement.name: statement for statement in statements}
    calls = matrix.reach(statements)
    report.reached = {entry: len(calls.get(entry, {})) for entry in report.entries}
    log(f"all statements have run; none calls {[e for e, n in report.reached.items() if not n]}")
    for call, failure, most in FAULTS:
        for entry in report.entries:
            if entry.split(".")[0] in EXEMPT:
                continue
            names = calls.get(entry, {})
            if entry.split(".")[0] in NEW_SESSION:
                names = dict.fromkeys(["delta: join", "iceberg: join", "parquet: one value"], 1)
            for name in choose(entry, names, call, most, matrix.seconds):
                matrix.check(entry, call, failure, named[name])
        runs = sum(report.runs.values())
        log(f"{failure} at call {call or 'each'}: {runs} runs, {len(report.failures)} failures")
    for entry, name in MAIN.items():
        matrix.check_explained(entry, named[name])
        matrix.check_raised(entry, named[name])
    asked = [named[name] for name in sorted(MAIN.values())]
    matrix.check_without_python(asked, prepared["secret"])
    return report


if __name__ == "__main__":
    done = report_of(Path(sys.argv[1]))
    print("report: " + json.dumps(asdict(done)))
