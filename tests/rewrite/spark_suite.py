"""Spark's own SQL test inputs, on tables of several files with an index on every column.

Spark publishes the inputs in the `tests` jar of spark-sql, of 4.1.1 the last time; there is none
of 4.1.4. What an input makes as a view or a table becomes a table of a format, in several files.
Each query that reads one runs without skipping and with it, and the rows must be equal.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    NullType,
    StructField,
    StructType,
)

import rewrite
from providers.errors import SkippingError
from rewrite.bridge.classes import Classes
from tests.jvm import Artifact, javas
from tests.rewrite.differential import ENABLED, FORMATS, settings, spelled

__all__ = ["Outcome", "Suite", "cost_ignored", "input_names", "without_cheap"]

JAR = Artifact(
    "org.apache.spark",
    "spark-sql-inputs",
    "4.1.1",
    "3a0ca496d611bd5f1b1bbf2f1e838b3cadfb648a4385ce4db3718c05ab0d451d",
    parts=("org.apache.spark:spark-sql_2.13:4.1.1:tests",),
)
FOLDER = "sql-tests/inputs/"
LEFT_OUT = (
    *("udf/", "udaf/", "udtf/", "scripting/"),  # functions and scripts of Spark's own test classes
    *("nonansi/", "timestampNTZ/"),  # import another input under another setting
    *("typeCoercion/", "sql-udf", "st-functions", "transform"),  # one row, or functions alone
    *("explain", "describe", "show"),  # no rows of tables
    "postgreSQL/numeric",  # 493 writes for 12 queries
)
FEWEST = 5
"""Inputs with fewer queries that have a condition are left out: their tables take longer."""
FILES = 8

# Tables of a few rows take longer to compile code for than to read. Keys have no limit, and a busy
# machine is no reason to skip nothing.
SETTINGS = {
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.skipping.timeout": "60s",
    "spark.skipping.dynamic.maxBytes": "0",
}
# Plans that read in another order: a query whose rows differ among them has no single result.
OTHER_ORDERS = (
    {"spark.sql.files.maxPartitionBytes": "1", "spark.sql.shuffle.partitions": "5"},
    {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "3"},
    {"spark.sql.files.minPartitionNum": "1", "spark.sql.shuffle.partitions": "1"},
)
FAILURES = (PySparkException, Py4JError, SkippingError, ValueError, TypeError)

_VIEW = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMP(?:ORARY)?\s+)?VIEW\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>[\w`.]+)\s*(?P<columns>\([^()]*\))?\s+AS\b(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_TABLE = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>[\w`.]+)",
    re.IGNORECASE,
)
_DROP = re.compile(r"DROP\s+(?:TABLE|VIEW)\s+(?:IF\s+EXISTS\s+)?(?P<name>[\w`.]+)", re.IGNORECASE)
_WRITE = re.compile(
    r"(?:INSERT|UPDATE|DELETE|MERGE|TRUNCATE|ALTER|WITH\b.*\bINSERT)\b", re.I | re.S
)
_QUERY = re.compile(r"\(*\s*(?:SELECT|WITH|FROM|TABLE|VALUES)\b", re.IGNORECASE)
_CONDITION = re.compile(r"\b(?:WHERE|JOIN|IN|EXISTS|INTERSECT|EXCEPT|LATERAL)\b", re.IGNORECASE)
_LEFT_ALONE = re.compile(
    r"(?:USE|CREATE\s+(?:DATABASE|SCHEMA|NAMESPACE)|EXPLAIN|CACHE|DESC)\b", re.I
)
_READS_A_TABLE = re.compile(r"SubqueryAlias (?:spark_catalog|iceberg)\.|RelationV2")
_UNSPLIT = re.compile(r"--QUERY-DELIMITER-START(.*?)--QUERY-DELIMITER-END", re.DOTALL)


@cache
def _archive() -> zipfile.ZipFile:
    java = next(java for java, _ in javas())
    (jar,) = JAR.jars(java).glob("*.jar")
    return zipfile.ZipFile(jar)


def input_names() -> list[str]:
    """The inputs with some queries that have a condition, which may skip files."""
    names = (name.removeprefix(FOLDER) for name in _archive().namelist() if FOLDER in name)
    names = (n for n in names if n.endswith(".sql") and not n.startswith(LEFT_OUT))
    return sorted(
        name
        for name in names
        if sum(map(_has_condition, _statements(_read(FOLDER + name)))) >= FEWEST
    )


def _has_condition(statement: str) -> bool:
    return bool(_QUERY.match(statement) and _CONDITION.search(statement))


def _read(name: str) -> str:
    return _archive().read(name).decode()


def _statements(text: str) -> Iterator[str]:
    """The statements of an input, without comments on lines of their own."""
    blocks = _UNSPLIT.split(text)
    for n, block in enumerate(blocks):
        lines = (line for line in block.splitlines() if not line.lstrip().startswith("--"))
        code = "\n".join(lines)
        parts = [code] if n % 2 else re.split(r";[ \t]*(?:--[^\n]*)?(?:\n|$)", code)
        yield from (part.strip().rstrip(";") for part in parts if part.strip(" \n;"))


def _settings_of(text: str) -> dict[str, str]:
    """What an input asks for: its settings, and the first of each of its dimensions."""
    values: dict[str, str] = {}
    dimensions: set[str] = set()
    for kind, listed in re.findall(r"^--(SET|CONFIG_DIM\d+) +(.*)$", text, re.MULTILINE):
        if kind == "SET" or kind not in dimensions:
            pairs = re.findall(r"([\w.]+)\s*=\s*([^,\s]+)", listed)
            values.update((key, value) for key, value in pairs)
        dimensions.add(kind)
    return values


@dataclass
class Outcome:
    """Counts of the queries of an input that read a table, and those that went wrong."""

    compared: int = 0
    skipped: int = 0
    failed_without: int = 0
    undetermined: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Suite:
    """The inputs on tables of one format: `delta` or `iceberg`."""

    def __init__(self, spark: SparkSession, format: str) -> None:
        self._spark = spark
        self._format = format
        self._catalog = "iceberg" if format == "iceberg" else "spark_catalog"

    def run(self, name: str) -> Outcome:
        """Run one input, in a session and a namespace of its own."""
        text = _read(FOLDER + name)
        spark = self._spark.newSession()
        namespace = f"{self._catalog}.suite_{re.sub(r'[^a-z0-9]', '_', name.lower())}"
        spark.sql(f"CREATE NAMESPACE {namespace}")
        spark.sql(f"USE {namespace}")
        wanted = {**SETTINGS, "spark.sql.sources.default": self._format, **_settings_of(text)}
        for key, value in wanted.items():
            with suppress(PySparkException):  # a static setting
                spark.conf.set(key, value)
        run = _Run(spark, self._format)
        try:
            run.create_shared(text)
            for statement in _statements(text):
                run.execute(statement)
        finally:
            run.drop_all()
        return run.outcome


class _Run:
    """The statements of one input, in order."""

    def __init__(self, spark: SparkSession, format: str) -> None:
        self.outcome = Outcome()
        self._spark = spark
        self._format = format
        self._tables: dict[str, bool] = {}  # whether it is in files and indexed as it is now

    def create_shared(self, text: str) -> None:
        """Create those tables that Spark's own runner gives to every input."""
        for name, schema, source in SHARED:
            if re.search(rf"\b{name}\b", text, re.IGNORECASE):
                self._create(name, source(self._spark, schema))

    def execute(self, statement: str) -> None:
        """Run a statement; a query that reads a table is compared."""
        if _LEFT_ALONE.match(statement):
            return
        if _QUERY.match(statement) and not _WRITE.match(statement):
            if _has_condition(statement):
                self._index_all()
                self._compare(statement)
            return
        with suppress(*FAILURES):
            self._change(statement)

    def drop_all(self) -> None:
        for table in list(self._tables):
            with suppress(*FAILURES):
                self._drop(table)

    def _change(self, statement: str) -> None:
        if view := _VIEW.match(statement):
            rows = self._spark.sql(view["query"])
            if view["columns"]:
                rows = rows.toDF(*re.findall(r"\w+", view["columns"]))
            name = view["name"].split(".")[-1]
            if _reads_a_table(rows) or not self._create(name, rows):
                rows.createOrReplaceTempView(name)
            return
        if drop := _DROP.match(statement):
            if not self._drop(drop["name"]):
                self._spark.sql(statement)
            return
        if table := _TABLE.match(statement):
            self._drop(table["name"])
            statement = re.sub(r"\bUSING\s+\w+", f"USING {self._format}", statement, flags=re.I)
            self._spark.sql(statement)
            self._tables[table["name"].lower()] = False
            without_bounds = ", ".join(
                f"'{key}' = '{value}'" for key, value in FORMATS[self._format].properties.items()
            )
            self._spark.sql(f"ALTER TABLE {table['name']} SET TBLPROPERTIES ({without_bounds})")
            return
        self._spark.sql(statement)
        if _WRITE.match(statement):
            self._tables.update(dict.fromkeys(self._tables, False))

    def _create(self, name: str, rows: DataFrame) -> bool:
        """Create a table of the rows; not of a single row, or of types that tables lack."""
        found = rows.collect()
        if len(found) < 2 or not all(map(_is_storable, rows.schema)):
            return False
        self._drop(name)
        self._spark.catalog.dropTempView(name)
        frame = self._spark.createDataFrame(found, rows.schema, verifySchema=False)
        with suppress(*FAILURES):
            write = frame.coalesce(1).writeTo(name).using(self._format)
            for key, value in FORMATS[self._format].properties.items():
                write.tableProperty(key, value)
            write.create()
            self._tables[name.lower()] = False
            return True
        return False

    def _drop(self, name: str) -> bool:
        if self._tables.pop(name.lower(), None) is None:
            return False
        self._spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
        self._spark.sql(f"DROP TABLE IF EXISTS {name}")
        return True

    def _index_all(self) -> None:
        for name, is_indexed in self._tables.items():
            if not is_indexed:
                self._tables[name] = True
                with suppress(*FAILURES):
                    self._index(name)

    def _index(self, name: str) -> None:
        """Lay the rows out in several files, and index every column that can have an index."""
        table = self._spark.table(name)
        rows = table.collect()
        files = min(FILES, len(rows))
        if files > 1:
            # Read apart: a table cannot be overwritten with what is read of it.
            frame = self._spark.createDataFrame(rows, table.schema, verifySchema=False)
            order = next((f.name for f in table.schema if _is_ordered(f.dataType)), None)
            parts = (
                frame.repartitionByRange(files, f"`{order}`") if order else frame.repartition(files)
            )
            parts.write.insertInto(name, overwrite=True)
        columns = [column for f in table.schema for column in _columns(f.name, f.dataType)]
        self._spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
        listed = ", ".join(f"{column} VALUE_LIST" for column in columns)
        self._spark.sql(f"CREATE SKIPPING INDEX ON {name} ({listed})")

    def _compare(self, query: str) -> None:
        try:
            if not _reads_a_table(self._spark.sql(query)):
                return
        except FAILURES:
            return  # an error of the analysis, in which no file plays a part
        self.outcome.compared += 1
        with settings(self._spark, {ENABLED: "false"}):
            expected = _rows(self._spark, query)
        frame, rows = _rows_of(self._spark, query)
        if frame is not None and any(scan.pruned for scan in rewrite.explain(frame).scans):
            self.outcome.skipped += 1
        if isinstance(expected, str):  # what is not read cannot fail
            self.outcome.failed_without += 1
        elif rows != expected:
            if isinstance(rows, list) and self._is_undetermined(query, expected):
                self.outcome.undetermined.append(query)
            else:
                self.outcome.wrong.append(f"{query}\n  without: {expected}\n  with: {rows}")

    def _is_undetermined(self, query: str, expected: list[str]) -> bool:
        """Whether the query has other rows when Spark alone reads the files in another order."""
        for order in OTHER_ORDERS:
            with settings(self._spark, {ENABLED: "false", **order}):
                if _rows(self._spark, query) != expected:
                    return True
        return False


