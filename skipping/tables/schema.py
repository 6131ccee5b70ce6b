"""Read the columns in a JSON schema of Spark or Delta; some have a reason not to be indexed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from providers.tuples import element_type
from providers.values import arrow_type, domain_of
from skipping.parser.errors import mask_controls
from skipping.parser.literals import join_name
from skipping.tables import Partitioning, PhysicalColumn, TableColumn

_LONGEST = 200
"""Longest generation expression, in characters."""

Field: TypeAlias = Mapping[str, Any]
"""A field: its `name`, `type`, `nullable` and `metadata`, as in `schemaString` of Delta's log."""

_SPARK = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def leaves(
    fields: Sequence[Field],
    partition: Sequence[str],
    *,
    mode: str = "none",
    above: tuple[Field, ...] = (),
) -> Iterator[TableColumn]:
    """Yield the leaf columns of a schema; those that cannot be indexed have a reason.

    `mode` is Delta's column mapping; by name and by id, the fields' metadata have the identities.
    """
    for field in fields:
        branch = (*above, field)
        yield _column(branch, mode, partitioned=not above and field["name"] in partition)
        if _kind(field["type"]) == "struct":
            yield from leaves(field["type"]["fields"], partition, mode=mode, above=branch)


def with_generated_partitions(columns: Iterable[TableColumn]) -> Iterator[TableColumn]:
    """Add to each column the partition columns generated from it, such as `day = date(ts)`."""
    there = list(columns)
    generated = [
        (f"{c.name} = {text}", text)
        for c in there
        if (text := c.partitioning.generated) is not None
    ]
    for column in there:
        # Any occurrence of the name is enough: this only reports where the table may skip files.
        name = re.compile(rf"(?<![\w.]){re.escape(column.name)}(?![\w.])", re.IGNORECASE)
        made = tuple(spelled for spelled, text in generated if name.search(text))
        if made and not column.partitioning.generated:
            column = replace(column, partitioning=replace(column.partitioning, transforms=made))
        yield column


def _sanitize(text: Any) -> str | None:
    """Cut a text of the table for display, and mask control characters: any writer may set it."""
    return mask_controls(text[:_LONGEST]) if isinstance(text, str) else None


def physical_name(field: Field, mode: str) -> str:
    """Return a field's name in the files of a table with that column mapping."""
    name = (
        field["name"] if mode == "none" else field["metadata"]["delta.columnMapping.physicalName"]
    )
    return str(name)


def simple_string(type: Any) -> str:
    """Return a type in the form of Spark's `simpleString`.

    >>> simple_string("long"), simple_string({"type": "array", "elementType": "integer"})
    ('bigint', 'array<int>')
    """
    match _kind(type):
        case "struct":
            inner = ",".join(f"{f['name']}:{simple_string(f['type'])}" for f in type["fields"])
            return f"struct<{inner}>"
        case "array":
            return f"array<{simple_string(type['elementType'])}>"
        case "map":
            return f"map<{simple_string(type['keyType'])},{simple_string(type['valueType'])}>"
        case kind:
            return _SPARK.get(kind, kind)


def _kind(type: Any) -> str:
    return str(type["type"] if isinstance(type, Mapping) else type)


def _column(branch: tuple[Field, ...], mode: str, *, partitioned: bool) -> TableColumn:
    metadata = branch[-1].get("metadata") or {}
    physical = tuple(physical_name(field, mode) for field in branch)
    number = int(metadata["delta.columnMapping.id"]) if mode == "id" else None
    return TableColumn(
        name=_name(branch),
        identity=join_name(physical) if number is None else f"#{number}",
        type=_type(branch[-1]),
        physical=PhysicalColumn(
            physical,
            number,
            backfilled=any("EXISTS_DEFAULT" in (f.get("metadata") or {}) for f in branch),
        ),
        partitioning=Partitioning(
            by_value=partitioned,
            generated=_sanitize(metadata.get("delta.generationExpression"))
            if partitioned
            else None,
        ),
        refusal=_refusal(branch),
        has_elements=_has_elements(branch),
    )


def _name(branch: Sequence[Field]) -> str:
    return join_name([str(field["name"]) for field in branch])


def _type(field: Field) -> str:
    type = simple_string(field["type"])
    collations = (field.get("metadata") or {}).get("__COLLATIONS") or {}
    collation = collations.get(field["name"])
    return type if collation is None else f"{type} collate {str(collation).rpartition('.')[2]}"


def _refusal(branch: tuple[Field, ...]) -> str | None:
    name, field = _name(branch), branch[-1]
    type = _type(field)
    if (padded := _find_char_type(branch)) is not None:
        return f"{name} is {padded}, whose values are compared with padding; make it a STRING"
    match _kind(field["type"]):
        case "struct":
            inner = (f"{name}.{join_name([f['name']])}" for f in field["type"]["fields"])
            return f"{name} is a struct; name its leaves: {', '.join(inner)}"
        case "array" if _has_elements(branch):
            return f"arrays can be indexed by their elements only: {name} is {type}"
        case "array" | "map" as kind:
            return f"{kind}s cannot be indexed: {name} is {type}"
    return (
        None
        if _has_domain(type) and " collate " not in type
        else f"{name} is {type}, which cannot be indexed"
    )


def _has_elements(branch: Sequence[Field]) -> bool:
    """Return whether a leaf is an array with elements of a type that can be indexed."""
    for field in branch:
        metadata = field.get("metadata") or {}
        # Spark notes collations and CHAR(n) of elements there.
        declared = str(metadata.get("__CHAR_VARCHAR_TYPE_STRING", ""))
        if metadata.get("__COLLATIONS") or "char(" in declared.replace("varchar(", ""):
            return False
    element = element_type(simple_string(branch[-1]["type"]))
    return element is not None and _has_domain(element)


def _find_char_type(branch: Sequence[Field]) -> str | None:
    """Return the CHAR(n) that a leaf was declared as, or None.

    Spark notes it in the metadata of the leaf or of the struct. If two leaves below a struct have
    the same name, both count as padded.

    >>> outer = {"name": "s", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "struct<v:char(12)>"}}
    >>> _find_char_type([outer, {"name": "v"}]), _find_char_type([outer, {"name": "w"}])
    ('char(12)', None)
    """
    *outer, leaf = [
        str((field.get("metadata") or {}).get("__CHAR_VARCHAR_TYPE_STRING", "")) for field in branch
    ]
    if leaf.startswith("char"):
        return leaf
    named = re.compile(rf"[<,]{re.escape(str(branch[-1]['name']))}:(char\(\d+\))")
    found = next(filter(None, map(named.search, outer)), None)
    return None if found is None else found[1]


def _has_domain(type: str) -> bool:
    arrow = arrow_type(type)
    return arrow is not None and domain_of(arrow) is not None
