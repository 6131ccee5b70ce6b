"""Plan scans: which files a client opens, with their partitions and deletes.

The index prunes first. The remaining files are compared with the filter by partitions and bounds,
as in Iceberg's own planning. The plan must not be wrong in these points:

==========================  ========================================================================
partitions                  are compared exactly, because Spark does not evaluate conditions on
                            partitions again, and counts rows by the planned files.
a plan without any file     lets Spark's DELETE change metadata only. If only the index prunes all
                            files, one of them stays in the plan, with its rows.
a filter's columns          have only names, and a name can move to another column: see `filters`.
rows that match             The lookup covers what any reader could return, the loosest reading of
                            `tables.iceberg.filters`: a file without the column, one older than a
                            widening, NaN and null match wherever any reader would return them.
                            SQL, as Spark and Polars evaluate it, is stricter: null
                            is never true there, and NaN is the largest value, as in the index.
no index                    Then every file that Iceberg's planning keeps is in the plan: with
                            planning by the server a client has no plan of its own.
==========================  ========================================================================
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, StringType
from pyroaring import BitMap

from providers.predicate import Predicate
from skipping.catalog.bounded import RESIDUALS
from skipping.catalog.entries import (
    Entries,
    File,
    Files,
    Ordinals,
    PartitionTypes,
    Read,
    partition_types,
)
from skipping.catalog.errors import Refused, refuse_plan
from skipping.catalog.filters import Filter, Names, read_filter
from skipping.catalog.partitions import Mask, matching
from skipping.catalog.pyiceberg_internals import InclusiveMetricsEvaluator
from skipping.filters.pyiceberg import Reading, translate_pyiceberg
from skipping.stores import identities
from skipping.tables import Columns
from skipping.tables.iceberg.bounds import TrustedBounds
from skipping.tables.iceberg.metadata import Metadata

_EVALUATING = 5.0
"""Seconds to compare files with bounds; files after that stay in the plan."""


class Contents:
    """The contents of a metadata file."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def metadata(self) -> TableMetadata:
        """The metadata as PyIceberg's object."""
        return TableMetadataUtil.parse_raw(self._text)

    @cached_property
    def names(self) -> Names:
        """The names of columns in filters."""
        return Names(self.metadata)

    @cached_property
    def types(self) -> PartitionTypes:
        """The types of the partition fields of each spec."""
        return partition_types(self.metadata)

    @cached_property
    def columns(self) -> Columns:
        """The columns that an index may have."""
        return Metadata(self._text).columns()

    @cached_property
    def reading(self) -> Reading:
        """The loosest assumptions about the client: it returns no column, and names ignore case."""
        return Reading.of(self.metadata, selected=frozenset(), case_sensitive=False)

    @cached_property
    def referenced(self) -> Sequence[Snapshot]:
        """The snapshots that branches and tags refer to, each once."""
        # Not `snapshot_by_id`, which searches all snapshots each time.
        ids = {ref.snapshot_id for ref in self.metadata.refs.values()}
        return [each for each in self.metadata.snapshots if each.snapshot_id in ids]

    @cached_property
    def unplanned(self) -> str | None:
        """The reason why clients should plan scans themselves, or None.

        It relies on the summaries of snapshots, which some writers leave empty. Plans are correct
        anyway.
        """
        for snapshot in self.referenced:
            summary = snapshot.summary
            properties = {} if summary is None else summary.additional_properties
            if properties.get("total-equality-deletes", "0") != "0":
                return "equality deletes"
            if (
                self.metadata.format_version > 2
                and properties.get("total-delete-files", "0") != "0"
            ):
                return "deletion vectors"
        return "partition columns with the same name" if self.names.unclear else None


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks for files of a snapshot, by their positions in it, and the residual filter."""

    snapshot: int
    places: Ordinals
    residual: bytes

    def pack(self) -> bytes:
        """Serialize this part of a plan for its `plan-task` handle."""
        head = {"snapshot": self.snapshot, "residual": self.residual.decode()}
        return json.dumps(head).encode() + b"\n" + BitMap(self.places.tolist()).serialize()

    @classmethod
    def unpack(cls, packed: bytes) -> Part:
        """Deserialize a part."""
        head, _, places = packed.partition(b"\n")
        said = json.loads(head)
        bits = np.array(BitMap.deserialize(places), np.int64)
        return cls(int(said["snapshot"]), bits, str(said["residual"]).encode())


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a lookup: for each ordinal whether its file is pruned, and the index's files.

    Equal `files` have an equal `state`.
    """

    state: Hashable
    files: pa.Table
    pruned: Mask


