"""The direct reader against Spark's own Parquet reader, and what it says it does not know."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from providers.errors import TableError
from providers.values import encode
from skipping.indexing.parquet_columns import Found, _has_ids
from skipping.indexing.parquet_reader import Chunk, Unreadable, read_columns
from skipping.spark_api import collect_arrow
from skipping.tables import PhysicalColumn, TableColumn
from skipping.tables.composites import combine
from tests.rewrite.differential import settings

# DataFrame.toArrow of pyspark leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

# Column name, Spark type, values. `old` ones are before the calendars agree.
TYPES = {
    "tiny": ("tinyint", "-128", "127", "0"),
    "small": ("smallint", "-32768", "32767", "0"),
    "number": ("int", "-2147483648", "2147483647", "0"),
    "big": ("bigint", "-9223372036854775808", "9223372036854775807", "0"),
    "truth": ("boolean", "true", "false", "true"),
    "single": ("float", "'NaN'", "-0.0", "'-Infinity'"),
    "double": ("double", "'NaN'", "-0.0D", "-1.5D"),
    "day": ("date", "'9999-12-31'", "'1969-12-31'", "'1582-10-15'"),
    "old_day": ("date", "'0001-01-01'", "'1582-10-04'", "'2020-01-01'"),
    "moment": ("timestamp", "'9999-12-31T23:59:59.999999Z'", "'1900-01-01T00:00:00.000001Z'", "0"),
    "old_moment": ("timestamp", "'0001-01-02T00:00:00Z'", "'1850-06-01T10:11:12.1Z'", "0"),
    "wall": ("timestamp_ntz", "'9999-12-31T23:59:59.999999'", "'0001-01-01'", "'1970-01-01'"),
    "price": ("decimal(9,2)", "-1234567.89", "0.01", "0"),
    "sum": ("decimal(18,4)", "-12345678901234.5678", "0.0001", "1"),
    "wide": ("decimal(38,10)", "-1234567890123456789012345678.0123456789", "1", "-1"),
    "text": ("string", "'é\\u20ac\\ud83d\\ude00'", "''", "'a b'"),
    "short": ("varchar(5)", "'abc'", "'abcde'", "''"),
    "bytes": ("binary", "X'00FF80'", "X''", "X'FF'"),
}

WRITERS: dict[str, dict[str, str]] = {
    "spark": {},
    "int96": {"spark.sql.parquet.outputTimestampType": "INT96"},
    "legacy": {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    },
    "legacy int96": {
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": "INT96",
    },
}
"""What Spark is set to when it writes a file."""
OLD = {"old_day", "old_moment"}


def column(name: str, type: str, refusal: str | None = None, **more: object) -> TableColumn:
    physical = PhysicalColumn(**{"path": (name,), **more})  # type: ignore[arg-type]
    return TableColumn(name, name, type, physical, refusal=refusal)


def read(
    path: Path | str, *columns: TableColumn, **more: int
) -> list[tuple[set[object], int] | str]:
    """Per column its distinct values and nulls, or why it is unknown."""
    values: dict[str, set[object]] = {c.identity: set() for c in columns}
    nulls = dict.fromkeys(values, 0)
    unknown: dict[str, str] = {}
    seen = set()
    for part in read_columns(f"file:{path}", columns, **more):
        identity = part.column.identity
        seen.add(identity)
        if isinstance(part, Unreadable):
            unknown[identity] = part.reason
            continue
        distinct = part.distinct()
        assert len(set(distinct.to_pylist())) == len(distinct)
        ends = {min(distinct.to_pylist()), max(distinct.to_pylist())} if len(distinct) else set()
        assert set(part.extremes().to_pylist()) == ends
        values[identity] |= set(distinct.to_pylist())
        nulls[identity] += part.nulls
    assert seen == set(values)
    return [unknown.get(c.identity) or (values[c.identity], nulls[c.identity]) for c in columns]


def one(path: Path | str, wanted: TableColumn, **more: int) -> tuple[set[object], int] | str:
    return read(path, wanted, **more)[0]


def write(path: Path, table: pa.Table | dict[str, object], **options: object) -> Path:
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return path


def only_file(folder: Path) -> Path:
    (file,) = folder.glob("*.parquet")
    return file


def frame_of_types(spark: SparkSession) -> DataFrame:
    """One partition with the values of all types, and a row of nulls."""
    rows = []
    for i in range(4):
        cells = []
        for name, (type, *values) in TYPES.items():
            text = [*values, "NULL"][i]
            text = "timestamp_micros(0)" if text == "0" and type == "timestamp" else text
            cells.append(f"CAST({text} AS {type.replace('varchar(5)', 'string')}) AS {name}")
        rows.append("SELECT " + ", ".join(cells))
    return spark.sql(" UNION ALL ".join(rows)).coalesce(1)


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[Path, pa.Table]]]:
    """One file of all types by each writer, and what Spark's plain reader gives for it."""
    frame = frame_of_types(spark)
    done: dict[str, tuple[Path, pa.Table]] = {}

    def of(writer: str) -> tuple[Path, pa.Table]:
        if writer not in done:
            folder = tmp_path_factory.mktemp(writer.replace(" ", "-"))
            if writer == "pyarrow":
                table = collect_arrow(frame)
                write(folder / "file.parquet", table)
            else:
                with settings(spark, WRITERS[writer]):
                    frame.write.mode("overwrite").parquet(str(folder))
            plain = spark.read.schema(frame.schema).parquet(str(folder))
            done[writer] = only_file(folder), collect_arrow(plain)
        return done[writer]

    with settings(spark, {"spark.sql.session.timeZone": "America/Los_Angeles"}):
        yield of


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("writer", ["spark", "int96", "legacy", "legacy int96", "pyarrow"])
def test_values_are_those_spark_reads(
    written: Callable[[str], tuple[Path, pa.Table]], writer: str, name: str
) -> None:
    path, table = written(writer)
    got = one(path, column(name, TYPES[name][0]))
    if name in OLD and writer not in ("spark", "int96"):
        assert "old dates" in got
        return
    expected = table.column(name)
    assert got == (set(encode(expected.drop_null()).to_pylist()), expected.null_count)
    assert len(got[0]) >= 2
    assert got[1] == 1


