"""Plans of scans: which files a client opens, and what it is told of each.

The index is asked first, then what is left is held against partitions and bounds, as Iceberg's own
planning does. What a client could be told wrongly here:

==========================  ========================================================================
partitions                  are exact, for each kind of plan: Spark evaluates a filter that selects
                            partitions nowhere else, and counts rows by the files planned for it.
a plan without any file     Spark's DELETE takes it for "metadata will do". If only the index says
                            that no file matches, one stays, the witness, with its rows.
a filter's columns          are told by name, and names change hands: see `filters`.
rows that match             The index is asked what any reader could return, the loosest reading of
                            `tables.iceberg.filters`: a file without the column, one older than a
                            widening, NaN and null are asked for wherever any of them would be true.
                            SQL, as Spark and Polars evaluate it, is stricter: null
                            is never true there, and NaN is the greatest value, as in the index.
the index is away           Then every file that Iceberg's planning keeps is in the plan: with
                            planning by the server a client has no plan of its own.
==========================  ========================================================================
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, bind
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField, StringType

from providers.errors import SkippingError, TableError, first_line
from skipping.catalog.entries import Entries, File, Files, Ordinals, PartitionTypes, partition_types
from skipping.catalog.filters import Filter, Names, read_filter
from skipping.catalog.partitions import matching
from skipping.catalog.storage import Denied, Storage
from skipping.config.settings import Settings
from skipping.lookup.lookup import Lookup, shared_lookup
from skipping.lookup.query import Asking
from skipping.model.definition import Definition
from skipping.stores import IndexStore, identities
from skipping.tables import Columns
from skipping.tables.iceberg.filters import Reading, predicate_of
from skipping.tables.iceberg.metadata import Metadata

__all__ = ["LoadedTable", "Part", "Planner", "Refused", "completed", "contents", "unplanned"]

log = logging.getLogger("skipping")

_EVALUATING = 5.0
"""Seconds for comparing files with bounds; those that are not reached stay in the plan."""

_READING = 120.0
"""Seconds for reading the manifests of a snapshot, once for all who wait for it."""

_RESIDUALS = 4 << 20
"""Bytes that the repetition of a filter may take in one answer."""


class Refused(Exception):
    """A request that gets an error: the status, and what Iceberg calls it."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


def unplanned(why: str) -> Refused:
    """That of a scan which its client has to plan."""
    message = f"{why}: use scan-planning-mode=client"
    return Refused(406, "UnsupportedOperationException", message)