Find: TypeAlias = Callable[[Predicate, Columns], Found | None]
"""Looks up a predicate in the table's index; None without an index, or if it is unreachable."""


class Planner:
    """Plans the scans of one table.

    It caches up to `most` files of snapshots. A plan is split into parts of at most `page` tasks.
    """

    def __init__(self, find: Find, read: Read, *, most: int, page: int) -> None:
        self._find = find
        self._page = page
        self._entries = Entries(read, most)

    def plan(self, table: Contents, asked: Mapping[str, Any]) -> list[Part]:
        """Return the parts of a request's plan, at least one; raise Refused or TableError."""
        if asked.get("start-snapshot-id") is not None or asked.get("end-snapshot-id") is not None:
            raise refuse_plan("incremental scans are not planned here")
        given = asked.get("filter")
        residual = json.dumps(True if given is None else given, separators=(",", ":")).encode()
        snapshot = _snapshot(table.metadata, asked.get("snapshot-id"))
        if snapshot is None:
            return [Part(-1, np.array([], np.int64), residual)]
        if not snapshot.manifest_list:  # version 1 may list manifests in the metadata file
            raise refuse_plan("the snapshot has no manifest list")
        files = self._entries.files(table.metadata, snapshot)
        wanted = read_filter(given, table.names)
        if not wanted.exact and not all(s.is_unpartitioned() for s in _list_specs(table, files)):
            raise refuse_plan("the filter has an unsupported condition that may select partitions")
        kept = self._select_files(table, files, wanted)
        size = self._page
        large = len(residual) * min(size, len(kept)) > RESIDUALS
        # A client may not parse its own copy of an unsupported filter: PyIceberg sends infinity as
        # null, and fails on that null in the response.
        if wanted.column is not None and (large or not wanted.understood):
            residual = _always(wanted.column)
        elif large:
            raise Refused(
                400, "BadRequestException", "the filter is too large, and names no column"
            )
        return [
            Part(snapshot.snapshot_id, kept[start : start + size], residual)
            for start in range(0, max(1, len(kept)), size)
        ]

    def tasks(self, table: Contents, part: Part) -> Iterator[bytes]:
        """Yield a part as members of a JSON object: the tasks, and their delete files.

        The residual filter is a member of its own, for all tasks; `check_tasks` adds it to each.
        """
        if not len(part.places):
            yield b'"file-scan-tasks":[]'
            return
        snapshot = table.metadata.snapshot_by_id(part.snapshot)
        if snapshot is None:
            # The snapshot expired between two pages, or the table was created again.
            raise Refused(
                404, "NoSuchPlanTaskException", "the snapshot no longer exists: plan again"
            )
        files, types = self._entries.files(table.metadata, snapshot), table.types
        numbers: dict[File, int] = {}
        yield b'"residual-filter":' + part.residual + b',"file-scan-tasks":['
        for turn, place in enumerate(part.places.tolist()):
            file = files.data[place]
            yield b',{"data-file":' if turn else b'{"data-file":'
            yield file.json(types)
            if deletes := list(files.deletes.of(file)) if files.deletes.count else ():
                named = [str(numbers.setdefault(d, len(numbers))) for d in deletes]
                yield f',"delete-file-references":[{",".join(named)}]'.encode()
            yield b"}"
        yield b"]"
        if numbers:
            yield b',"delete-files":[' + b",".join(d.json(types) for d in numbers) + b"]"

    def _select_files(self, table: Contents, files: Files, wanted: Filter) -> Ordinals:
        rows = wanted.rows
        live = _matching_partitions(table, files, wanted)
        if rows == AlwaysTrue() or not live.any():
            return np.flatnonzero(live)
        survivors = np.flatnonzero(live & ~self._prune_by_index(table, files, wanted))
        kept = self._within_bounds(table, files, survivors, wanted)
        if len(kept) == 0 and len(survivors) < np.count_nonzero(live):
            # Keep one file if Iceberg's own planning would keep any.
            others = np.setdiff1d(np.flatnonzero(live), survivors, assume_unique=True)
            kept = self._within_bounds(table, files, others, wanted, first=True)
        return kept

    def _within_bounds(
        self,
        table: Contents,
        files: Files,
        places: Ordinals,
        wanted: Filter,
        *,
        first: bool = False,
    ) -> Ordinals:
        within = InclusiveMetricsEvaluator(table.metadata.schema(), wanted.rows, True)
        bounds = TrustedBounds(table.metadata, extract_field_ids(within.expr))
        deadline = time.monotonic() + _EVALUATING
        kept: list[int] = []
        for turn, place in enumerate(places.tolist()):
            if time.monotonic() > deadline:
                left = places[turn : turn + 1] if first else places[turn:]
                return np.concatenate([np.array(kept, np.int64), left])
            try:
                matches = within.eval(bounds.of(files.data[place].data))
            except Exception:  # bounds of another type than the column has now
                matches = True
            if matches:
                kept.append(place)
                if first:
                    break
        return np.array(kept, np.int64)

    def _prune_by_index(self, table: Contents, files: Files, wanted: Filter) -> Mask:
        """Return for each file whether the index prunes it; no file if the lookup fails."""
        pruned = np.zeros(len(files), bool)
        try:
            bound = bind(table.metadata.schema(), wanted.rows, True)
            predicate = translate_pyiceberg(bound, table.columns, table.reading)
        except Exception:  # reading never fails because of an index
            return pruned
        found = self._find(predicate, table.columns)
        if found is None or not found.pruned.any():
            return pruned
        ordinals = _ordinals(files, found)
        known = (ordinals >= 0) & (ordinals < len(found.pruned))
        pruned[known] = found.pruned[ordinals[known]]
        return pruned


