"""Cache the files of a table's snapshots between plans.

Reading manifests takes most of a plan's time, so the files of each manifest and of each snapshot
are cached. A worker process has one cache, for the only table and caller that it serves: no other
table or caller can add files to it, or see them.

This module reads manifests as version 3, which PyIceberg's planner does not do
(`pyiceberg_internals`).
"""

from __future__ import annotations

import json
import math
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pyiceberg.conversions import to_json
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, PrimitiveType

from providers.errors import TableError, first_line
from skipping.catalog.avro import read_records
from skipping.catalog.errors import Denied
from skipping.catalog.partitions import PartitionColumn
from skipping.stores import Identity

_PATH = 2147483546
"""The field id of `file_path` in position delete files."""

_CONTENT = ("data", "position-deletes", "equality-deletes")
_PLACES = {named.name: place for place, named in enumerate(DATA_FILE_TYPE[3].fields)}

Read: TypeAlias = Callable[[Sequence[str]], Iterable[bytes]]
"""Reads complete files, in sequence; raises OSError, PermissionError, Denied."""

Ordinals: TypeAlias = npt.NDArray[np.int64]
PartitionTypes: TypeAlias = Mapping[int, Sequence[PrimitiveType | None]]
"""The types of the partition fields of each spec; None where the column is gone."""


@dataclass(eq=False, slots=True)
class File:
    """A data file or delete file, as its manifest describes it."""

    data: DataFile
    sequence: int
    first_row: int | None = None
    _json: bytes | None = None

    @property
    def identity(self) -> Identity:
        """Path, size and number of records: the key of its entry in an index."""
        return self.data.file_path, self.data.file_size_in_bytes, self.data.record_count

    @property
    def partition(self) -> Hashable:
        """The spec and the values. Floats compare by bits: NaN equals NaN, -0.0 is not 0.0."""
        values = self.data.partition
        return self.data.spec_id, *(_comparable(values[place]) for place in range(len(values)))

    def json(self, types: PartitionTypes) -> bytes:
        """Return a content file of the REST API, without column statistics, which are optional.

        `types` are those of the partition fields of each spec.
        """
        if self._json is None:
            self._json = json.dumps(self._to_dict(types), separators=(",", ":")).encode()
        return self._json

    def _to_dict(self, types: PartitionTypes) -> dict[str, Any]:
        data = self.data
        kinds = types.get(data.spec_id or 0, ())
        members: dict[str, Any] = {
            "content": _CONTENT[int(data.content)],
            "file-path": data.file_path,
            "file-format": data.file_format.value.lower(),
            "spec-id": data.spec_id or 0,
            "partition": [
                None
                if kind is None or data.partition[place] is None
                # singledispatch: on the type, then the value
                else to_json(kind, data.partition[place])
                for place, kind in enumerate(kinds)
            ],
            "file-size-in-bytes": data.file_size_in_bytes,
            "record-count": data.record_count,
            "split-offsets": data.split_offsets,
            "sort-order-id": data.sort_order_id,
            "first-row-id": self.first_row,
            "key-metadata": None if data.key_metadata is None else data.key_metadata.hex(),
        }
        if data.content != DataFileContent.DATA:
            members["equality-ids"] = data.equality_ids
            members["referenced-data-file"] = _of(data, "referenced_data_file")
            members["content-offset"] = _of(data, "content_offset")
            members["content-size-in-bytes"] = _of(data, "content_size_in_bytes")
        return {name: value for name, value in members.items() if value is not None}


