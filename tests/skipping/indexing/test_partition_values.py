"""Partition values of the log as typed, normalised values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from providers.values import encode
from skipping.indexing.partition_values import partition_value


@pytest.mark.parametrize(
    ("text", "type", "expected"),
    [
        (None, "int", None),
        ("", "timestamp", None),
        ("-5", "tinyint", -5),
        ("9223372036854775807", "bigint", 2**63 - 1),
        ("1.5", "decimal(10,2)", 150),
        ("true", "boolean", 1),
        ("2024-02-29", "date", 19_782),
        ("1970-01-01T00:00:01.5Z", "timestamp", 1_500_000),
        ("1970-01-01 00:00:01.000001", "timestamp_ntz", 1_000_001),
        (" a\nb ", "string", " a\nb "),
        ("abc", "varchar(3)", "abc"),
        ("__HIVE_DEFAULT_PARTITION__", "string", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_partition_values(text: str | None, type: str, expected: object) -> None:
    value = partition_value(text, type)
    assert value is not None
    assert value.to_pylist() == [expected]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "0.1", "-0.0", "1.0E-5", "3"])
@pytest.mark.parametrize("type", [pa.float32(), pa.float64()])
def test_partition_values_that_are_floats(text: str, type: pa.DataType) -> None:
    number = float(text.replace("Infinity", "inf"))
    value = partition_value(text, "float" if type == pa.float32() else "double")
    assert value == encode(pa.array([number], type))


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("1970-01-01 00:00:00", "timestamp"),
        ("1970-01-01T00:00:00+01:00", "timestamp"),
        ("1970-01-01T00:00:00.1234567Z", "timestamp"),
        ("10000-01-01", "date"),
        ("2023-02-29", "date"),
        ("128", "tinyint"),
        ("1.0", "int"),
        (" 1", "int"),
        ("0x1F", "int"),
        ("\u0661", "int"),
        ("1.005", "decimal(10,2)"),
        ("123456789", "decimal(9,2)"),
        ("yes", "boolean"),
        ("nan", "double"),
        ("", "string"),
        ("", "varchar(3)"),
        ("a", "binary"),
        ("a", "variant"),
        (None, "array<int>"),
    ],
)
def test_partition_values_in_doubt_are_unknown(text: str | None, type: str) -> None:
    assert partition_value(text, type) is None