@pytest.mark.parametrize(
    ("expression", "type"),
    [
        ("INTERVAL '1' DAY", "interval day"),
        ("ARRAY(ARRAY(1))", "array<array<int>>"),
        ("MAP('a', 1)", "map<string,int>"),
        ("NAMED_STRUCT('a', 1)", "struct<a:int>"),
        ("PARSE_JSON('1')", "variant"),
    ],
)
def test_types_without_an_order_are_unknown(
    spark: SparkSession, tmp_path: Path, expression: str, type: str
) -> None:
    spark.sql(f"SELECT {expression} AS c").coalesce(1).write.parquet(str(tmp_path / "t"))
    assert "cannot be indexed" in one(only_file(tmp_path / "t"), column("c", type))


def test_a_refused_column_is_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"c": ["a"]})
    assert one(path, column("c", "string", refusal="c is char(3)")) == "c is char(3)"


@pytest.mark.parametrize(
    ("stored", "type"),
    [
        (pa.array([1], pa.int64()), "int"),
        (pa.array([1], pa.int32()), "tinyint"),
        (pa.array([1], pa.uint32()), "int"),
        (pa.array([1], pa.uint8()), "tinyint"),
        (pa.array([1], pa.uint64()), "bigint"),
        (pa.array([1], pa.uint64()), "decimal(38,0)"),
        (pa.array([1], pa.int32()), "double"),
        (pa.array([1.0], pa.float64()), "float"),
        (pa.array([1], pa.decimal128(10, 2)), "decimal(9,2)"),
        (pa.array([1], pa.decimal128(9, 2)), "decimal(11,4)"),
        (pa.array([1], pa.decimal128(9, 2)), "decimal(20,2)"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "timestamp"),
        (pa.array([1], pa.timestamp("us")), "timestamp"),
        (pa.array([1], pa.timestamp("us", "UTC")), "timestamp_ntz"),
        (pa.array([1], pa.date32()), "timestamp_ntz"),
        (pa.array([b"a"], pa.binary()), "string"),
        (pa.array([b"a"], pa.binary(1)), "binary"),
        (pa.array([[1]]), "int"),
        (pa.array([{"a": 1}]), "int"),
        (pa.array([1], pa.duration("us")), "bigint"),
    ],
)
def test_another_type_in_the_file_is_unknown(tmp_path: Path, stored: pa.Array, type: str) -> None:
    path = write(tmp_path / "f", {"c": stored})
    assert "the file has type" in one(path, column("c", type))


