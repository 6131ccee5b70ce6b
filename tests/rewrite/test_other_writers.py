"""Bounds and partitions that other programs wrote, and wrote wrong: no row is lost by them."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from skipping.tables.bounds import MAPPED, WIDENED, Bound, find_rule
from tests.rewrite.differential import (
    Compared,
    in_catalog_of,
    make_table,
    run,
    same_rows,
    settings,
    spelled,
)
from tests.rewrite.row_oracle import oracle_of

pytestmark = pytest.mark.nightly

FILES = 8

# The unscaled greatest value of each file, and how far its rows are apart.
DECIMALS = {
    "decimal(18,2)": (999_999_999_999_999_999, 1_000),
    "decimal(18,0)": (999_999_999_999_999_999, 7),
    "decimal(20,0)": (99_999_999_999_999_999_999, 10_000),
    "decimal(20,4)": (-12_345_678_901_234_567_891, 10_000),
    "decimal(38,10)": (12_345_678_901_234_567_890_123_456_789_012_345_678, 10**24),
    "decimal(9,2)": (1_234_567, 100),
}


def unscaled(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def write_decimals(path: Path, type: str) -> list[Decimal]:
    """A table of delta-rs' with FILES files, far apart; one value of each."""
    precision, scale = map(int, type[8:-1].split(","))
    most, apart = DECIMALS[type]
    values = []
    for n in range(FILES):
        rows = [unscaled(most - n * 1000 * apart - i * apart, scale) for i in range(3)]
        values.append(rows[0])
        column = pa.array(rows, pa.decimal128(precision, scale))
        write_deltalake(str(path), pa.table({"k": column, "id": [n] * 3}), mode="append")
    return values


def make_keys(spark: SparkSession, type: str, values: list[str]) -> None:
    rows = ", ".join(f"(CAST('{v}' AS {type}), {n})" for n, v in enumerate(values))
    keys = f"SELECT k, n, 'x' AS tag, 0 AS _f FROM VALUES {rows} AS t(k, n)"
    make_table(spark, "writer_keys", f"{keys} UNION ALL SELECT NULL, -1, 'y', 0")


def opened_of(found: Compared, name: str) -> int:
    """Files of one table that were opened."""
    return sum(scan.opened or 0 for scan in found.explained.scans if name in scan.table)


@pytest.mark.parametrize("type", DECIMALS)
def test_decimals_of_delta_rs(spark: SparkSession, tmp_path: Path, type: str) -> None:
    """It divides them as doubles (delta-rs#4757)."""
    values = write_decimals(tmp_path / "t", type)
    if type == "decimal(18,2)":
        DeltaTable(str(tmp_path / "t")).create_checkpoint()
    table = f"delta.`{tmp_path}/t`"
    make_keys(spark, type, [str(values[n]) for n in (0, 5)])
    query = f"SELECT f.id FROM {table} f JOIN writer_keys d ON f.k = d.k WHERE d.n >= 0"
    found = same_rows(spark, query)
    assert len(found.rows) == 2
    # Of 64 bits there are no bounds.
    assert opened_of(found, "/t") <= (FILES if type == "decimal(20,0)" else 2), found.explained
    listed = ", ".join(f"CAST('{v}' AS {type})" for v in values[2:5])
    same_rows(spark, f"SELECT id FROM {table} WHERE k IN ({listed})")
    same_rows(spark, f"SELECT k FROM {table} WHERE k IS NOT NULL ORDER BY k DESC LIMIT 2")


