"""The files of a table's snapshots, kept in memory between plans.

Reading manifests is nearly all of what a plan costs, so what was read of a manifest is kept, and of
a snapshot the list of its files. What is kept is found only by who names the same table of the same
catalog, with its UUID, read from the same storage: a table of another name cannot bring in files,
or see them, by having a manifest's path in its metadata.

Manifests are read as version 3 has them, which PyIceberg's own planner does not: without it nothing
tells which deletion vector in a file is meant, and which row ids a file has.
"""

from __future__ import annotations

import json
import math
import struct
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pyiceberg.avro.file import AvroFile
from pyiceberg.conversions import to_json
from pyiceberg.io import FileIO
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
from skipping.catalog.partitions import PartitionColumn
from skipping.stores import Identity
from skipping.stores.single_flight import SingleFlight

__all__ = ["Entries", "File", "Files", "Ordinals", "PartitionTypes", "partition_types"]

_AT_ONCE = 8
"""Manifests of one snapshot that are read at a time."""

_PATH = 2147483546
"""The field id of `file_path` in files of position deletes."""

_CONTENT = ("data", "position-deletes", "equality-deletes")
_PLACES = {named.name: place for place, named in enumerate(DATA_FILE_TYPE[3].fields)}

Ordinals: TypeAlias = npt.NDArray[np.int64]
PartitionTypes: TypeAlias = Mapping[int, Sequence[PrimitiveType | None]]
"""The types of the partition fields of each spec; None where the column is gone."""


