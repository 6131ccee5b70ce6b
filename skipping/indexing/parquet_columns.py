"""Find a column in a Parquet file by its footer, and check that Spark reads its values unchanged.

A doubtful column is unknown: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from providers.tuples import domain_of_type, element_type
from providers.values import Domain, arrow_type, canonical_type, domain_of
from skipping.tables import VARIANT, TableColumn

_OLDEST = {"date": -141_427, "timestamp": -2_208_988_800_000_000}
"""From these values on, no rebase changes a value: 1582-10-15 in days, 1900-01-01 in microseconds.

These are `lastSwitchJulianDay` and `lastSwitchJulianTs` (the last over all zones) of Spark's
`RebaseDateTime`. timestamp_ntz is left out: no legacy writer had it, and Spark never rebases it.
"""


_STANDARD = ("list.element", "list.item")
"""Where files store the elements of an array: as Parquet has it, and as Arrow did."""


class UnknownError(Exception):
    """A column, or a complete file, is unknown; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Found:
    """A column and its path in the file; values below `oldest` may be in another calendar.

    `int96`: its times may not fit microseconds, as which Arrow reads them (`parquet_reader`).
    """

    column: TableColumn
    path: tuple[str, ...]
    oldest: int | None
    int96: bool = False


def indexed_domain(column: TableColumn) -> Domain:
    """Return the domain of a column's values; raise UnknownError if it cannot be indexed."""
    domain = domain_of_type(column.type)
    if domain is None or column.index_refusal is not None:
        raise UnknownError(column.index_refusal or f"type {column.type} cannot be indexed")
    return domain


def find(file: pq.ParquetFile, column: TableColumn) -> Found | None:
    """Find a column in a file; None if all rows read null. In doubt, raise UnknownError."""
    domain = None if column.type == VARIANT else indexed_domain(column)
    fields = list(file.schema_arrow)
    branch = (
        _by_name(fields, column) if column.physical.field_id is None else _by_id(fields, column)
    )
    if branch is None:
        if column.physical.backfilled:
            raise UnknownError("the file lacks the column, so its rows read a default")
        return None
    path = tuple(field.name for field in branch)
    type = branch[-1].type
    if domain is None:
        if not _is_variant(type):
            raise UnknownError(f"the file has type {type}, the table {column.type}")
        return Found(column, path, None)
    leaf, values = ".".join(path), column.type
    if (element := element_type(column.type)) is not None:
        leaf, values, domain = _find_element(file, leaf, type), element, domain_of_type(element)
        type = type.value_type
    if pa.types.is_dictionary(type):
        type = type.value_type
    leaves = map(file.metadata.schema.column, range(file.metadata.num_columns))
    int96 = pa.types.is_timestamp(type) and ("INT96", leaf) in [
        (leaf.physical_type, leaf.path) for leaf in leaves
    ]
    if int96:
        if not (file.metadata.created_by or "").startswith("parquet-mr"):
            raise UnknownError(f"INT96 timestamps written by {file.metadata.created_by}")
        type = pa.timestamp("us", "UTC")
    is_other = domain_of(type) != domain or _width(type) > _width(arrow_type(values))
    if is_other or not _keeps_sign(type, column):
        raise UnknownError(f"the file has type {type}, the table {column.type}")
    corrected = _is_corrected(file.metadata.metadata or {}, int96=int96)
    oldest = None if corrected or domain is None else _OLDEST.get(domain.name)
    return Found(column, path, oldest, int96)


def _find_element(file: pq.ParquetFile, path: str, type: pa.DataType) -> str:
    """Return the path of an array's elements in a file that stores them as all readers expect."""
    leaves = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
    inner = [leaf for leaf in leaves if leaf.startswith(f"{path}.")]
    is_list = pa.types.is_list(type) or pa.types.is_large_list(type)
    # Readers disagree on lists of two levels.
    if not is_list or len(inner) != 1 or inner[0].removeprefix(f"{path}.") not in _STANDARD:
        raise UnknownError(f"the file has type {type}, or stores it in an old form")
    return str(inner[0])


def _is_variant(type: pa.DataType) -> bool:
    """Return whether Spark can read a variant of this type; if not, the file is unknown."""
    if not pa.types.is_struct(type):
        return False
    binary = {field.name for field in type if pa.types.is_binary(field.type)}
    return {"metadata", "value"} <= binary


def _by_name(fields: list[pa.Field], column: TableColumn) -> list[pa.Field] | None:
    branch: list[pa.Field] = []
    for name in column.physical.path:
        if branch:
            parent = branch[-1]
            if not pa.types.is_struct(parent.type):
                raise UnknownError(f"{parent.name} is not a struct in the file")
            fields = list(parent.type)
        alike = [field for field in fields if field.name.lower() == name.lower()]
        if not alike:
            return None
        if len(alike) > 1 or alike[0].name != name:
            # Whether Spark takes these for one column depends on a setting of the query's session.
            raise UnknownError(
                f"the file has {', '.join(f.name for f in alike)}, the table expects {name}"
            )
        branch.append(alike[0])
    return branch