@pytest.mark.parametrize("command", ["MERGE", "DELETE"])
def test_commands_on_decimals_of_delta_rs(
    spark: SparkSession, tmp_path: Path, command: str
) -> None:
    """MERGE inserted a row that was there, DELETE left rows."""
    after = []
    for enabled in ("true", "false"):
        path = tmp_path / enabled
        values = write_decimals(path, "decimal(18,2)")
        make_keys(spark, "decimal(18,2)", [str(values[2]), "5.00"])
        some = ", ".join(f"{v}BD" for v in values[2:6])
        statement = {
            "MERGE": f"""MERGE INTO delta.`{path}` t USING writer_keys s ON t.k = s.k
                WHEN MATCHED THEN UPDATE SET id = -1
                WHEN NOT MATCHED THEN INSERT (k, id) VALUES (s.k, s.n)""",
            "DELETE": f"DELETE FROM delta.`{path}` WHERE k IN ({some})",
        }[command]
        with settings(spark, {"spark.skipping.enabled": enabled}):
            spark.sql(statement)
        with settings(spark, {"spark.skipping.enabled": "false"}):
            after.append(spelled(run(spark, f"SELECT k, id FROM delta.`{path}`").collect()))
    assert after[0] == after[1]


@dataclass(frozen=True)
class Fault:
    """A column of a clustered table, and what a writer makes of the bounds of a file."""

    type: str
    value: str
    write: Callable[[bytes, bytes], tuple[bytes, bytes]]
    skips: bool = True


def longs(change: Callable[[int], int]) -> Callable[[bytes], bytes]:
    return lambda bound: struct.pack("<q", change(struct.unpack("<q", bound)[0]))


def whole(bound: bytes) -> bytes:
    """A DECIMAL of four digits after the point without these."""
    number = int.from_bytes(bound, "big", signed=True) // 10_000 * 10_000
    return number.to_bytes(16, "big", signed=True)


