"""Name the fields of columns, for searches and dashboards: `columns.price.min` for `s3_low`.

The names are aliases in the mapping, which take no space in documents. Fields are numbered because
column names change; aliases follow the definition. A mapping cannot lose an alias: that of a
renamed or dropped column stays, and refers to the same field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from skipping.model.definition import Definition, IndexedColumn
from skipping.parser.literals import split_parts
from skipping.stores.opensearch.client import Body
from skipping.stores.opensearch.documents import TERMS

_ROOT = "columns"
_NAMES = {"low": "min", "high": "max", "values": "values"}

_MOST = 500
"""Maximum of fields and aliases together; the rest is left for columns that are added later."""

_DEPTH = 15  # of parts; a mapping has at most 20
_LONGEST = 200  # characters of a part


def name_fields(definition: Definition, fields: Mapping[str, str]) -> list[Body]:
    """Return for each column the properties of a mapping that name its fields, `columns.<name>...`.

    In a part of a name, `_` replaces characters other than letters, digits, `_` and `-`. If two
    columns would get the same name, that of the second one ends with the number of its sketch.
    """
    made: list[Body] = []
    aliases = set[tuple[str, ...]]()
    objects: set[tuple[str, ...]] = {(_ROOT,)}
    room = _MOST - len(fields)
    for column, targets in _targets(definition, fields).items():
        parts = (_ROOT, *_parts(column))
        if not _is_free(parts, targets, aliases, objects):
            parts = (*parts[:-1], f"{parts[-1]}_{column.number}")
        above = {parts[:end] for end in range(1, len(parts) + 1)}
        room -= len(targets) + len(above - objects)
        if room < 0:
            break
        if len(parts) > _DEPTH or not _is_free(parts, targets, aliases, objects):
            continue
        objects |= above
        aliases |= {(*parts, name) for name in targets}
        properties: Any = {name: {"type": "alias", "path": path} for name, path in targets.items()}
        for part in reversed(parts):
            properties = {part: {"dynamic": "strict", "properties": properties}}
        made.append(properties)
    return made


def _targets(
    definition: Definition, fields: Mapping[str, str]
) -> dict[IndexedColumn, dict[str, str]]:
    """Return for each column, by its first sketch, the fields of all its sketches by alias.

    If a column was sketched again, the alias refers to the newest sketch.
    """
    first: dict[str, IndexedColumn] = {}
    found: dict[IndexedColumn, dict[str, str]] = {}
    for column in sorted(definition.columns, key=lambda column: column.number):
        named = {
            name: f"{TERMS}.{field}" if fields[field].startswith("list<") else field
            for part, name in _NAMES.items()
            if (field := f"{column.sketch}_{part}") in fields
        }
        if named:
            found.setdefault(first.setdefault(column.name, column), {}).update(named)
    return found


def _parts(column: IndexedColumn) -> Iterator[str]:
    plain = column.expression is None and not column.parts
    for part in split_parts(column.name) if plain else [column.name]:
        is_word = re.fullmatch(r"[\w-]+", part)
        yield (part if is_word else re.sub(r"[^\w-]+", "_", part).strip("_") or "_")[:_LONGEST]


def _is_free(
    parts: tuple[str, ...],
    targets: Mapping[str, str],
    aliases: set[tuple[str, ...]],
    objects: set[tuple[str, ...]],
) -> bool:
    """Return whether no other column uses these names, as alias or as object."""
    above = (parts[:end] for end in range(1, len(parts) + 1))
    mine = {(*parts, name) for name in targets}
    return not (aliases.intersection(above) or mine & objects or mine & aliases)
