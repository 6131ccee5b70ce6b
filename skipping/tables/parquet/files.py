"""Read the columns and rows of a Parquet folder's files.

`columns` have Spark's types, in which an index is evaluated. Rows have the types of
`pyarrow.dataset`: an expression on `Europe/Berlin`, a dictionary or `uint8` would have another
meaning on UTC, text or a signed number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from providers.errors import TableError, first_line
from providers.values import arrow_type, canonical_type
from skipping.parser.literals import join_name
from skipping.tables import Columns
from skipping.tables.arrow_types import replace_leaves, without_view
from skipping.tables.filesystem import Locate, is_unchanged
from skipping.tables.parquet.listing import Listing
from skipping.tables.schema import leaves, simple_string

_SPARK: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.uint8(): "short",
    pa.int32(): "integer",
    pa.uint16(): "integer",
    pa.int64(): "long",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
"""The Spark type of a type in a file (`ParquetToSparkSchemaConverter`), as in JSON schemas."""

_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_VERSION = b"org.apache.spark.version"
_CALENDARS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True)
class FolderFiles:
    """A folder as listed; `fields` are those of its schema, partition columns last.

    `arrow_schema` has the columns of the rows.
    """

    listing: Listing = field(repr=False)
    fields: tuple[Mapping[str, Any], ...]
    arrow_schema: pa.Schema = field(repr=False)

    @classmethod
    def of(cls, listing: Listing, locate: Locate, schema: pa.Schema | None = None) -> FolderFiles:
        """Read the columns from the file from which Spark reads them; raise TableError.

        `schema` is that of the `pyarrow.dataset.Dataset`, if any; its types take precedence.
        """
        filesystem, inner = locate(listing.first)
        try:
            with filesystem.open_input_file(inner) as source:
                file = pq.ParquetFile(source)
                in_file, footer = file.schema_arrow, file.metadata.metadata or {}
                int96 = _int96(file)
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"cannot read {listing.first}: {first_line(error)}") from error
        written = json.loads(footer[_SCHEMA])["fields"] if _SCHEMA in footer else None
        fields = written or [_field(f, int96=f.name in int96) for f in in_file]
        kept = [f for f in fields if f["name"].lower() not in map(str.lower, listing.partition)]
        if len(kept) < len(fields) or len({f["name"].lower() for f in fields}) < len(fields):
            raise TableError(
                f"{listing.first} has a column twice, or one with the name of a partition column: "
                f"{', '.join(f['name'] for f in fields)}"
            )
        last = [
            {"name": name, "type": type, "nullable": True, "metadata": {}}
            for name, type in listing.partition.items()
        ]
        given = {
            f.name: f
            for f in [*in_file, *(schema or ())]
            if f.name not in int96 or not pa.types.is_timestamp(f.type)
        }
        arrow = [_row_field(f, given.get(f["name"])) for f in (*fields, *last)]
        return cls(listing, (*fields, *last), pa.schema(arrow))

    @cached_property
    def columns(self) -> Columns:
        """The leaf columns; a partition column differs from a file's column of that name."""
        found = leaves(self.fields, tuple(self.listing.partition))
        return Columns(replace(c, identity=f"/{c.identity}") if c.partition else c for c in found)

    @property
    def vectors(self) -> Mapping[str, pa.Array]:
        """Empty: no row is deleted."""
        return {}

    def files(self) -> pa.Table:
        """Return the files (FILES)."""
        return self.listing.files

    def read(self, path: str, names: Sequence[str], locate: Locate) -> pa.Table:
        """Read top-level columns of a file by name; a column that the file lacks is null.

        Raises TableError for a file written since the folder was listed, because its old content
        was used to prune files; for a column of another type, or with its name in another case; for
        INT96 times of another writer; and for dates of the calendar before Spark 3.
        """
        filesystem, inner = locate(path)
        found, (size, stamp) = filesystem.get_file_info(inner), self._listed[path]
        if found.is_file and (found.size != size or not is_unchanged(found.mtime_ns or 0, stamp)):
            raise TableError(
                f"{path} was written since the folder was listed: create the scan again"
            )
        with filesystem.open_input_file(inner) as source:
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True)
            wanted = [name for name in names if name not in self.listing.partition]
            stored = [n for n in wanted if self._has(file, path, n)]
            whole = file.read(columns=stored, use_threads=False)
            rows = file.metadata.num_rows
        columns = {}
        for name in names:
            type = self.arrow_schema.field(name).type
            if name in self.listing.partition:
                text = self._value(path, name)
                one = pa.nulls(1, type) if text is None else pa.array([text]).cast(type)
                columns[name] = one.take(pa.array(np.zeros(rows, np.int64)))
            elif name in stored:
                columns[name] = whole[name].cast(type)
            else:
                columns[name] = pa.nulls(rows, type)
        return pa.table(columns, schema=pa.schema([self.arrow_schema.field(n) for n in names]))

    def _has(self, file: pq.ParquetFile, path: str, name: str) -> bool:
        schema, type = file.schema_arrow, self.arrow_schema.field(name).type
        alike = [found for found in schema.names if found.lower() == name.lower()]
        if not alike:
            return False
        if alike != [name]:
            raise TableError(f"column {name}: {path} has {', '.join(alike)}")
        found = schema.field(name).type
        footer = file.metadata.metadata or {}
        if name in _int96(file):
            if not pa.types.is_timestamp(found) or not _is_by_spark(footer, since=(3, 1)):
                raise TableError(
                    f"{name} has INT96 times in {path} that Spark 3.1 or later did not write: "
                    "select other columns, or read with Spark"
                )
            found = pa.timestamp("us", "UTC")
        if _spark_type(found) != _spark_type(type) and not _widens(found, type):
            raise TableError(f"{name} is {found} in {path}, and {type} in {self.listing.first}")
        of_old = _VERSION in footer and not _is_by_spark(footer, since=(3, 0))
        if _has_times(type) and (of_old or any(key in footer for key in _CALENDARS)):
            raise TableError(
                f"{name} may have dates of the calendar before Spark 3 in {path}: select other "
                "columns, or read with Spark"
            )
        return True

    @cached_property
    def _listed(self) -> Mapping[str, tuple[int, int]]:
        files = self.listing.files
        rows = zip(*(files[name].to_pylist() for name in ("path", "size", "stamp")), strict=True)
        return {path: (size, stamp) for path, size, stamp in rows}

    @cached_property
    def _values(self) -> Mapping[str, Mapping[str, str | None]]:
        files = self.listing.files
        rows = zip(files["path"].to_pylist(), files["partition"].to_pylist(), strict=True)
        return {path: dict(pairs) for path, pairs in rows}

    def _value(self, path: str, name: str) -> str | None:
        return self._values[path][f"/{join_name([name])}"]