def _by_id(fields: list[pa.Field], column: TableColumn) -> list[pa.Field] | None:
    branches = list(_branches(fields, []))
    ids = [(branch[-1].metadata or {}).get(b"PARQUET:field_id") for branch in branches]
    wanted = str(column.physical.field_id).encode()
    found = [branch for branch, id in zip(branches, ids, strict=True) if id == wanted]
    if not any(ids):
        return _by_mapping(fields, column)
    if len(found) > 1 or any(len(branch) != len(column.physical.path) for branch in found):
        raise UnknownError(f"field id {column.physical.field_id} occurs twice, or at another depth")
    by_id = found[0] if found else None
    # PyIceberg uses ids only if every field has one. Otherwise it uses the mapping, or fails
    # without a mapping (`pyarrow_to_schema`). Iceberg's Spark reader uses ids as soon as one field
    # has an id (`ReadConf.java`).
    if column.physical.imported and not _have_ids(fields) and _by_names(fields, column) != by_id:
        raise UnknownError("the file has field ids on some columns only")
    return by_id


def _by_mapping(fields: list[pa.Field], column: TableColumn) -> list[pa.Field] | None:
    """Find a column by the table's name mapping, as Iceberg reads imported files."""
    if not column.physical.imported:
        raise UnknownError(
            "the file has no field ids, and the table has no name mapping for the column"
        )
    if _has_ids(fields):
        raise UnknownError("the file has field ids in lists or maps only")
    return _by_names(fields, column)


def _by_names(fields: list[pa.Field], column: TableColumn) -> list[pa.Field] | None:
    branch: list[pa.Field] = []
    for names in column.physical.imported:
        if branch:
            if not pa.types.is_struct(branch[-1].type):
                raise UnknownError(f"{branch[-1].name} is not a struct in the file")
            fields = list(branch[-1].type)
        named = [field for field in fields if field.name in names]
        if len(named) > 1:
            raise UnknownError(
                f"the file has {', '.join(f.name for f in named)}, the table expects {column.name}"
            )
        if not named:
            return None
        branch.append(named[0])
    return branch


def _has_ids(fields: list[pa.Field]) -> bool:
    for field in fields:
        if b"PARQUET:field_id" in (field.metadata or {}):
            return True
        inner = [field.type.field(i) for i in range(field.type.num_fields)]
        if _has_ids(inner):
            return True
    return False


def _have_ids(fields: list[pa.Field]) -> bool:
    """Return whether every field has an id. The entries of a map are not a field."""
    for field in fields:
        inner = [field.type.field(i) for i in range(field.type.num_fields)]
        if pa.types.is_map(field.type):
            inner = [field.type.key_field, field.type.item_field]
        if b"PARQUET:field_id" not in (field.metadata or {}) or not _have_ids(inner):
            return False
    return True


def _branches(fields: list[pa.Field], above: list[pa.Field]) -> Iterator[list[pa.Field]]:
    for field in fields:
        yield [*above, field]
        if pa.types.is_struct(field.type):
            yield from _branches(list(field.type), [*above, field])


def _keeps_sign(type: pa.DataType, column: TableColumn) -> bool:
    """Return whether Spark reads numbers unchanged: some of its readers ignore unsigned types.

    Spark's own reader reads a UINT64 correctly as DECIMAL(20,0) only, else as signed
    (`ParquetVectorUpdaterFactory`). Iceberg's reader reads a UINT32 as signed
    (`BaseParquetReaders`).
    """
    if not pa.types.is_unsigned_integer(type):
        return True
    return column.physical.field_id is None and (
        type != pa.uint64() or column.type == "decimal(20,0)"
    )


def _width(type: pa.DataType) -> int:
    """Return the width of a numeric type: Spark may truncate wider values, or refuse the file."""
    if pa.types.is_unsigned_integer(type) and type != pa.uint64():
        return int(type.bit_width) + 1  # 2**31 of a UINT32 is negative as an INT
    type = canonical_type(type)
    if pa.types.is_decimal(type):
        return int(type.precision)
    return int(type.bit_width) if pa.types.is_primitive(type) else 0


def _is_corrected(footer: dict[bytes, bytes], *, int96: bool) -> bool:
    """Return whether Spark reads dates unchanged (`DataSourceUtils.getRebaseSpec`)."""
    least, legacy = ((3, 1), b"legacyINT96") if int96 else ((3, 0), b"legacyDateTime")
    version = re.match(rb"(\d+)\.(\d+)", footer.get(b"org.apache.spark.version", b""))
    return (
        version is not None
        and (int(version[1]), int(version[2])) >= least
        and b"org.apache.spark." + legacy not in footer
    )