def _snapshot(metadata: TableMetadata, id: Any) -> Snapshot | None:
    if id is None:
        return metadata.current_snapshot()
    found = metadata.snapshot_by_id(id) if isinstance(id, int) else None
    if found is None:
        raise Refused(400, "BadRequestException", f"the table has no snapshot {str(id)[:40]}")
    return found


def _list_specs(table: Contents, files: Files) -> list[Any]:
    specs = table.metadata.specs()
    return [specs[id] for id in files.specs]


def _matching_partitions(table: Contents, files: Files, wanted: Filter) -> Any:
    """Return for each file whether its partition can have a match, by Iceberg's projections."""
    matches = np.ones(len(files.groups), bool)
    specs, types = table.metadata.specs(), table.types
    for id, numbers in files.specs.items():
        spec = specs[id]
        if spec.is_unpartitioned():
            continue
        fields = [
            NestedField(f.field_id, f.name, type or StringType(), required=False)
            for f, type in zip(spec.fields, types[id], strict=True)
        ]
        condition = bind(Schema(*fields), wanted.partitions(spec), True)
        try:
            matches[numbers] = matching(condition, partial(files.column, id), len(numbers))
        except Exception as error:  # PyIceberg cannot compare all values
            raise refuse_plan("a partition cannot be compared with the filter") from error
    return matches[files.group] if len(files) else np.zeros(0, bool)


def _ordinals(files: Files, found: Found) -> Ordinals:
    """Return the ordinal of each file's entry, -1 for files without an entry."""
    held = files.known
    if held is not None and held[0] == found.state:
        return held[1]
    numbers = found.files["ordinal"].to_pylist()
    known = dict(zip(identities(found.files), numbers, strict=True))
    places = (known.get(file.identity, -1) for file in files.data)
    ordinals = np.fromiter(places, np.int64, len(files))
    files.known = found.state, ordinals
    return ordinals


def _always(column: str) -> bytes:
    """Return a filter that all rows satisfy; clients still evaluate it."""
    legs = [{"type": type, "term": column} for type in ("is-null", "not-null")]
    return json.dumps({"type": "or", "left": legs[0], "right": legs[1]}).encode()
