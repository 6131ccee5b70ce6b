"""Parameters of `spark.sql` and EXECUTE IMMEDIATE, which the parsers of Delta and Iceberg drop.

One format alone is in `alone.py`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import array, create_map, lit, named_struct

from providers.errors import StatementError
from skipping.spark_api import RELEASE
from tests.rewrite.differential import FORMATS

DELTA, ICEBERG = "bound_delta", "iceberg.db.bound"
TABLES = {
    format: table
    for format, table in {"delta": DELTA, "iceberg": ICEBERG}.items()
    if format in FORMATS
}
needs_iceberg = pytest.mark.skipif("iceberg" not in FORMATS, reason="no release for this Spark")
QUOTES = 'it\'s "q" `b` \\ \n -- /* ? :y'
VARIABLES = "${spark.app.name} ${env:PATH}"


def needs(*release: int) -> pytest.MarkDecorator:
    """Skip a test on Spark before a release."""
    return pytest.mark.skipif(release > RELEASE, reason=f"Spark {release[0]}.{release[1]} has it")


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    if "iceberg" in FORMATS:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.db")
    for using, table in TABLES.items():
        spark.sql(
            f"CREATE OR REPLACE TABLE {table} USING {using} AS "
            "SELECT /*+ REPARTITION(4, id) */ id, concat('s', id) AS s FROM range(8)"
        )
    yield
    for table in TABLES.values():
        spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {table}")
        spark.sql(f"DROP TABLE {table}")


def rows(spark: SparkSession, text: str, args: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(text, args=args).collect()]


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("SELECT :x + 1", {"x": 4}, (5,)),
        ("SELECT ?, ?", [1, "b"], (1, "b")),
        ("SELECT :x, :x, :y", {"x": 1, "y": 2, "unused": 3}, (1, 1, 2)),
        ("SELECT :x", {"x": None}, (None,)),
        ("SELECT :x", {"x": QUOTES}, (QUOTES,)),
        ("SELECT :x", {"x": VARIABLES}, (VARIABLES,)),
        ("SELECT '😀', :x, ?", {"x": 1}, AnalysisException),
        ("SELECT '😀😀' AS a, :x AS b, :y AS c", {"x": 1, "y": "é😀"}, ("😀😀", 1, "é😀")),
        ("SELECT :x", {"x": datetime.date(2024, 2, 29)}, (datetime.date(2024, 2, 29),)),
        (
            "SELECT :x",
            {"x": datetime.datetime(2024, 2, 29, 1, 2, 3)},
            (datetime.datetime(2024, 2, 29, 1, 2, 3),),
        ),
        ("SELECT :x", {"x": Decimal("1.50")}, (Decimal("1.50"),)),
        ("SELECT :x, :y, :z", {"x": 1.5, "y": 1 << 40, "z": True}, (1.5, 1 << 40, True)),
        # What only looks like a parameter
        ("SELECT ':x ?' AS a, :x AS b /* :x ? */ -- :x ?", {"x": 1}, (":x ?", 1)),
        ("SELECT `a:x` FROM VALUES (:x) AS t(`a:x`)", {"x": 1}, (1,)),
        pytest.param(
            "SELECT parse_json('{\"x\": 7}'):x::int, :x", {"x": 1}, (7, 1), marks=needs(4, 1)
        ),
        # In places that take no expression
        ("SELECT id FROM IDENTIFIER(:t) ORDER BY id LIMIT :n", {"t": DELTA, "n": 1}, (0,)),
        pytest.param(
            "SELECT max(id) FROM IDENTIFIER(?) WHERE s < ?", [ICEBERG, "s3"], (2,),
            marks=needs_iceberg,
        ),
        ("SELECT (SELECT max(id) FROM range(:n) WHERE id < :m), :n", {"n": 9, "m": 5}, (4, 9)),
        pytest.param(
            "EXECUTE IMMEDIATE 'SELECT :a + :b' USING 3 AS a, 4 AS b", None, (7,), marks=needs(4, 0)
        ),
        pytest.param(
            "EXECUTE IMMEDIATE 'SELECT ? - ?' USING 3, 4", None, (-1,), marks=needs(4, 0)
        ),
        ("EXECUTE IMMEDIATE 'SELECT :a || ?' USING 'x'", None, AnalysisException),
        ("SELECT :x, :missing", {"x": 1}, AnalysisException),
        ("SELECT ?, ?", [1], AnalysisException),
    ],
)  # fmt: skip
def test_sql_binds_parameters(spark: SparkSession, text: str, args: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert rows(spark, text, args) == [expected]
        return
    with pytest.raises(expected):
        spark.sql(text, args=args)


@needs(4, 0)
def test_sql_binds_nested_values(spark: SparkSession) -> None:
    args = {
        "a": array(lit(1), lit(2)),
        "m": create_map(lit("k"), array(lit("v"))),
        "s": named_struct(lit("x"), lit("it's")),
    }
    assert rows(spark, "SELECT :a[1], :m['k'][0], :s.x, :a", args) == [(2, "v", "it's", [1, 2])]


def test_sql_binds_the_parameters_of_commands(spark: SparkSession) -> None:
    for table in TABLES.values():
        spark.sql(f"INSERT INTO {table} VALUES (:id, :s)", args={"id": 100, "s": "it's"})
        spark.sql(f"UPDATE {table} SET s = ? WHERE id = ?", args=["né", 100])
        assert rows(spark, f"SELECT s FROM {table} WHERE id = :id", {"id": 100}) == [("né",)]
        merge = (
            f"MERGE INTO {table} t USING (SELECT CAST(:id AS LONG) AS id) u ON t.id = u.id "
            "WHEN MATCHED AND s = :s THEN DELETE"
        )
        spark.sql(merge, args={"id": 100, "s": "né"})
        assert rows(spark, f"SELECT s FROM {table} WHERE id = :id", {"id": 100}) == []


@needs(4, 1)
def test_sql_binds_the_parameters_of_statements_that_spark_does_not_know(
    spark: SparkSession,
) -> None:
    spark.sql(f"INSERT INTO {DELTA} VALUES (50, 's50')")
    (newest,) = rows(spark, f"DESCRIBE HISTORY {DELTA} LIMIT :n", {"n": 1})
    assert newest[0] > 0
    spark.sql(f"RESTORE TABLE {DELTA} TO VERSION AS OF ?", args=[newest[0]])


@needs(4, 1)
@needs_iceberg
def test_sql_binds_the_parameters_of_statements_of_iceberg(spark: SparkSession) -> None:
    snapshot = spark.sql(f"SELECT snapshot_id FROM {ICEBERG}.snapshots").first()
    tag = f"ALTER TABLE {ICEBERG} CREATE TAG tagged AS OF VERSION :v RETAIN :n DAYS"
    assert snapshot is not None
    spark.sql(tag, args={"v": snapshot[0], "n": 2})
    assert ("tagged",) in rows(spark, f"SELECT name FROM {ICEBERG}.refs WHERE name <> ?", ["x:y"])


@pytest.mark.skipif(RELEASE >= (4, 1), reason="they have parameters")
def test_sql_names_the_release_whose_statements_have_parameters(spark: SparkSession) -> None:
    text = f"DESCRIBE SKIPPING FILES ON {DELTA} WHERE s = :x"
    with pytest.raises(StatementError, match=r"since Spark 4\.1: write the values"):
        spark.sql(text, args={"x": "s3"})


@needs(4, 1)
def test_sql_binds_the_parameters_of_our_statements(spark: SparkSession) -> None:
    text = (
        "CREATE SKIPPING INDEX ON IDENTIFIER(:t) (id MIN_MAX, s VALUE_LIST(:limit), "
        "s BLOOM_FILTER(fpp => :fpp)) WHERE id < :below AND s <> ':t' WITH (build = :build)"
    )
    spark.sql(
        text, args={"t": DELTA, "limit": 9, "fpp": 0.1, "below": 3_000_000_000, "build": False}
    )
    described = dict(rows(spark, f"DESCRIBE SKIPPING INDEX EXTENDED ON {DELTA}"))
    assert described["where"] == "id < 3000000000 AND s <> ':t'"
    spark.sql("REFRESH SKIPPING INDEX ON IDENTIFIER(?)", args=[DELTA])
    files = f"DESCRIBE SKIPPING FILES ON {DELTA} WHERE s = "
    bound = rows(spark, f"{files}:x", {"x": "s3"})
    assert bound == rows(spark, f"{files}'s3'")
    assert sum(pruned for _, _, _, pruned, _ in bound) >= 2
    for odd in (QUOTES, VARIABLES):
        assert all(file.pruned for file in spark.sql(f"{files}:x", args={"x": odd}).collect())
    explain = f"EXPLAIN SKIPPING /* ? */ SELECT id FROM {DELTA} WHERE s = ? AND s <> '?'"
    (scan,) = spark.sql(explain, args=["s3"]).collect()
    assert scan.opened == 1
    verified = spark.sql(f"VERIFY SKIPPING SELECT id FROM {DELTA} WHERE s = :x", args={"x": "s3"})
    assert verified.first()["rows"] == 1  # type: ignore[index]
    text = f"EXECUTE IMMEDIATE 'DESCRIBE SKIPPING FILES ON {DELTA} WHERE s = :x' USING 's3' AS x"
    assert rows(spark, text) == bound
    with pytest.raises(PySparkException, match="UNBOUND_SQL_PARAMETER"):
        spark.sql(f"{files}:y", args={"x": 1})
    with pytest.raises(StatementError, match="no column nope"):
        spark.sql(f"DESCRIBE SKIPPING FILES ON {DELTA} WHERE nope = ?", args=["s3"])


@needs(4, 0)
def test_errors_point_into_the_text_as_it_was_written(spark: SparkSession) -> None:
    text = f"SELECT :x AS long, nope FROM {DELTA}"
    with pytest.raises(AnalysisException) as unknown:
        spark.sql(text, args={"x": "a value that is longer than its marker"})
    (context,) = unknown.value.getQueryContext()
    assert text[context.startIndex() : context.stopIndex() + 1] == context.fragment() == "nope"
    for wrong in ("SELEC :x", f"SELECT :x FROM {DELTA} WHERE (", f"OPTIMIZE :x {DELTA}"):
        with pytest.raises(ParseException):
            spark.sql(wrong, args={"x": 1})