@pytest.mark.parametrize(
    ("stored", "type", "expected"),
    [
        (pa.array([7], pa.int32()), "bigint", 7),
        (pa.array([-1], pa.int8()), "int", -1),
        (pa.array([7], pa.decimal128(9, 2)), "decimal(18,2)", 700),
        (pa.array(["a"], pa.large_string()), "string", "a"),
        (pa.array(["a"]).dictionary_encode(), "string", "a"),
        (pa.array([b"a"], pa.large_binary()), "binary", b"a"),
        (pa.array([1_600_000_000], pa.timestamp("s", "Europe/Paris")), "timestamp", 16 * 10**14),
        (pa.array([1_600_000_000_000], pa.timestamp("ms")), "timestamp_ntz", 16 * 10**14),
    ],
)
def test_types_of_one_domain_are_read(
    tmp_path: Path, stored: pa.Array, type: str, expected: object
) -> None:
    path = write(tmp_path / "f", {"c": stored})
    assert one(path, column("c", type)) == ({expected}, 0)


def test_widened_floats_keep_their_values(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"c": pa.array([0.1, float("nan"), -0.0], pa.float32())})
    doubles = pa.array([0.1, float("nan"), 0.0], pa.float32()).cast(pa.float64())
    assert one(path, column("c", "double")) == (set(encode(doubles).to_pylist()), 0)


def test_nulls_empty_and_absent(tmp_path: Path) -> None:
    nulls = write(tmp_path / "nulls", {"c": pa.nulls(3, pa.string())})
    empty = write(tmp_path / "empty", {"c": pa.array([], pa.string())})
    no_groups = tmp_path / "no groups"
    pq.ParquetWriter(no_groups, pa.schema([("c", pa.string())])).close()
    assert one(nulls, column("c", "string")) == (set(), 3)
    assert one(empty, column("c", "string")) == (set(), 0)
    assert one(no_groups, column("c", "string")) == (set(), 0)
    assert one(nulls, column("other", "int")) == (set(), 3)
    assert one(nulls, column("s.a", "int", path=("s", "a"))) == (set(), 3)
    assert "default" in one(nulls, column("other", "int", backfilled=True))


@pytest.mark.parametrize("distinct", [10, 100_000])
def test_row_groups_of_few_and_of_many_values(tmp_path: Path, distinct: int) -> None:
    """Both ways of reading text, over several batches in several row groups."""
    texts = [f"value {i % distinct:06d} that is long" for i in range(200_000)]
    table = {"c": texts, "n": [i % distinct for i in range(200_000)]}
    path = write(tmp_path / "f", table, row_group_size=90_000)
    got = read(path, column("c", "string"), column("n", "bigint"))
    assert got == [(set(texts), 0), (set(range(distinct)), 0)]


