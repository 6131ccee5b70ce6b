"""What formats that Spark reads have in common: columns from its schemas, errors from its JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from providers.errors import TableError, first_line
from providers.values import arrow_type, domain_of
from skipping.parser.literals import join_name
from skipping.tables import TableColumn

__all__ = ["leaves", "translate_errors"]


@contextlib.contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Turn what the JVM throws into a TableError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        java = getattr(error, "java_exception", None)
        reason = first_line(java.getMessage() if java else error)
        raise TableError(f"cannot follow table {name}: {reason}") from error


def leaves(
    schema: StructType,
    partition: Sequence[str],
    *,
    mode: str = "none",
    above: tuple[StructField, ...] = (),
) -> Iterator[TableColumn]:
    """The leaf columns of a schema; structs, arrays and others without an index say why.

    `mode` is Delta's column mapping: by name and by id, the fields' metadata have the identities.
    """
    for field in schema.fields:
        branch = (*above, field)
        yield _column(branch, mode, partitioned=not above and field.name in partition)
        if isinstance(field.dataType, StructType):
            yield from leaves(field.dataType, partition, mode=mode, above=branch)


def _column(branch: tuple[StructField, ...], mode: str, *, partitioned: bool) -> TableColumn:
    field = branch[-1]
    physical = tuple(
        f.name if mode == "none" else str(f.metadata["delta.columnMapping.physicalName"])
        for f in branch
    )
    number = int(field.metadata["delta.columnMapping.id"]) if mode == "id" else None
    return TableColumn(
        name=join_name([f.name for f in branch]),
        identity=join_name(physical) if number is None else f"#{number}",
        type=field.dataType.simpleString(),
        physical=physical,
        field_id=number,
        partition=partitioned,
        refusal=_refusal(branch),
        backfilled=any("EXISTS_DEFAULT" in f.metadata for f in branch),
    )


def _refusal(branch: tuple[StructField, ...]) -> str | None:
    name, type = join_name([f.name for f in branch]), branch[-1].dataType
    spelled = str(branch[-1].metadata.get("__CHAR_VARCHAR_TYPE_STRING", ""))
    if spelled.startswith("char"):
        return f"{name} is {spelled}, which compares padded; make it a STRING"
    if isinstance(type, StructType):
        leaves = ", ".join(f"{name}.{join_name([f.name])}" for f in type.fields)
        return f"{name} is a struct; name its leaves: {leaves}"
    if isinstance(type, ArrayType | MapType):
        what = "arrays" if isinstance(type, ArrayType) else "maps"
        return f"{what} cannot be indexed: {name} is {type.simpleString()}"
    return None if _has_domain(type) else f"{name} is {type.simpleString()}, which has no index"


def _has_domain(type: DataType) -> bool:
    arrow = arrow_type(type.simpleString())
    return arrow is not None and domain_of(arrow) is not None
