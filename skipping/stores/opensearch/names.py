"""Names for people: `columns.price.min` beside `s3_low`, which a search or a dashboard can use.

They are aliases in the mapping, which take no room in documents. Fields are numbered because names
of columns change; names follow the definition. A mapping cannot lose a name: that of a column that
was renamed or dropped stays, and means what it meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from skipping.model.definition import Definition, IndexedColumn
from skipping.parser.literals import split_parts
from skipping.stores.opensearch.client import Body
from skipping.stores.opensearch.documents import TERMS

__all__ = ["name_fields"]

_ROOT = "columns"
_NAMES = {"low": "min", "high": "max", "values": "values"}

_MOST = 500
"""Fields and names together: an index of an earlier release has no more than 1,000, some of which
columns that are added later will need."""

_DEPTH = 15  # of parts; a mapping has at most 20
_LONGEST = 200  # characters of a part


def name_fields(definition: Definition, fields: Mapping[str, str]) -> list[Body]:
    """Return for each column the properties of a mapping that name its fields, `columns.<name>...`.

    A part of a name that a mapping would take for several, or refuse, has `_` in the place of other
    characters than letters, digits, `_` and `-`. Where two columns would get one name, the first
    keeps it, and the other ends with the number of its sketch.
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
    """For each column, by its first sketch, the fields of all its sketches by their names.

    Of a column that was sketched anew the newest has the name.
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
    """Whether no other column has these names, and none is an alias here and an object there."""
    above = (parts[:end] for end in range(1, len(parts) + 1))
    mine = {(*parts, name) for name in targets}
    return not (aliases.intersection(above) or mine & objects or mine & aliases)