def test_nested_fields_respect_the_nulls_of_their_parents(tmp_path: Path) -> None:
    leaf = pa.array([1, 2, 3, None])
    inner = pa.StructArray.from_arrays([leaf], ["b"], mask=pa.array([False, True, False, False]))
    outer = pa.StructArray.from_arrays([inner], ["i"], mask=pa.array([False, False, True, False]))
    path = write(tmp_path / "f", {"o": outer})
    assert one(path, column("o.i.b", "bigint", path=("o", "i", "b"))) == ({1}, 3)
    assert "not a struct" in one(path, column("x", "bigint", path=("o", "i", "b", "c")))


def test_elements_of_arrays_are_read_without_null_arrays(tmp_path: Path) -> None:
    lists = [[1, None, 3], None, [], [3], [4]]
    parents = [{"l": each} for each in lists]
    hidden = pa.StructArray.from_arrays(
        [pa.array([each["l"] for each in parents])],
        ["l"],
        mask=pa.array([False, False, False, False, True]),
    )
    floats = pa.array([[-0.0, float("nan")], [0.0]] + 3 * [None])
    path = write(
        tmp_path / "lists",
        {"l": pa.array(lists), "g": pa.array(lists, pa.large_list(pa.int32())), "p": hidden,
         "f": floats, "n": pa.array([[[1]]] * 5), "s": pa.array([["a", None]] * 5)},
    )  # fmt: skip
    found = read(
        path,
        column("l", "array<bigint>"),
        column("g", "array<bigint>"),
        column("p.l", "array<bigint>", path=("p", "l")),
        column("f", "array<double>"),
        column("s", "array<string>"),
        column("gone", "array<int>"),
    )
    assert found[:3] == [({1, 3, 4}, 1), ({1, 3, 4}, 1), ({1, 3}, 1)]
    assert found[3] == (set(encode(pa.array([0.0, float("nan")])).to_pylist()), 0)
    assert found[4:] == [({"a"}, 5), (set(), 5)]
    for name, type in (("l", "array<string>"), ("n", "array<bigint>"), ("s", "array<binary>")):
        assert "the file has type" in str(one(path, column(name, type)))
    assert "the file has type" in str(one(path, column("l", "bigint")))
    assert "the file has type" in str(one(path, column("l", "array<tinyint>")))


def test_lists_in_an_old_form_are_unknown(spark: SparkSession, tmp_path: Path) -> None:
    with settings(spark, {"spark.sql.parquet.writeLegacyFormat": "true"}):
        spark.sql("SELECT array(1, NULL) AS l").coalesce(1).write.parquet(str(tmp_path / "old"))
    assert "old form" in str(one(only_file(tmp_path / "old"), column("l", "array<int>")))


@pytest.mark.parametrize("micros", [1_700_000_000_000_001, 2**63 - 1, -(2**63) + 86_400_000_000])
def test_int96_in_arrays_is_read_as_outside_of_them(
    spark: SparkSession, tmp_path: Path, micros: int
) -> None:
    with settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        times = spark.sql(
            f"SELECT ts, array(NULL, ts) AS l FROM (SELECT timestamp_micros({micros}L) ts)"
        )
        times.coalesce(1).write.parquet(str(tmp_path / "int96"))
    file = only_file(tmp_path / "int96")
    alone, within = one(file, column("ts", "timestamp")), one(file, column("l", "array<timestamp>"))
    assert within == (alone if isinstance(alone, str) else (alone[0], 1))
    assert isinstance(alone, str) == (micros != 1_700_000_000_000_001)


def test_names_with_dots_are_not_paths(tmp_path: Path) -> None:
    table = {"a": [{"b": 1}, {"b": 2}], "a.b": [3, 4], "a.b.c": ["x", "y"]}
    path = write(tmp_path / "f", table)
    got = read(
        path,
        column("nested", "bigint", path=("a", "b")),
        column("dotted", "bigint", path=("a.b",)),
        column("twice", "string", path=("a.b.c",)),
        column("absent", "string", path=("a.b", "c", "d")[::2]),
    )
    assert got[:3] == [({1, 2}, 0), ({3, 4}, 0), ({"x", "y"}, 0)]
    assert "not a struct" in got[3]