class Contents:
    """What a metadata file says, which is the same for whoever may load it."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def metadata(self) -> TableMetadata:
        """As PyIceberg has it."""
        return TableMetadataUtil.parse_raw(self._text)

    @cached_property
    def log(self) -> Metadata:
        """As the index has it."""
        return Metadata(self._text)

    @cached_property
    def names(self) -> Names:
        """What filters call its columns."""
        return Names(self.metadata)

    @cached_property
    def types(self) -> PartitionTypes:
        """Those of the partition fields."""
        return partition_types(self.metadata)

    @cached_property
    def columns(self) -> Columns:
        """What may be indexed of it."""
        return self.log.columns()

    @cached_property
    def reading(self) -> Reading:
        """The loosest there is: no column returned, names in any case."""
        return Reading.of(self.metadata, selected=frozenset(), case_sensitive=False)

    @cached_property
    def unplanned(self) -> str | None:
        """Why its scans are better planned by clients, if so; plans for it are right all the same.

        By what the writers of its snapshots say, some of which say nothing.
        """
        metadata = self.metadata
        for ref in metadata.refs.values():
            snapshot = metadata.snapshot_by_id(ref.snapshot_id)
            summary = None if snapshot is None else snapshot.summary
            said = {} if summary is None else summary.additional_properties
            if said.get("total-equality-deletes", "0") != "0":
                return "equality deletes"
            if metadata.format_version > 2 and said.get("total-delete-files", "0") != "0":
                return "deletion vectors"
        return "partition columns of one name" if self.names.unclear else None


@lru_cache(maxsize=16)
def contents(text: str) -> Contents:
    """The contents of a metadata file, read once."""
    return Contents(text)


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as the upstream gave it to whoever asks; `key` tells it apart from all others.

    `io` has the caller's credentials, and is kept no longer than the request.
    """

    key: Hashable
    contents: Contents
    io: Storage


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks for files of a snapshot, by their places in it, and the filter that is left to do."""

    snapshot: int
    places: Ordinals
    residual: bytes


class Planner:
    """Plans scans with the indexes of one store; safe to use from several threads.

    Keeps `most` files of snapshots in memory. A plan of more than `page` tasks has several parts.
    """

    def __init__(self, store: IndexStore, settings: Settings, *, most: int, page: int) -> None:
        self._store = store
        self._settings = settings
        self._page = page
        self._entries = Entries(most)
        self._warned = ""

    def indexed(self, table: LoadedTable) -> Definition | None:
        """The index of a table; None if there is none, or the store cannot be asked."""
        # What a table says of itself its writers say: with another's UUID and location it would be
        # told which of the other's files have which values. Where its metadata is the catalog says.
        id = table.contents.log.id
        if not self._settings.enabled or not table.io.is_at(id.root):
            return None
        try:
            indexed = self._lookup().indexed(timeout=self._settings.timeout)
        except SkippingError as error:
            self._warn(error)
            return None
        return indexed.get(id)

    def plan(self, table: LoadedTable, asked: Mapping[str, Any]) -> list[Part]:
        """The parts of the plan of a request, one at least; raises Refused and TableError."""
        if asked.get("start-snapshot-id") is not None or asked.get("end-snapshot-id") is not None:
            raise unplanned("incremental scans are not planned here")
        given = asked.get("filter")
        residual = json.dumps(True if given is None else given, separators=(",", ":")).encode()
        snapshot = _snapshot(table.contents.metadata, asked.get("snapshot-id"))
        if snapshot is None:
            return [Part(-1, np.array([], np.int64), residual)]
        files = self.files(table, snapshot)
        wanted = read_filter(given, table.contents.names)
        if not wanted.exact and not all(s.is_unpartitioned() for s in _used(table, files)):
            raise unplanned("the filter may select partitions, and is not understood here")
        kept = self._kept(table, files, wanted)
        size = self._page
        large = len(residual) * min(size, len(kept)) > _RESIDUALS
        # Of what was not understood the client may not understand its own copy either: infinity is
        # null in what PyIceberg sends, and an error in what it is given.
        if wanted.column is not None and (large or not wanted.understood):
            residual = _always(wanted.column)
        elif large:
            raise Refused(400, "BadRequestException", "a large filter that names no column")
        return [
            Part(snapshot.snapshot_id, kept[start : start + size], residual)
            for start in range(0, max(1, len(kept)), size)
        ]

    def files(self, table: LoadedTable, snapshot: Snapshot) -> Files:
        """The files of a snapshot, for who may read its manifests; raises Refused, TableError."""
        try:
            table.io.check(snapshot.manifest_list)
        except Denied as error:
            raise Refused(403, "ForbiddenException", f"{error}: load the table again") from None
        except OSError as error:
            raise TableError(f"the storage cannot be asked: {first_line(error)}") from error
        return self._entries.files(table.key, table.contents.metadata, snapshot, table.io, _READING)

    def tasks(self, table: LoadedTable, part: Part) -> Iterator[bytes]:
        """A part as the inside of a JSON object: the tasks, and the files of deletes they name."""
        if not len(part.places):
            yield b'"file-scan-tasks":[]'
            return
        snapshot = table.contents.metadata.snapshot_by_id(part.snapshot)
        if snapshot is None:
            # Expired between two pages, or the table was made anew: no page is as good as another.
            raise Refused(404, "NoSuchPlanTaskException", "the snapshot is gone: plan again")
        files, types = self.files(table, snapshot), table.contents.types
        numbers: dict[File, int] = {}
        yield b'"file-scan-tasks":['
        for turn, place in enumerate(part.places.tolist()):
            file = files.data[place]
            yield b',{"data-file":' if turn else b'{"data-file":'
            yield file.json(types)
            if deletes := list(files.deletes.of(file)) if files.deletes.count else ():
                named = [str(numbers.setdefault(d, len(numbers))) for d in deletes]
                yield f',"delete-file-references":[{",".join(named)}]'.encode()
            yield b',"residual-filter":' + part.residual + b"}"
        yield b"]"
        if numbers:
            yield b',"delete-files":[' + b",".join(d.json(types) for d in numbers) + b"]"

    def _kept(self, table: LoadedTable, files: Files, wanted: Filter) -> Ordinals:
        """The places of the files that may have a matching row."""
        rows = wanted.rows
        live = _matching_partitions(table, files, wanted)
        if rows == AlwaysTrue() or not live.any():
            return np.flatnonzero(live)
        survivors = np.flatnonzero(live & ~self._disproved(table, files, wanted))
        kept = self._within_bounds(table, files, survivors, wanted)
        if len(kept) == 0 and len(survivors) < np.count_nonzero(live):
            # A witness, if Iceberg's own planning would name any.
            others = np.setdiff1d(np.flatnonzero(live), survivors, assume_unique=True)
            kept = self._within_bounds(table, files, others, wanted, first=True)
        return kept

    def _within_bounds(
        self,
        table: LoadedTable,
        files: Files,
        places: Ordinals,
        wanted: Filter,
        *,
        first: bool = False,
    ) -> Ordinals:
        """Of these files those whose bounds do not exclude a match; with `first`, one of them."""
        within = _InclusiveMetricsEvaluator(
            table.contents.metadata.schema(), wanted.rows, True
        ).eval
        deadline = time.monotonic() + _EVALUATING
        kept: list[int] = []
        for turn, place in enumerate(places.tolist()):
            if time.monotonic() > deadline:
                left = places[turn : turn + 1] if first else places[turn:]
                return np.concatenate([np.array(kept, np.int64), left])
            try:
                matches = within(files.data[place].data)
            except Exception:  # bounds of another type than the column has now
                matches = True
            if matches:
                kept.append(place)
                if first:
                    break
        return np.array(kept, np.int64)

    def _disproved(self, table: LoadedTable, files: Files, wanted: Filter) -> Any:
        """For each file whether the index disproves it; none if it cannot be asked."""
        none = np.zeros(len(files), bool)
        definition = self.indexed(table)
        if definition is None:
            return none
        try:
            contents = table.contents
            bound = bind(contents.metadata.schema(), wanted.rows, True)
            predicate = predicate_of(bound, contents.columns, contents.reading)
            asking = Asking(self._store, definition, self._settings)
            found = asking.find(predicate, contents.columns)
        except Exception as error:  # reading never fails because of an index
            self._warn(error)
            return none
        if not found.disproved:
            return none
        ordinals = _ordinals(files, found.files, (found.index, found.generation))
        gone = np.zeros(found.disproved.max() + 1, bool)
        gone[np.array(found.disproved, np.int64)] = True
        asked = (ordinals >= 0) & (ordinals < len(gone))
        none[asked] = gone[ordinals[asked]]
        return none

    def _warn(self, error: Exception) -> None:
        """Once for what goes on: each request meets it."""
        said = first_line(error)
        if said != self._warned:
            log.warning("no file is skipped: %s", said)
        self._warned = said

    def _lookup(self) -> Lookup:
        settings = self._settings
        return shared_lookup(
            self._store,
            ttl=settings.cache_ttl,
            providers=settings.providers,
            values=settings.explain_values,
        )


def completed(inside: Sequence[bytes], handles: Sequence[str]) -> bytes:
    """The answer to a request for a plan."""
    head = f'{{"status":"completed","plan-id":"{uuid.uuid4()}",'.encode()
    tail = f',"plan-tasks":{json.dumps(handles)}}}'.encode() if handles else b"}"
    return b"".join([head, *inside, tail])


def _snapshot(metadata: TableMetadata, id: Any) -> Snapshot | None:
    if id is None:
        return metadata.current_snapshot()
    found = metadata.snapshot_by_id(id) if isinstance(id, int) else None
    if found is None:
        raise Refused(400, "BadRequestException", f"the table has no snapshot {str(id)[:40]}")
    return found


def _used(table: LoadedTable, files: Files) -> list[Any]:
    specs = table.contents.metadata.specs()
    return [specs[id] for id in files.specs]


def _matching_partitions(table: LoadedTable, files: Files, wanted: Filter) -> Any:
    """For each file whether its partition may have a match: exactly, by Iceberg's projections."""
    matches = np.ones(len(files.groups), bool)
    specs, types = table.contents.metadata.specs(), table.contents.types
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
        except Exception as error:  # of values that PyIceberg does not compare
            raise unplanned("a partition cannot be compared with the filter") from error
    return matches[files.group] if len(files) else np.zeros(0, bool)


def _ordinals(files: Files, indexed: Any, generation: Hashable) -> Ordinals:
    """The ordinal of each file's entry, -1 where it has none."""
    held = files.known
    if held is not None and held[0] == generation:
        return held[1]
    known = dict(zip(identities(indexed), indexed["ordinal"].to_pylist(), strict=True))
    found = (known.get(file.identity, -1) for file in files.data)
    ordinals = np.fromiter(found, np.int64, len(files))
    files.known = generation, ordinals
    return ordinals


def _always(column: str) -> bytes:
    """A filter that all rows satisfy, but which nobody takes for one that is done already."""
    legs = [{"type": type, "term": column} for type in ("is-null", "not-null")]
    return json.dumps({"type": "or", "left": legs[0], "right": legs[1]}).encode()
