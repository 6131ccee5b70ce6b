"""Parse an Iceberg table's metadata file, whether Spark or PyIceberg fetched it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from skipping.model.definition import TableId
from skipping.parser.errors import mask_controls
from skipping.tables import Columns, TableColumn
from skipping.tables.iceberg.schema import leaves, with_bounds

_LONGEST = 200
"""Longest name of an unknown transform, in characters."""

_NOT_MADE = ("identity", "void", "unknown")
"""Transforms that are the column itself, or have no information about it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot, its parent, and the number of files that it added, according to its summary.

    `number` orders the snapshots of a table: see `Metadata.version`.
    """

    id: int
    parent: int | None
    number: int
    added: int


class Metadata:
    """One metadata file, of format version 1, 2 or 3."""

    def __init__(self, text: str) -> None:
        self._json: dict[str, Any] = json.loads(text)
        self.snapshots = {
            int(s["snapshot-id"]): Snapshot(
                int(s["snapshot-id"]),
                s.get("parent-snapshot-id"),
                int(s.get("sequence-number", 0) if self.numbered else s["timestamp-ms"]),
                int(s.get("summary", {}).get("added-data-files", 0)),
            )
            for s in self._json.get("snapshots") or ()
        }

    @property
    def id(self) -> TableId:
        """The table's UUID, with its location: a registered copy shares the UUID."""
        return table_id(self._json)

    @property
    def numbered(self) -> bool:
        """Whether snapshots have sequence numbers, as they do from format version 2 on."""
        return int(self._json["format-version"]) > 1

    @property
    def version(self) -> int:
        """The last sequence number, which grows over all branches and through a rollback.

        In a v1 table, the time of its last change, which only shows that something changed.
        """
        return int(self._json["last-sequence-number" if self.numbered else "last-updated-ms"])

    def heads(self, version: int) -> list[int] | None:
        """Return the snapshots of the table, its branches and its tags at a version, each once.

        None if one is gone. Branches and tags are the current ones.
        """
        if version > self.version:
            return None
        current = self._current()
        refs = [int(ref["snapshot-id"]) for ref in (self._json.get("refs") or {}).values()]
        heads: dict[int, None] = {}
        for head in [*([] if current is None else [current]), *refs]:
            at: int | None = head
            while at is not None and version != self.version:
                if at not in self.snapshots:
                    return None
                if self.snapshots[at].number <= version:
                    break
                at = self.snapshots[at].parent
            if at is not None:
                heads[at] = None
            elif version > 0:
                return None
        return list(heads)

    def between(self, since: int, until: int) -> list[Snapshot] | None:
        """Return the snapshots since < sequence number <= until; None if they are incomplete.

        They are incomplete if one has expired, in v1 tables, and if the table was rolled back to an
        older snapshot, whose files may never have been indexed.
        """
        if not self.numbered or since > until or until > self.version:
            return None
        found = sorted(
            (s for s in self.snapshots.values() if since < s.number <= until),
            key=lambda s: s.number,
        )
        if [s.number for s in found] != list(range(since + 1, until + 1)):
            return None
        return found if self._descends_from(since) else None

    def _descends_from(self, since: int) -> bool:
        """Return whether the current snapshot descends from the newest one of a version."""
        at = self._current()
        while at is not None and at in self.snapshots and self.snapshots[at].number > since:
            at = self.snapshots[at].parent
        past = [int(entry["snapshot-id"]) for entry in self._json.get("snapshot-log") or ()]
        known = [self.snapshots[id] for id in past if id in self.snapshots]
        newest = max((s.number for s in known if s.number <= since), default=0)
        if at is None:
            return newest == 0
        return at in self.snapshots and self.snapshots[at].number == newest

    def columns(self) -> Columns:
        """Return the columns of the current schema; those that cannot be indexed have a reason."""
        properties = self._json.get("properties") or {}
        mapping = properties.get("schema.name-mapping.default")
        partition = self.places_of(int(self._json.get("default-spec-id", 0)))
        found = leaves(self._schema(), partition.keys(), json.loads(mapping) if mapping else ())
        return Columns(self._with_transforms(with_bounds(found, properties)))

    def _with_transforms(self, columns: Iterable[TableColumn]) -> Iterator[TableColumn]:
        """Add to each column the transforms that new partitions have, such as `days(ts)`."""
        current = self._json.get("default-spec-id", 0)
        fields: Sequence[Mapping[str, Any]] = next(
            (s["fields"] for s in self._specs() if s["spec-id"] == current), []
        )
        for column in columns:
            made = (
                _transform(f["transform"], column.name)
                for f in fields
                if f.get("source-id") == column.physical.field_id
                and f["transform"] not in _NOT_MADE
            )
            yield replace(column, partitioning=replace(column.partitioning, transforms=tuple(made)))

    @property
    def specs(self) -> list[int]:
        """The ids of the partition specs."""
        return [int(spec["spec-id"]) for spec in self._specs()]

    def places_of(self, spec: int) -> dict[int, int]:
        """Map each identity-partitioned column of a spec to its position in the partition."""
        fields = next((s["fields"] for s in self._specs() if int(s["spec-id"]) == spec), ())
        return {
            int(f["source-id"]): place
            for place, f in enumerate(fields)
            if f["transform"] == "identity" and int(f["source-id"]) in self.values
        }

    @cached_property
    def values(self) -> dict[int, str]:
        """The columns with an identity transform in some spec: their id, and their name in the
        partition of metadata tables. Names that two fields have had are left out.
        """
        names = self._partition_names()
        return {
            int(field["source-id"]): names[int(field["field-id"])]
            for spec in self._specs()
            for field in spec["fields"]
            if field["transform"] == "identity"
            and list(names.values()).count(names[int(field["field-id"])]) == 1
        }

    def _partition_names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for spec in sorted(self._specs(), key=lambda s: -int(s["spec-id"])):
            for field in spec["fields"]:
                if field["transform"] != "void" or int(field["field-id"]) not in names:
                    names.setdefault(int(field["field-id"]), str(field["name"]))
        return names

    def _specs(self) -> Iterator[Mapping[str, Any]]:
        yield from self._json.get("partition-specs") or ()

    def _schema(self) -> Sequence[Mapping[str, Any]]:
        schemas = self._json.get("schemas") or [self._json["schema"]]
        current = self._json.get("current-schema-id", schemas[-1].get("schema-id"))
        schema = next((s for s in schemas if s.get("schema-id") == current), schemas[-1])
        fields: Sequence[Mapping[str, Any]] = schema["fields"]
        return fields

    def _current(self) -> int | None:
        current = self._json.get("current-snapshot-id")
        return None if current in (None, -1) else int(current)


def table_id(metadata: Mapping[str, Any]) -> TableId:
    """Return the id in a metadata file: the UUID and the location."""
    root = str(metadata.get("location") or "")
    while root.endswith("/") and not root.endswith("://"):
        root = root[:-1]
    return TableId("iceberg", str(metadata.get("table-uuid") or ""), root)


def _transform(name: str, column: str) -> str:
    if cut := re.fullmatch(r"(\w+)\[(\d+)\]", name):
        return f"{cut[1]}({cut[2]}, {column})"
    return f"{mask_controls(name[:_LONGEST])}s({column})"