def test_another_case_and_two_cases_are_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"Id": [1], "k": [2], "K": [3], "S": [{"a": 4}]})
    assert "Id" in one(path, column("id", "bigint"))
    assert "k, K" in one(path, column("k", "bigint"))
    assert "has S, the table expects s" in one(path, column("s.a", "bigint", path=("s", "a")))
    assert one(path, column("Id", "bigint")) == ({1}, 0)


def test_two_columns_of_one_name_are_unknown(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["c", "c"])
    assert isinstance(one(write(tmp_path / "f", table), column("c", "bigint")), str)


def test_field_ids(tmp_path: Path) -> None:
    def field(name: str, type: pa.DataType, id: int) -> pa.Field:
        return pa.field(name, type, metadata={"PARQUET:field_id": str(id)})

    struct = pa.struct([field("x", pa.int64(), 3)])
    schema = pa.schema([field("old name", pa.int64(), 1), field("s", struct, 2)])
    path = write(tmp_path / "f", pa.table([[1], [{"x": 5}]], schema=schema))
    by_id = {"path": ("any",)}
    assert one(path, column("c", "bigint", field_id=1, **by_id)) == ({1}, 0)
    assert one(path, column("c", "bigint", field_id=9, **by_id)) == (set(), 1)
    assert one(path, column("c", "bigint", field_id=3, path=("q", "r"))) == ({5}, 0)
    assert "at another depth" in one(path, column("c", "bigint", field_id=3, **by_id))
    bare = write(tmp_path / "bare", {"c": [1]})
    assert "no field ids" in one(bare, column("c", "bigint", field_id=1, path=("c",)))


def test_field_ids_on_some_columns_only(tmp_path: Path) -> None:
    # PyIceberg then reads by names, Iceberg in Spark by ids: what both find is known.
    def field(name: str, id: int | None, type: pa.DataType | None = None) -> pa.Field:
        metadata = None if id is None else {"PARQUET:field_id": str(id)}
        return pa.field(name, type or pa.int64(), metadata=metadata)

    def by_both(name: str, id: int, known_as: str) -> TableColumn:
        return column(name, "bigint", field_id=id, imported=((known_as,),))

    some = pa.schema([field("a", 1), field("b", None), field("c", 4)])
    path = write(tmp_path / "some", pa.table([[1], [2], [3]], schema=some))
    assert one(path, by_both("a", 1, "a")) == ({1}, 0)
    assert one(path, by_both("d", 9, "d")) == (set(), 1), "it is not there for either"
    for name, id, known_as in (("b", 2, "b"), ("a", 1, "b"), ("c", 4, "d")):
        assert "some columns only" in one(path, by_both(name, id, known_as))
    assert one(path, column("a", "bigint", field_id=1)) == ({1}, 0), "PyIceberg cannot read it"
    listed = pa.list_(field("element", 6))
    mapped = pa.map_(field("key", 7).with_nullable(False), field("value", 8))
    full = pa.schema([field("a", 1), field("l", 5, listed), field("m", 9, mapped)])
    path = write(tmp_path / "full", pa.table([[1], [[1]], [[(1, 2)]]], schema=full))
    assert one(path, by_both("a", 1, "other")) == ({1}, 0), "all have one, names mean nothing"