CUT = longs(lambda micros: micros // 1000 * 1000)
MILLIS = longs(lambda micros: micros // 1000)
NANOS = longs(lambda micros: micros * 1000)


def as_float(bound: bytes) -> bytes:
    """Of a column that was a FLOAT, with its largest number for infinity."""
    return struct.pack("<f", min(LARGEST_FLOAT, *struct.unpack("<d", bound)))


LARGEST_FLOAT = 3.4028234663852886e38
TIME = "timestamp_micros(1786000000123456 + id * 60000000)"
FAULTS = {
    "delta#7444": Fault("TIMESTAMP", TIME, lambda low, up: (low, CUT(up))),
    "delta#7444 ntz": Fault("TIMESTAMP_NTZ", TIME, lambda low, up: (low, CUT(up))),
    "Altinity/ice#61": Fault("TIMESTAMP", TIME, lambda low, up: (MILLIS(low), MILLIS(up)), False),
    "Altinity/ice#61 9999": Fault(
        "TIMESTAMP",
        "timestamp_micros(253402214400000000 - id * 60000000)",
        lambda low, up: (MILLIS(low), MILLIS(up)),
        False,
    ),
    "iceberg#18173 1971": Fault(
        "TIMESTAMP_NTZ",
        "timestamp_micros(57000000000000 + id * 60000000)",
        lambda low, up: (NANOS(low), NANOS(up)),
        False,
    ),
    "ClickHouse#116999": Fault(
        "DECIMAL(18,4)", "id * 3 + 0.4567", lambda low, up: (low, whole(up))
    ),
    "duckdb#23504": Fault("DECIMAL(38,10)", "id + 0.5", lambda low, up: (low, low), False),
    "duckdb-iceberg#1047": Fault(
        "STRING", "concat(lpad(id, 4, '0'), repeat('y', 30))", lambda low, up: (low, up[:16])
    ),
    "duckdb-iceberg#1334": Fault(
        "STRING",
        "concat(lpad(id, 5, '0'), repeat('é', 30))",
        lambda low, up: (low[:16], up[:16]),
        False,
    ),
    "iceberg#16880": Fault(
        "BINARY",
        "CAST(concat(lpad(id, 4, '0'), repeat('y', 30)) AS BINARY)",
        lambda low, up: (low, up[:16]),
    ),
    "gluten#9335": Fault(
        "DOUBLE",
        "IF(id = 29, double('Infinity'), id)",
        lambda low, up: (low, struct.pack("<d", min(sys.float_info.max, *struct.unpack("<d", up)))),
    ),
    "gluten#9335 promoted": Fault(
        "DOUBLE",
        "IF(id = 29, double('Infinity'), id)",
        lambda low, up: (as_float(low), as_float(up)),
    ),
    "ClickHouse#116604": Fault("BIGINT", "id", lambda low, up: (up, low), False),
    "none": Fault("BIGINT", "id", lambda low, up: (low, up)),
}


@pytest.fixture(scope="module")
def iceberg(spark: SparkSession) -> Iterator[None]:
    with in_catalog_of(spark, "iceberg"):
        yield


@pytest.mark.parametrize("fault", FAULTS)
def test_bounds_in_manifests(spark: SparkSession, iceberg: None, fault: str) -> None:
    case = FAULTS[fault]
    rows = f"""SELECT CAST({case.value} AS {case.type}) AS k, id, int(id div 10) AS _f
        FROM range({10 * FILES})"""
    full = {"write.metadata.metrics.default": "full"}
    make_table(spark, "written", rows, properties=full)
    rewrite_bounds(spark, "iceberg.default.written", case.write)
    # The last of a file, and one in its middle.
    make_table(spark, "writer_keys", f"SELECT k, id, 0 AS _f FROM ({rows}) WHERE id IN (29, 55)")
    found = same_rows(
        spark, "SELECT f.id FROM written f JOIN writer_keys d ON f.k = d.k WHERE d.id > 0"
    )
    assert len(found.rows) >= 2
    assert (opened_of(found, "written") < FILES) == case.skips, str(found.explained)
    same_rows(spark, "SELECT k FROM written WHERE k IS NOT NULL ORDER BY k DESC LIMIT 2")


def rewrite_bounds(
    spark: SparkSession, table: str, write: Callable[[bytes, bytes], tuple[bytes, bytes]]
) -> None:
    """Write the bounds of the first column of each file anew, as they are in the manifest."""
    jvm: Any = spark.sparkContext._jvm
    iceberg, buffer = jvm.org.apache.iceberg, jvm.java.nio.ByteBuffer

    def change(made: Any, file: Any) -> None:
        low, high = jvm.java.util.HashMap(), jvm.java.util.HashMap()
        of = iceberg.util.ByteBuffers.toByteArray
        bounds = write(
            *(bytes(of(each.get(1))) for each in (file.lowerBounds(), file.upperBounds()))
        )
        low.put(1, buffer.wrap(bounds[0]))
        high.put(1, buffer.wrap(bounds[1]))
        counts = file.recordCount(), None, file.valueCounts(), file.nullValueCounts(), None
        made.withMetrics(iceberg.Metrics(*counts, low, high))

    rewrite_files(spark, table, change)


def rewrite_files(spark: SparkSession, table: str, change: Callable[[Any, Any], None]) -> None:
    """Write the entry of each file anew; `change` is given its builder, and the file."""
    jvm: Any = spark.sparkContext._jvm
    iceberg = jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    overwrite = loaded.newOverwrite()
    tasks = loaded.newScan().includeColumnStats().planFiles().iterator()
    while tasks.hasNext():
        file = tasks.next().file()
        made = (
            iceberg.DataFiles.builder(loaded.spec())
            .withPath(file.location())
            .withFormat("parquet")
            .withFileSizeInBytes(file.fileSizeInBytes())
            .withRecordCount(file.recordCount())
        )
        change(made, file)
        overwrite.deleteFile(file).addFile(made.build())
    overwrite.commit()
    spark.sql(f"REFRESH TABLE {table}")


LEAST = {"INT": -(2**31), "BIGINT": -(2**63)}
TRUNCATED = {
    "truncate(10000, x)": ("INT", [LEAST["INT"], LEAST["INT"] + 9999, -5, 0, 2**31 - 1]),
    "truncate(2147483647, x)": ("INT", [LEAST["INT"], -5, 0, 2**31 - 2, 2**31 - 1]),
    "truncate(10, x)": ("BIGINT", [LEAST["BIGINT"], LEAST["BIGINT"] + 3, -5, 0, 2**63 - 1]),
    "truncate(50, x)": ("DECIMAL(9,2)", ["-9999.98", "-0.01", "0.05", "9999999.99"]),
    "hours(x)": ("TIMESTAMP", [-(9 * 10**18), -5, 0, 1_700_000_000_000_000, 9 * 10**18]),
}


@pytest.mark.parametrize("by", TRUNCATED)
def test_partitions_that_wrap_around(spark: SparkSession, iceberg: None, by: str) -> None:
    """At the smallest values (iceberg#9767), for large widths (iceberg#18111), in the far future
    (iceberg#9713)."""
    type, values = TRUNCATED[by]
    made = "timestamp_micros(CAST('{}' AS BIGINT))" if type == "TIMESTAMP" else "CAST('{}' AS {})"
    rows = ", ".join(f"({made.format(v, type)}, {n})" for n, v in enumerate(values))
    spark.sql("DROP TABLE IF EXISTS wraps")
    spark.sql(
        f"CREATE TABLE wraps (x {type}, id INT) USING iceberg PARTITIONED BY ({by}) "
        "TBLPROPERTIES ('write.metadata.metrics.default' = 'none')"
    )
    spark.sql(f"INSERT INTO wraps SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    make_table(spark, "writer_keys", f"SELECT k, n, 0 AS _f FROM VALUES {rows} AS t(k, n)")
    skipped = 0
    for on in ("f.x <= d.k AND d.n = 2", "f.x >= d.k AND d.n = 0", "f.x >= d.k AND d.n = 2",
               "f.x >= d.k AND f.x <= d.k AND d.n = 0"):  # fmt: skip
        found = same_rows(spark, f"SELECT f.id FROM wraps f JOIN writer_keys d ON {on}")
        assert found.rows
        skipped += found.skipped
    assert skipped > 0 or by == "truncate(2147483647, x)"  # of which no value is trusted
    spark.sql("DROP TABLE wraps")


def test_partitions_truncated_towards_zero(spark: SparkSession, iceberg: None) -> None:
    """-5 in the partition of 5 (iceberg-go#603)."""
    spark.sql("DROP TABLE IF EXISTS rounds")
    spark.sql(
        "CREATE TABLE rounds (x BIGINT, id INT) USING iceberg PARTITIONED BY (truncate(10, x)) "
        "TBLPROPERTIES ('write.metadata.metrics.default' = 'none')"
    )
    rows = "(-25L, 0), (-5L, 1), (5L, 2), (25L, 3), (35L, 4)"
    spark.sql(f"INSERT INTO rounds SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")

    def round_up(made: Any, file: Any) -> None:
        floor = int(re.findall(r"-?\d+", file.partition().toString())[0])
        made.withPartitionPath(f"x_trunc={floor + 10 * (floor < 0)}")

    rewrite_files(spark, "iceberg.default.rounds", round_up)
    make_table(spark, "writer_keys", f"SELECT k, n, 0 AS _f FROM VALUES {rows} AS t(k, n)")
    # Between two bounds: for equal keys, Spark itself drops the partition of -5 at run time.
    query = "SELECT f.id FROM rounds f JOIN writer_keys d ON f.x BETWEEN d.k AND d.k WHERE d.n {}"
    assert len(same_rows(spark, query.format("< 2")).rows) == 2
    assert same_rows(spark, query.format("= 3")).skipped
    spark.sql("DROP TABLE rounds")


NUMBERS = [0, 1, -1, 126, -127, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)]
TIMES = [0, -1, 94_694_400_000_000, 94_694_399_999_999, 253_402_387_200_000, 10**15 + 5,
         7_258_118_400_000_000, 2**63 - 1, -(2**63)]  # fmt: skip
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 3.4028234663852886e38,
          -3.4028234663852886e38]  # fmt: skip
DOUBLES = [*FLOATS, 1.7976931348623157e308, -1.7976931348623157e308, 0.1]
TEXTS = ["", "a", "b" * 15, "b" * 16, "z" * 40, "a\ufffd", "a\ufffe" * 9, "\ufffc" * 6,
         "\ud7ff" * 6, "\U0010ffff" * 4, "a" * 15 + "\U0010ffff"]  # fmt: skip
SAMPLES: dict[str, list[Any]] = {
    "boolean": [False, True],
    "tinyint": NUMBERS[:5],
    "int": NUMBERS[:7],
    "bigint": NUMBERS,
    "date": NUMBERS[:5],
    "timestamp": TIMES,
    "timestamp_ntz": TIMES,
    "float": FLOATS,
    "double": DOUBLES,
    "string": TEXTS,
    "binary": [text.encode() for text in TEXTS] + [b"\xff" * 20, b"a" + b"\xff" * 20],
    "decimal(15,3)": [0, 1, -1, 10**15 - 1, 1 - 10**15],
    "decimal(18,0)": [0, -1, 10**18 - 1, 1 - 10**18],
    "decimal(20,0)": [7, 2**63 - 1, 2**63, -(2**63), 10**20 - 1],
    "decimal(18,2)": [0, 7, -7, 10**18 - 1, 1 - 10**18],
    "decimal(38,10)": [0, -1, 10**38 - 1, 1 - 10**38, 12345678901234567890],
}


def literal(type: str, value: Any) -> str:
    if type == "boolean":
        return str(value)
    if type.startswith("decimal"):
        return f"CAST('{unscaled(value, int(type[8:-1].split(',')[1]))}' AS {type})"
    if type.startswith("timestamp"):
        return f"CAST(timestamp_micros(CAST('{value}' AS BIGINT)) AS {type})"
    if type in ("float", "double"):
        return f"CAST('{value}' AS {type})"
    if type == "date":
        return f"date_from_unix_date({value})"
    if type in ("string", "binary"):
        code = value.encode() if isinstance(value, str) else value
        return f"CAST(X'{code.hex()}' AS {type})"
    return f"CAST('{value}' AS {type})"


def shown(type: str, bound: Bound) -> str:
    """As `RowOracle.java` shows it."""
    if type == "boolean":
        return str(bool(bound)).lower()
    if isinstance(bound, str | bytes):
        code = bound.encode() if isinstance(bound, str) else bound
        return str([byte - 256 if byte > 127 else byte for byte in code])
    return str(bound)


@pytest.mark.parametrize("type", SAMPLES)
def test_bounds_prove_the_same_in_java_and_in_python(spark: SparkSession, type: str) -> None:
    pairs = list(product(SAMPLES[type], repeat=2))
    rows = ", ".join(f"({literal(type, low)}, {literal(type, up)})" for low, up in pairs)
    with settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(low, high)")
        oracle = oracle_of(spark, frame)
    for format, what in product(("delta", "iceberg", "parquet"), (None, WIDENED, MAPPED)):
        rule = find_rule(format, type, () if what is None else (what,))
        found = list(oracle.widened(format, what, type))
        for (low, up), java in zip(pairs, found, strict=True):
            python = rule.widen(low, up, type)
            if type in ("float", "double"):
                own = np.float32 if type == "float" else np.float64
                numbers = None if java is None else tuple(map(own, java.split(" to ")))
                same = None if python is None else tuple(map(own, python))
                assert numbers == same, (format, what, low, up)
            else:
                text = None if python is None else " to ".join(shown(type, b) for b in python)
                assert java == text, (format, what, low, up)
