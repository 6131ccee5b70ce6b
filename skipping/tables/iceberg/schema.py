"""Convert Iceberg's schemas to leaf columns: found by field id, with Spark's types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeAlias

from skipping.parser.literals import join_name, quote
from skipping.tables import Partitioning, PhysicalColumn, TableColumn

NameMapping: TypeAlias = Sequence[Mapping[str, Any]]
"""The table property `schema.name-mapping.default`."""

_SPARK = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
"""The types that can be indexed. Spark reads a `uuid` as text and a `fixed` as bytes, but files do
not store them so.
"""


_WHOLE = 1 << 30
"""A length that no text exceeds."""


def identity(id: int, mapping: NameMapping) -> str:
    """Return the identity of the column with a field id.

    Files without ids are read by name. So in a table with a name mapping, the names are part of the
    identity: entries are valid only as long as the names stay (`IcebergIdentity.java`).

    >>> identity(2, ()), identity(2, [{"field-id": 2, "names": ["key", "k"]}])
    ('#2', '#2 `k`,`key`')
    """
    path = _find_names(id, mapping)
    parts = [",".join(map(quote, sorted(names))) for names in path]
    return " ".join([f"#{id}", ".".join(parts)]).rstrip()


def _find_names(id: int, mapping: NameMapping) -> list[list[str]]:
    """Return the names of each part of the path to an id; empty if the id has none."""
    for field in mapping:
        names = list(map(str, field.get("names") or ()))
        if field.get("field-id") == id:
            return [names]
        if inner := _find_names(id, field.get("fields") or ()):
            return [names, *inner]
    return []


def leaves(
    fields: Sequence[Mapping[str, Any]],
    partition: Set[int],
    mapping: NameMapping = (),
    *,
    above: tuple[Mapping[str, Any], ...] = (),
) -> Iterator[TableColumn]:
    """Yield the columns of a schema; those that cannot be indexed have a reason.

    `partition` are the ids of the columns whose values are in the log. `mapping` is the table's
    name mapping (`schema.name-mapping.default`), by which files without ids are read.
    """
    for field in fields:
        branch = (*above, field)
        yield _column(branch, mapping, partitioned=int(field["id"]) in partition)
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from leaves(field["type"]["fields"], partition, mapping, above=branch)


def with_bounds(
    columns: Iterable[TableColumn], properties: Mapping[str, str]
) -> Iterator[TableColumn]:
    """Set how many characters of text bounds each column keeps (`write.metadata.metrics.*`).

    If the table sets no default, only its first columns have metrics.
    """
    written = properties.get("write.metadata.metrics.default")
    limit = int(properties.get("write.metadata.metrics.max-inferred-column-defaults", 100))
    place = 0
    for column in columns:
        place += column.refusal is None
        default = written or ("truncate(16)" if place <= limit else "none")
        name = ".".join(column.physical.path)
        mode = properties.get(f"write.metadata.metrics.column.{name}", default).lower()
        cut = re.fullmatch(r"truncate\((\d+)\)", mode)
        yield replace(column, bounded=int(cut[1]) if cut else _WHOLE if mode == "full" else None)


def _column(
    branch: tuple[Mapping[str, Any], ...], mapping: NameMapping, *, partitioned: bool
) -> TableColumn:
    id = int(branch[-1]["id"])
    return TableColumn(
        name=_dotted_name(branch),
        identity=identity(id, mapping),
        type=spark_type(branch[-1]["type"]),
        physical=PhysicalColumn(
            tuple(str(field["name"]) for field in branch),
            id,
            imported=_names([int(field["id"]) for field in branch], mapping),
            backfilled=any(field.get("initial-default") is not None for field in branch),
            proleptic=True,  # neither Iceberg's readers in Spark nor PyIceberg's rebase anything
        ),
        partitioning=Partitioning(by_value=partitioned, in_files=True),
        refusal=_refusal(branch),
        has_elements=_has_elements(branch[-1]["type"]),
    )


def _dotted_name(branch: Sequence[Mapping[str, Any]]) -> str:
    return join_name(str(field["name"]) for field in branch)


def spark_type(type: Any) -> str:
    """Return Spark's name of a type; Iceberg's own if Spark has no such type."""
    if isinstance(type, dict):
        is_list = type["type"] == "list"
        return f"array<{spark_type(type['element'])}>" if is_list else str(type["type"])
    if match := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", type):
        return f"decimal({match[1]},{match[2]})"
    return _SPARK.get(type, str(type))


def _refusal(branch: Sequence[Mapping[str, Any]]) -> str | None:
    name, type = _dotted_name(branch), branch[-1]["type"]
    if isinstance(type, dict) and type["type"] == "struct":
        inner = ", ".join(_dotted_name([*branch, field]) for field in type["fields"])
        return f"{name} is a struct; name its leaves: {inner}"
    if _has_elements(type):
        return f"arrays can be indexed by their elements only: {name} is {spark_type(type)}"
    if isinstance(type, dict) and type["type"] in ("list", "map"):
        what = "arrays" if type["type"] == "list" else "maps"
        return f"{what} cannot be indexed: {name} is a {type['type']}"
    if not _is_indexable(type):
        return f"{name} is {spark_type(type)}, which cannot be indexed"
    return None


def _has_elements(type: Any) -> bool:
    return isinstance(type, dict) and type["type"] == "list" and _is_indexable(type["element"])


def _is_indexable(type: Any) -> bool:
    return isinstance(type, str) and (type in _SPARK or type.startswith("decimal("))


def _names(ids: Sequence[int], mapping: NameMapping) -> tuple[tuple[str, ...], ...]:
    """Return the names of each part of a path in files without ids; empty without a mapping."""
    names: list[tuple[str, ...]] = []
    for id in ids:
        found = next((m for m in mapping if m.get("field-id") == id), None)
        if found is None:
            return ()
        names.append(tuple(map(str, found.get("names") or ())))
        mapping = found.get("fields") or ()
    return tuple(names)