DAY = datetime.date(1500, 1, 1)
MOMENT = datetime.datetime(1899, 12, 31, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    ("footer", "known"),
    [
        ({}, False),
        ({"org.apache.spark.version": "2.4.8"}, False),
        ({"org.apache.spark.version": "odd"}, False),
        ({"org.apache.spark.version": "3.0.0"}, True),
        ({"org.apache.spark.version": "10.0.0"}, True),
        ({"org.apache.spark.version": "4.1.4", "org.apache.spark.legacyDateTime": ""}, False),
    ],
)
def test_old_dates_need_a_writer_that_tells_its_calendar(
    tmp_path: Path, footer: dict[str, str], known: bool
) -> None:
    utc = pa.timestamp("us", "UTC")
    old = pa.table(
        {"d": [DAY], "t": pa.array([MOMENT], utc), "n": pa.array([MOMENT.replace(tzinfo=None)])}
    )
    path = write(tmp_path / "old", old.replace_schema_metadata(footer))
    columns = column("d", "date"), column("t", "timestamp"), column("n", "timestamp_ntz")
    got = read(path, *columns)
    assert [not isinstance(each, str) for each in got] == [known, known, True]
    as_it_stands = read(
        path, *(replace(c, physical=replace(c.physical, proleptic=True)) for c in columns)
    )
    assert not any(isinstance(each, str) for each in as_it_stands)
    first = pa.table(
        {"d": [datetime.date(1582, 10, 15)], "t": pa.array([-2208988800000000], utc)}
    ).replace_schema_metadata(footer)
    assert not any(
        isinstance(each, str) for each in read(write(tmp_path / "new", first), *columns[:2])
    )


def test_switch_days_are_those_of_spark(spark: SparkSession) -> None:
    from skipping.indexing.parquet_columns import _OLDEST

    rebase = spark._jvm.org.apache.spark.sql.catalyst.util.RebaseDateTime  # type: ignore[union-attr]
    assert _OLDEST["date"] == rebase.lastSwitchJulianDay()
    assert _OLDEST["timestamp"] == rebase.lastSwitchJulianTs()


def test_times_of_an_unknown_zone_keep_a_distance(tmp_path: Path) -> None:
    from skipping.indexing.parquet_columns import _OLDEST
    from skipping.indexing.spark_reader import _DAY, _place

    utc = pa.timestamp("us", "UTC")
    times = pa.table({"t": pa.array([0], utc), "l": pa.array([[0]], pa.list_(utc))})
    columns = column("t", "timestamp"), column("l", "array<timestamp>")
    version, zone = {"org.apache.spark.version": "2.4.0"}, {"org.apache.spark.timeZone": "UTC"}
    for footer, distance in ((version, _DAY), (version | zone, 0)):
        path = write(tmp_path / "old", times.replace_schema_metadata(footer))
        places = [_place(pq.ParquetFile(path), each) for each in columns]
        oldest = [place.oldest for place in places if isinstance(place, Found)]
        assert oldest == [_OLDEST["timestamp"] + distance] * 2


def test_int96_of_another_writer_is_unknown(tmp_path: Path) -> None:
    table = {"t": pa.array([MOMENT], pa.timestamp("us", "UTC"))}
    path = write(tmp_path / "f", table, use_deprecated_int96_timestamps=True)
    assert "INT96" in one(path, column("t", "timestamp"))


