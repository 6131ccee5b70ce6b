"""ADDRESSES on Delta and Iceberg: a file has networks that text order puts beside others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skipping import in_network
from tests.rewrite.differential import (
    FORMATS,
    batch,
    exact_batch,
    in_catalog_of,
    make_table,
    matching,
    skips,
    smoke_on,
)

NETWORKS = [(10, 1), (10, 19), (10, 2), (10, 200), (100, 1), (192, 168), (172, 16), (1, 0)]


@pytest.fixture(scope="module", params=FORMATS)
def visits(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """A file has 60 addresses of a network, every other a `-`; one has IPv6, and one a null."""
    rows: list[tuple[int, str | None]] = [
        (f, f"{a}.{b}.{4 * i}.{i}") for f, (a, b) in enumerate(NETWORKS) for i in range(60)
    ]
    rows += [(f, "-") for f in range(1, len(NETWORKS), 2)]
    rows += [(len(NETWORKS), text) for text in ("2001:db8::1", "2001:DB8:0:0:0:0:0:ff", "fe80::1")]
    rows += [(len(NETWORKS) + 1, None)]
    # No addresses to the index, which regular expressions may take for some.
    rows += [(len(NETWORKS) + 2, text) for text in ("2001:db8::1\n", "::ffff:10.1.0.1")]
    with in_catalog_of(spark, request.param):
        data = spark.createDataFrame(rows, "_f int, ip string")
        table = make_table(spark, "visits", data, "ip ADDRESSES(4)")
        yield table
        spark.sql(f"DROP SKIPPING INDEX ON {table}")
        spark.sql(f"DROP TABLE {table}")


@smoke_on("delta", "visits")
def test_exactly_the_needed_files_are_opened(spark: SparkSession, visits: str) -> None:
    conditions = [
        "ip = '10.19.8.2'", "ip = '10.20.0.1'", "ip IN ('10.1.4.1', '172.16.0.0', 'x')", "ip = '-'",
        "ip LIKE '10.1.%'", "ip LIKE '10.%'", "startswith(ip, '192.168.')", "ip LIKE '10.2.%'",
        "ip LIKE '11.%' OR ip LIKE '100.1.%'", "ip LIKE '2001:db8:%' OR ip = 'fe80::1'",
        "ip IS NULL", "ip IS NOT NULL", "ip LIKE '10.20.%'", "ip LIKE '10.19.%' AND ip > '10.19.4'",
        in_network("ip", "10.0.0.0/8"), in_network("ip", "10.16.0.0/14"),
        in_network("ip", "172.16.0.0/12"), in_network("ip", "10.1.0.0/30"),
        in_network("ip", "192.168.4.1/32"), in_network("ip", "0.0.0.0/1"),
    ]  # fmt: skip
    exact_batch(spark, visits, conditions)


@pytest.mark.parametrize("network", ["10.16.0.0/14", "172.16.0.0/12", "10.1.4.1/32"])
def test_the_function_of_sql_is_the_condition(
    spark: SparkSession, visits: str, network: str
) -> None:
    function = f"in_network(ip, '{network}')"
    written = skips(spark, f"SELECT * FROM {visits} WHERE {in_network('ip', network)}")
    called = skips(spark, f"SELECT * FROM {visits} WHERE {function}")
    assert (called.opened, called.skipped) == (written.opened, written.skipped)
    assert called.skipped > 0
    table = spark.table(visits)
    count = table.where(F.call_function("in_network", "ip", F.lit(network))).count()
    assert count == table.where(in_network("ip", network)).count() > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("in_network(ip)", "these two are needed, not 1"),
        ("in_network(ip, '10.1.0.1/16')", "is not an IPv4 network"),
        ("in_network(ip, '2001:db8::/32')", "for IPv6 compare prefixes"),
        ("in_network(ip, repeat('1', 1000))", "it is too long"),
        ("in_network(ip, ip)", "it is no constant text"),
        ("in_network(ip, 10)", "it is no constant text"),
        ("in_network(length(ip), '10.0.0.0/8')", "it is no text"),
        ("in_network(concat(ip, rand()), '10.0.0.0/8')", "it is another one each time"),
        ("in_network((SELECT max(ip) FROM visits), '10.0.0.0/8')", "it has a subquery"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    spark: SparkSession, visits: str, call: str, message: str
) -> None:
    with pytest.raises(AnalysisException, match=f"in_network.*{message}"):
        spark.sql(f"SELECT * FROM {visits} WHERE {call}")


def test_no_network_is_null(spark: SparkSession) -> None:
    row = spark.sql("SELECT in_network('10.1.0.1', NULL), in_network(NULL, '10.0.0.0/8')").first()
    assert row is not None
    assert list(row) == [None, None]


def test_regular_expression_of_ipv6_reads_all_files(spark: SparkSession, visits: str) -> None:
    condition = "ip RLIKE '(?i)^2001:0?db8:'"
    assert len(matching(spark, visits, condition)) == 2
    found = skips(spark, f"SELECT * FROM {visits} WHERE {condition}")
    assert found.skipped <= 1  # the file without an address
    assert "RLIKE" in str(found.explained)


def test_hundreds_of_networks_are_one_condition(spark: SparkSession, visits: str) -> None:
    others = [f"10.{n}.{m}.0/24" for n in range(30, 60) for m in range(10)]
    blocked = " OR ".join(in_network("ip", network) for network in ["10.19.0.0/16", *others])
    assert blocked.count("LIKE") == 301
    found = skips(spark, f"SELECT * FROM {visits} WHERE {blocked}")
    assert (found.opened, found.skipped) == (1, 10)
    assert "301 prefixes" in str(found.explained)
    exact_batch(spark, visits, [blocked])


def test_what_is_no_question_of_addresses_loses_no_row(spark: SparkSession, visits: str) -> None:
    conditions = [
        "ip LIKE '1%'", "ip LIKE '10.1'", "ip LIKE '10.1%'", "ip NOT LIKE '10.1.%'",
        "ip <> '10.1.4.1'", "ip NOT IN ('10.1.4.1', '-')", "ip < '10.2'", "ip BETWEEN '1' AND '11'",
        "split_part(ip, '.', 1) = '10'", "ip <=> '10.1.4.1'", "lower(ip) = '2001:db8::1'",
        "ip = '2001:DB8::1'", "ip LIKE '2001:%'", "ip LIKE 'fe80%'", "ip = ''", "ip LIKE '%'",
        "ip COLLATE UTF8_LCASE = '2001:DB8::1'", "ip COLLATE UTF8_LCASE LIKE '2001:DB8:%'",
        f"NOT {in_network('ip', '10.0.0.0/9')}", "ip RLIKE '(?i)^(?:2001:db8:)'",
        "ip RLIKE '(?i)^(?:2001:db8:0:0:0:0:0:0/32){0}.*'",
    ]  # fmt: skip
    assert batch(spark, visits, conditions).skipped > 0


@smoke_on("delta", "visits")
def test_a_join_opens_the_files_of_its_addresses(spark: SparkSession, visits: str) -> None:
    keys = "SELECT explode(array('10.19.8.2', '10.20.0.1', '1.0.4.1')) AS k, 'x' AS name"
    query = f"SELECT v.ip, name FROM {visits} AS v JOIN ({keys}) AS dim ON v.ip = dim.k"
    assert skips(spark, query).opened == 2