def _int96(file: pq.ParquetFile) -> set[str]:
    leaves = map(file.metadata.schema.column, range(file.metadata.num_columns))
    return {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


def _is_by_spark(footer: Mapping[bytes, bytes], *, since: tuple[int, int]) -> bool:
    version = re.match(rb"(\d+)\.(\d+)", footer.get(_VERSION, b""))
    return version is not None and (int(version[1]), int(version[2])) >= since


def _has_times(type: pa.DataType) -> bool:
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        return True
    return any(_has_times(type.field(i).type) for i in range(type.num_fields))


def _field(found: pa.Field, *, int96: bool = False) -> dict[str, Any]:
    type = "timestamp" if int96 and pa.types.is_timestamp(found.type) else _spark_type(found.type)
    return {"name": found.name, "type": type, "nullable": True, "metadata": {}}


def _spark_type(type: pa.DataType) -> Any:
    """Return a type as in Spark's JSON schemas; Arrow's own name if Spark has no such type."""
    while pa.types.is_dictionary(type):
        type = type.value_type
    # Not unsigned integers, whose canonical type is wider.
    type = type if type in _SPARK else canonical_type(type)
    if type in _SPARK:
        return _SPARK[type]
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision},{type.scale})"
    if pa.types.is_timestamp(type) and type.unit in ("ms", "us"):
        return "timestamp" if type.tz else "timestamp_ntz"
    if pa.types.is_struct(type):
        return {"type": "struct", "fields": [_field(inner) for inner in type]}
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        element = _spark_type(type.value_type)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pa.types.is_map(type):
        key, value = _spark_type(type.key_type), _spark_type(type.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return f"{type} of Arrow"


def _widens(found: pa.DataType, type: pa.DataType) -> bool:
    """Return whether Spark reads any value of a narrower type as the table's wider type."""
    types = pa.types
    for same in (types.is_signed_integer, types.is_floating):
        if same(found) and same(type):
            return bool(found.bit_width < type.bit_width and found != pa.float16())
    return False


def _row_field(field: Mapping[str, Any], found: pa.Field | None) -> pa.Field:
    """Return a column of the rows, with the type that Arrow finds, or Spark's.

    It is Spark's for partition columns, which no file has, and for INT96 times, which Arrow would
    read as nanoseconds (1677 to 2262 only). A Polars Enum has its order in the metadata.
    """
    if found is None:
        return pa.field(field["name"], arrow_type(simple_string(field["type"])) or pa.null())
    return found.with_type(replace_leaves(found.type, without_view)).with_nullable(True)