@pytest.mark.parametrize(
    "micros",
    [2**63 - 1, 9_089_000_000_000_000_000, -(2**63), -2_200_000_000_000_000_000, -(377 * 10**15)],
)
def test_int96_beyond_arrow_is_unknown(spark: SparkSession, tmp_path: Path, micros: int) -> None:
    """Its microseconds wrap around: some come out as times of today."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    frame = spark.sql(
        f"SELECT timestamp_micros(CAST('{micros}' AS BIGINT) * id) AS t, id AS n FROM range(2)"
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "f"))
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    columns = column("t", "timestamp"), column("n", "bigint")
    time, number = read(only_file(tmp_path / "f"), *columns)
    assert "INT96" in str(time)
    assert number == ({0, 1}, 0)
    assert "INT96" in one(only_file(tmp_path / "f"), combine(columns))


def test_text_that_is_no_utf8_is_unknown(tmp_path: Path) -> None:
    bad = pa.array([b"ok", b"\xff\xfe"] * 3, pa.binary()).view(pa.string())
    for coded in (True, False):
        path = write(tmp_path / f"{coded}", {"c": bad, "n": range(6)}, use_dictionary=coded)
        text, number = read(path, column("c", "string"), column("n", "bigint"))
        assert "normalised" in text
        assert number == (set(range(6)), 0)


def test_seconds_beyond_microseconds_are_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"c": pa.array([2**60], pa.timestamp("ms", "UTC"))})
    assert "normalised" in one(path, column("c", "timestamp"))


def test_a_file_that_cannot_be_read_is_unknown_and_raises_nothing(tmp_path: Path) -> None:
    table = {"c": list(range(5_000)), "s": [str(i) for i in range(5_000)]}
    good = write(tmp_path / "good", table, row_group_size=1_000).read_bytes()
    wanted = column("c", "bigint"), column("s", "string")
    broken = {
        "empty": b"",
        "text": b"hello",
        "magic only": b"PAR1" * 2,
        "encrypted footer": b"PARE" + good[4:-4] + b"PARE",
        **{f"cut {n}": good[: len(good) * n // 7] for n in range(1, 7)},
        "no data": b"\0" * (len(good) - 3_000) + good[-3_000:],
    }
    for name, data in broken.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert all("cannot be read" in str(each) for each in read(path, *wanted)), name
    assert "cannot be read" in one(tmp_path / "vanished", wanted[0])
    assert "cannot be read" in one(tmp_path, wanted[0])
    for at in range(0, len(good), len(good) // 60):
        # Some flipped bits pass as values, as they would in Spark; none may raise.
        (tmp_path / "flipped").write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
        list(read_columns(f"file:{tmp_path / 'flipped'}", wanted))


def test_another_size_than_the_log_says_is_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"c": [1]})
    size = path.stat().st_size
    assert one(path, column("c", "bigint"), size=size) == ({1}, 0)
    assert "as listed" in one(path, column("c", "bigint"), size=size + 1)


@pytest.mark.parametrize(
    "values",
    [range(1_000), [7] * 1_000, [*range(5)] * 200, [0] * 900 + [*range(1, 101)], range(7), []],
    ids=["distinct", "one", "few", "late", "short", "none"],
)
def test_distinct_values_are_all_of_them_or_more_than_asked_for(values: Sequence[int]) -> None:
    whole = set(values)
    for most in (1, 4, 5, 6, 100, 999, 1_000, 5_000):
        chunk = Chunk(column("c", "bigint"), pa.array(values, pa.int64()), 0)
        found = chunk.distinct(most).to_pylist()
        assert len(found) == len(set(found))
        assert set(found) == whole or (most < len(found) and set(found) < whole)
        assert set(chunk.distinct().to_pylist()) == whole == set(chunk.distinct(most).to_pylist())


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_paths_are_not_url_encoded(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "a b%20é#?+:x"
    folder.mkdir()
    path = write(folder / "f%25", {"c": [1]})
    (chunk, *_) = read_columns(form.format(path), [column("c", "bigint")])
    assert isinstance(chunk, Chunk)


@pytest.mark.parametrize("path", ["nosuch://host/key", "dbfs:/x", "viewfs://a/b"])
def test_a_scheme_that_arrow_does_not_know_is_an_error(path: str) -> None:
    with pytest.raises(TableError, match="pyarrow cannot open"):
        read_columns(path, [column("c", "int")])


def test_it_needs_no_spark() -> None:
    code = "import sys, skipping.indexing.parquet_reader; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_has_ids_also_finds_ids_below_lists() -> None:
    for metadata, expected in (({b"PARQUET:field_id": b"3"}, True), (None, False)):
        element = pa.field("element", pa.int32(), metadata=metadata)
        assert _has_ids([pa.field("l", pa.list_(element)), pa.field("i", pa.int32())]) is expected