def _rows_of(spark: SparkSession, query: str) -> tuple[DataFrame | None, list[str] | str]:
    try:
        frame = spark.sql(query)
        return frame, spelled(frame.collect())
    except FAILURES as error:
        return None, f"{type(error).__name__} {str(error)[:500]}"


def _rows(spark: SparkSession, query: str) -> list[str] | str:
    return _rows_of(spark, query)[1]


def _reads_a_table(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().analyzed().toString()
    return _READS_A_TABLE.search(plan) is not None


@contextmanager
def cost_ignored(spark: SparkSession) -> Iterator[None]:
    """Collect the keys of joins whatever they cost: tables of a few rows are not worth it."""
    with _set_cost(spark, "isIgnored", True, False):
        yield


@contextmanager
def without_cheap(spark: SparkSession) -> Iterator[None]:
    """Let tables of a few rows be as expensive to read again as large ones."""
    with _set_cost(spark, "cheapBytes", 0, 1 << 20):
        yield


@contextmanager
def _set_cost(spark: SparkSession, name: str, value: object, after: object) -> Iterator[None]:
    field = Classes(spark.sparkContext._gateway).find("join.SideCost").getDeclaredField(name)
    field.setAccessible(True)
    field.set(None, value)
    try:
        yield
    finally:
        field.set(None, after)


def _columns(name: str, type: DataType) -> Iterator[str]:
    """The columns of a field that can have an index."""
    if isinstance(type, StructType):
        for inner in type:
            yield from (f"`{name}`.{rest}" for rest in _columns(inner.name, inner.dataType))
    elif _is_ordered(type):
        yield f"`{name}`"


def _is_ordered(type: DataType) -> bool:
    has_order = not isinstance(type, ArrayType | MapType | StructType | NullType)
    return has_order and type.typeName() != "variant"  # a class that PySpark 3.5 does not have


def _is_storable(field: StructField) -> bool:
    return "void" not in field.dataType.simpleString()


def _lines(file: str) -> Callable[[SparkSession, str], DataFrame]:
    """The rows of a file of tabulated values in the jar."""

    def read(spark: SparkSession, schema: str) -> DataFrame:
        lines = _read(f"test-data/postgresql/{file}").splitlines()
        names = [column.split()[0] for column in schema.split(", ")]
        raw = spark.createDataFrame([line.split("\t") for line in lines], names)
        return raw.selectExpr(
            *(f"CAST({n} AS {t}) {n}" for n, t in map(str.split, schema.split(", ")))
        )

    return read


def _query(sql: str) -> Callable[[SparkSession, str], DataFrame]:
    return lambda spark, _: spark.sql(sql)


TENK = (
    "unique1 int, unique2 int, two int, four int, ten int, twenty int, hundred int, thousand int, "
    "twothousand int, fivethous int, tenthous int, odd int, even int, stringu1 string, "
    "stringu2 string, string4 string"
)
SHARED = (
    ("testdata", "", _query("SELECT int(id) AS key, string(id) AS value FROM range(1, 101)")),
    (
        "arraydata",
        "",
        _query(
            "SELECT * FROM VALUES (array(1, 2, 3), array(array(1, 2, 3))), "
            "(array(2, 3, 4), array(array(2, 3, 4))) AS t(arraycol, nestedarraycol)"
        ),
    ),
    (
        "mapdata",
        "",
        _query(
            "SELECT map_from_arrays(s, transform(s, k -> concat('a', k))) AS mapcol "
            "FROM (SELECT sequence(1, id) AS s FROM range(1, 6))"
        ),
    ),
    ("aggtest", "a int, b float", _lines("agg.data")),
    ("onek", TENK, _lines("onek.data")),
    ("tenk1", TENK, _lines("tenk.data")),
)
"""The tables that Spark's runner makes for all inputs: name, columns, rows."""