@dataclass(eq=False, slots=True)
class File:
    """A data file or a file of deletes, with what its manifest says of it."""

    data: DataFile
    sequence: int
    first_row: int | None = None
    _json: bytes | None = None

    @property
    def identity(self) -> Identity:
        """Path, size and number of records: what an index knows it by."""
        return self.data.file_path, self.data.file_size_in_bytes, self.data.record_count

    @property
    def partition(self) -> Hashable:
        """The spec and the values; of floats the bits, by which NaN is NaN and -0.0 no 0.0."""
        values = self.data.partition
        return self.data.spec_id, *(_comparable(values[place]) for place in range(len(values)))

    def json(self, types: PartitionTypes) -> bytes:
        """A content file of the REST API; without column statistics, which no client must have.

        `types` are those of the partition fields of each spec.
        """
        if self._json is None:
            self._json = json.dumps(self._described(types), separators=(",", ":")).encode()
        return self._json

    def _described(self, types: PartitionTypes) -> dict[str, Any]:
        data = self.data
        kinds = types.get(data.spec_id or 0, ())
        said: dict[str, Any] = {
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
            said["equality-ids"] = data.equality_ids
            said["referenced-data-file"] = _of(data, "referenced_data_file")
            said["content-offset"] = _of(data, "content_offset")
            said["content-size-in-bytes"] = _of(data, "content_size_in_bytes")
        return {name: value for name, value in said.items() if value is not None}


def _comparable(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return struct.pack("<d", math.nan if math.isnan(value) else value)


def _of(data: DataFile, name: str) -> Any:
    place = _PLACES[name]
    return data._data[place] if len(data._data) > place else None


class _Deletes:
    """The files of deletes of a snapshot, and which of them apply to a data file.

    By Iceberg's specification, "Scan Planning": vectors by path, then alone; position deletes by
    path or partition, of the same sequence number or a later one; equality deletes by partition, or
    of a spec without one everywhere, of a later one.
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
        """Those that apply to a data file."""
        path = file.data.file_path
        placed = self._vectors.get(path) or (
            *self._by_path.get(path, ()),
            *self._by_partition.get(file.partition, ()),
        )
        yield from (d for d in placed if d.sequence >= file.sequence)
        for valued in (self._everywhere, self._equality.get(file.partition, ())):
            yield from (d for d in valued if d.sequence > file.sequence)


def _one_path(data: DataFile) -> str | None:
    """The data file that position deletes are of, if their bounds say that it is one."""
    low, high = (bounds.get(_PATH) for bounds in (data.lower_bounds or {}, data.upper_bounds or {}))
    return low.decode() if low is not None and low == high else None


@dataclass(eq=False, slots=True)
class Files:
    """The live files of a snapshot.

    `group` numbers the partition of each data file, `groups` has one file of each.
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
        """The values of a field of a spec, of the partitions that `specs` has for it.

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
    """Those used last, `most` files in all, but one at least; for several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, _Held] = OrderedDict()

    def get(self, key: Hashable) -> _Held | None:
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
            return held

    def put(self, key: Hashable, held: _Held) -> None:
        with self._lock:
            self._held[key] = held
            total = sum(map(_weight, self._held.values()))
            while total > self._most and len(self._held) > 1:
                total -= _weight(self._held.popitem(last=False)[1])


class Entries:
    """Snapshots' files by table, the last used; `most` files in all."""

    def __init__(self, most: int) -> None:
        self._manifests = _Recent[Sequence[File]](most)
        self._snapshots = _Recent[Files](most)
        self._loading = SingleFlight["Files | Exception"]()

    def files(
        self, table: Hashable, metadata: TableMetadata, snapshot: Snapshot, io: FileIO, wait: float
    ) -> Files:
        """The files of a snapshot; who asks meanwhile waits for the same reading.

        `table` is what tells the table apart from all others, wherever they are kept. Raises
        TableError if a manifest cannot be read, or not in `wait` seconds; PermissionError for one
        that the storage does not let be read.
        """
        key = table, snapshot.snapshot_id, snapshot.manifest_list
        held = self._snapshots.get(key)
        if held is not None:
            return held

        def work() -> Files | Exception:
            try:
                return self._read(key, table, metadata, snapshot, io)
            except Exception as error:
                return error

        read = self._loading.result(key, work, timeout=wait)
        if isinstance(read, Exception):  # of whoever asked first, whose credentials may be worse
            mine = key, threading.get_ident()
            read = self._loading.result(mine, work, timeout=wait)
        if isinstance(read, Files):
            return read
        manifests = f"the manifests of snapshot {snapshot.snapshot_id}"
        if read is None:
            raise TableError(f"{manifests} took too long")
        if isinstance(read, PermissionError):
            raise read
        raise TableError(f"{manifests} cannot be read: {first_line(read)}") from read

    def _read(
        self,
        key: Hashable,
        table: Hashable,
        metadata: TableMetadata,
        snapshot: Snapshot,
        io: FileIO,
    ) -> Files:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            manifests = _manifests(io, snapshot)
            parts = list(pool.map(lambda m: self._manifest(table, m, io), manifests))
        data = [file for part in parts for file in part if file.data.content == _DATA]
        deletes = [file for part in parts for file in part if file.data.content != _DATA]
        numbers: dict[Hashable, int] = {}
        group = [numbers.setdefault(file.partition, len(numbers)) for file in data]
        groups = {number: file for file, number in zip(data, group, strict=True)}
        whole = frozenset(
            spec.spec_id
            for spec in metadata.partition_specs
            if all(isinstance(part.transform, VoidTransform) for part in spec.fields)
        )
        files = Files(
            data,
            _Deletes(deletes, whole),
            np.array(group, np.int64),
            [groups[number] for number in range(len(numbers))],
        )
        self._snapshots.put(key, files)
        return files

    def _manifest(self, table: Hashable, manifest: ManifestFile, io: FileIO) -> Sequence[File]:
        key = table, manifest.manifest_path, manifest.manifest_length
        held = self._manifests.get(key)
        if held is None:
            held = list(_files(manifest, io))
            self._manifests.put(key, held)
        return held


_DATA = DataFileContent.DATA


def _weight(held: Files | Sequence[File]) -> int:
    deletes = held.deletes.count if isinstance(held, Files) else 0
    return 1 + len(held) + deletes


def _manifests(io: FileIO, snapshot: Snapshot) -> Sequence[ManifestFile]:
    if not snapshot.manifest_list:  # v1 may have them in the metadata
        return list(snapshot.manifests(io))
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def _files(manifest: ManifestFile, io: FileIO) -> Iterator[File]:
    """The live files of a manifest, with what they have from it."""
    names = [f.name for f in MANIFEST_LIST_FILE_SCHEMAS[3].fields]
    place = names.index("first_row_id")
    row = manifest._data[place] if len(manifest._data) > place else None
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        for entry in reader:
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            data, sequence = entry.data_file, entry.sequence_number
            data.spec_id = manifest.partition_spec_id
            if sequence is None:
                sequence = manifest.sequence_number
            first = _of(data, "first_row_id")
            if first is None and row is not None and data.content == _DATA:
                first, row = row, row + data.record_count
            yield File(data, sequence or 0, first)


def partition_types(metadata: TableMetadata) -> PartitionTypes:
    """Those of a table's specs."""
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