def _comparable(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return struct.pack("<d", math.nan if math.isnan(value) else value)


def _of(data: DataFile, name: str) -> Any:
    place = _PLACES[name]
    return data[place] if len(data) > place else None


class _Deletes:
    """The delete files of a snapshot; finds those that apply to a data file.

    See "Scan Planning" in Iceberg's specification. A deletion vector applies by path, and replaces
    position deletes. Position deletes apply by path or partition, if their sequence number is not
    lower. Equality deletes apply by partition, or everywhere if their spec has none, if their
    sequence number is higher.
    """

    def __init__(self, files: Sequence[File], unpartitioned: frozenset[int]) -> None:
        self._vectors: dict[str, list[File]] = defaultdict(list)
        self._by_path: dict[str, list[File]] = defaultdict(list)
        self._by_partition: dict[Hashable, list[File]] = defaultdict(list)
        self._equality: dict[Hashable, list[File]] = defaultdict(list)
        self._everywhere: list[File] = []
        self.count = len(files)
        for file in files:
            data = file.data
            if data.content == DataFileContent.EQUALITY_DELETES:
                if data.spec_id in unpartitioned:
                    self._everywhere.append(file)
                else:
                    self._equality[file.partition].append(file)
            elif data.file_format == FileFormat.PUFFIN:
                self._vectors[_of(data, "referenced_data_file")].append(file)
            elif path := _of(data, "referenced_data_file") or _one_path(data):
                self._by_path[path].append(file)
            else:
                self._by_partition[file.partition].append(file)

    def of(self, file: File) -> Iterator[File]:
        path = file.data.file_path
        placed = self._vectors.get(path) or (
            *self._by_path.get(path, ()),
            *self._by_partition.get(file.partition, ()),
        )
        yield from (d for d in placed if d.sequence >= file.sequence)
        for valued in (self._everywhere, self._equality.get(file.partition, ())):
            yield from (d for d in valued if d.sequence > file.sequence)


def _one_path(data: DataFile) -> str | None:
    """Return the data file of position deletes if their bounds have a single path, else None."""
    low, high = (bounds.get(_PATH) for bounds in (data.lower_bounds or {}, data.upper_bounds or {}))
    return low.decode() if low is not None and low == high else None


@dataclass(eq=False, slots=True)
class Files:
    """The live files of a snapshot.

    `group` has the number of each data file's partition; `groups` has one file of each partition.
    """

    data: Sequence[File]
    deletes: _Deletes
    group: Ordinals
    groups: Sequence[File]
    known: tuple[Hashable, Ordinals] | None = field(default=None)
    specs: Mapping[int, Ordinals] = field(init=False)
    """The numbers of the partitions of each spec."""
    _columns: dict[tuple[int, int], PartitionColumn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = np.array([file.data.spec_id or 0 for file in self.groups], np.int64)
        self.specs = {int(id): np.flatnonzero(ids == id) for id in np.unique(ids)}

    def __len__(self) -> int:
        return len(self.data)

    def column(self, spec: int, position: int) -> PartitionColumn:
        """Return the values of a partition field, for the partitions in `specs`.

        Raises TypeError for values without an order.
        """
        held = self._columns.get((spec, position))
        if held is None:
            records = (self.groups[number].data.partition for number in self.specs[spec].tolist())
            held = PartitionColumn.of(record[position] for record in records)
            self._columns[spec, position] = held
        return held


_Held = TypeVar("_Held", bound="Files | Sequence[File]")


class _Recent(Generic[_Held]):
    """The most recently used items, with at most `most` files in total, but at least one item."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[Hashable, _Held] = OrderedDict()

    def get(self, key: Hashable) -> _Held | None:
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
        return held

    def put(self, key: Hashable, held: _Held) -> None:
        self._held[key] = held
        total = sum(map(_weight, self._held.values()))
        while total > self._most and len(self._held) > 1:
            total -= _weight(self._held.popitem(last=False)[1])


class Entries:
    """Caches the files of recently used snapshots, at most `most` files in total."""

    def __init__(self, read: Read, most: int) -> None:
        self._read_files = read
        self._manifests = _Recent[Sequence[File]](most)
        self._snapshots = _Recent[Files](most)

    def files(self, metadata: TableMetadata, snapshot: Snapshot) -> Files:
        """Return the files of a snapshot.

        Raises TableError if a manifest cannot be read, PermissionError and Denied if the caller is
        not allowed to read it.
        """
        key = snapshot.snapshot_id, snapshot.manifest_list
        held = self._snapshots.get(key)
        if held is not None:
            return held
        try:
            files = self._read(metadata, snapshot)
        except (PermissionError, Denied, MemoryError):
            raise
        except Exception as error:  # PyIceberg raises many types of errors
            manifests = f"the manifests of snapshot {snapshot.snapshot_id}"
            raise TableError(f"{manifests} cannot be read: {first_line(error)}") from error
        self._snapshots.put(key, files)
        return files

    def _read(self, metadata: TableMetadata, snapshot: Snapshot) -> Files:
        (listed,) = self._read_files([snapshot.manifest_list])
        parts = self._parts(_manifests(listed))
        data: list[File] = []
        deletes: list[File] = []
        for part in parts:
            for file in part:
                (data if file.data.content == _DATA else deletes).append(file)
        numbers: dict[Hashable, int] = {}
        group = [numbers.setdefault(file.partition, len(numbers)) for file in data]
        groups = {number: file for file, number in zip(data, group, strict=True)}
        whole = frozenset(
            spec.spec_id
            for spec in metadata.partition_specs
            if all(isinstance(part.transform, VoidTransform) for part in spec.fields)
        )
        return Files(
            data,
            _Deletes(deletes, whole),
            np.array(group, np.int64),
            [groups[number] for number in range(len(numbers))],
        )

    def _parts(self, manifests: Sequence[ManifestFile]) -> list[Sequence[File]]:
        keys = [(m.manifest_path, m.manifest_length) for m in manifests]
        parts = [self._manifests.get(key) for key in keys]
        missing = [place for place, part in enumerate(parts) if part is None]
        contents = self._read_files([manifests[place].manifest_path for place in missing])
        for place, content in zip(missing, contents, strict=True):
            parts[place] = read = list(_files(manifests[place], content))
            self._manifests.put(keys[place], read)
        return [part for part in parts if part is not None]


_DATA = DataFileContent.DATA


def _weight(held: Files | Sequence[File]) -> int:
    deletes = held.deletes.count if isinstance(held, Files) else 0
    return 1 + len(held) + deletes


def _manifests(content: bytes) -> list[ManifestFile]:
    return list(
        read_records(
            content,
            MANIFEST_LIST_FILE_SCHEMAS[3],
            {-1: ManifestFile, 508: PartitionFieldSummary},
            {517: ManifestContent},
        )
    )


def _files(manifest: ManifestFile, content: bytes) -> Iterator[File]:
    """Yield the live files of a manifest, with the values that they inherit from it."""
    names = [f.name for f in MANIFEST_LIST_FILE_SCHEMAS[3].fields]
    place = names.index("first_row_id")
    row = manifest[place] if len(manifest) > place else None
    entries: Iterator[ManifestEntry] = read_records(
        content,
        MANIFEST_ENTRY_SCHEMAS[3],
        {-1: ManifestEntry, 2: DataFile},
        {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    )
    for entry in entries:
        if entry.status == ManifestEntryStatus.DELETED:
            continue
        data, sequence = entry.data_file, entry.sequence_number
        data.spec_id = manifest.partition_spec_id
        data[_PLACES["column_sizes"]] = None  # no plan needs them
        if sequence is None:
            sequence = manifest.sequence_number
        first = _of(data, "first_row_id")
        if first is None and row is not None and data.content == _DATA:
            first, row = row, row + data.record_count
        yield File(data, sequence or 0, first)


def partition_types(metadata: TableMetadata) -> PartitionTypes:
    """Return the types of the partition fields of a table's specs."""
    schemas = [metadata.schema(), *reversed(metadata.schemas)]
    types: dict[int, list[PrimitiveType | None]] = {}
    for spec in metadata.partition_specs:
        sources = [
            next((s.find_type(f.source_id) for s in schemas if f.source_id in s.field_ids), None)
            for f in spec.fields
        ]
        types[spec.spec_id] = [
            None if source is None else _primitive(f.transform.result_type(source))
            for f, source in zip(spec.fields, sources, strict=True)
        ]
    return types


def _primitive(type: IcebergType) -> PrimitiveType | None:
    return type if isinstance(type, PrimitiveType) else None
