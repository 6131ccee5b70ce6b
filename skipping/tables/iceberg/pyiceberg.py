"""Read Iceberg tables with PyIceberg, without a JVM."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyiceberg import expressions as iceberg
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as PyIceberg
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.utils.config import Config

from providers.errors import DefinitionError, TableError, first_line
from skipping.model.definition import TableId
from skipping.model.identifiers import hide_passwords, sql_name
from skipping.parser.condition import Compared, Constant, Operand
from skipping.tables import Columns, distinct_files
from skipping.tables.filesystem import locate
from skipping.tables.iceberg.files import data_files, listed_table
from skipping.tables.iceberg.metadata import Metadata
from skipping.tables.where import WhereRenderer

_AT_ONCE = 16
"""Manifests to read concurrently."""


def configured_catalogs() -> frozenset[str]:
    """Return the names of the catalogs in PyIceberg's configuration, in lower case."""
    return frozenset(name.lower() for name in Config().get_known_catalogs())


def open_iceberg(catalog: str, identifier: tuple[str, ...]) -> PyIceberg:
    """Load a table of a configured catalog; raise TableError if that fails."""
    try:
        properties = Config().get_catalog_config(catalog) or {}
        return load_catalog(catalog, **properties).load_table(identifier)  # type: ignore[arg-type]
    except Exception as error:  # each catalog's client has errors of its own
        name, reason = sql_name([catalog, *identifier]), hide_passwords(first_line(error))
        raise TableError(f"cannot open table {name} with PyIceberg: {reason}") from error


def parse_metadata(metadata: TableMetadata) -> Metadata:
    """Parse the metadata that PyIceberg loaded, as from its file.

    `TableMetadata.model_dump_json` rejects format version 3, because PyIceberg cannot write it.
    """
    return Metadata(IcebergBaseModel.model_dump_json(metadata))


@dataclass(frozen=True, slots=True)
class PyIcebergTable:
    """A table of a PyIceberg catalog, loaded again for each call; the given object does not change.

    Its name begins with the catalog's, which may have another name in Spark; both share the index.
    """

    table: PyIceberg

    has_log: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Catalog, namespaces and table."""
        return sql_name([str(self.table.catalog.name), *self.table.name()])

    @property
    def id(self) -> TableId:
        """The UUID and the location in the metadata."""
        return parse_metadata(self._newest().metadata).id

    def version(self) -> int:
        """Return the last sequence number; raise TableError if the table is gone."""
        return parse_metadata(self._newest().metadata).version

    def columns(self) -> Columns:
        """Return the columns of the current schema."""
        return parse_metadata(self._newest().metadata).columns()

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """Return files of all branches and tags; with `where`, those that PyIceberg would read."""
        table = self._newest()
        metadata = parse_metadata(table.metadata)
        heads = metadata.heads(metadata.version if version is None else version)
        if heads is None:
            raise TableError(f"{self.name} has no version {version}, or no longer has it")
        files = _files(table, metadata, heads, _is_live)
        if where is None:
            return files
        matching = pa.array(_matching(table, heads, where), pa.string())
        return files.filter(pc.is_in(files["path"], value_set=matching))

    def changes(self, since: int, until: int) -> pa.Table | None:
        """See `Table`. None if a snapshot has expired, or if the table has format version 1."""
        table = self._newest()
        metadata = parse_metadata(table.metadata)
        snapshots = metadata.between(since, until)
        if snapshots is None:
            return None
        ids = {snapshot.id for snapshot in snapshots}
        return _files(
            table,
            metadata,
            ids,
            lambda e: e.status == ManifestEntryStatus.ADDED and e.snapshot_id in ids,
            only=lambda manifest: manifest.added_snapshot_id in ids,
        )

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Return for each path whether an unexpired snapshot has it."""
        table = self._newest()
        metadata = parse_metadata(table.metadata)
        known = _files(table, metadata, metadata.snapshots, _is_live)
        return pc.is_in(paths, value_set=known["path"].combine_chunks())

    def locate(self, path: str) -> tuple[pafs.FileSystem, str]:
        """Return a path's file system, with the table's own credentials, and the path in it."""
        io = self.table.io
        if not isinstance(io, PyArrowFileIO) or not _is_remote(path):
            return locate(path)
        scheme, netloc, inner = io.parse_location(path, io.properties)
        return io.fs_by_scheme(scheme, netloc), inner

    def _newest(self) -> PyIceberg:
        if isinstance(self.table, StaticTable):
            return self.table
        try:
            return self.table.catalog.load_table(self.table.name())
        except NoSuchTableError as error:
            raise TableError(f"table {self.name} is gone: {error}") from error


def _is_remote(path: str) -> bool:
    return "://" in path and not path.startswith("file:")


def _is_live(entry: ManifestEntry) -> bool:
    return entry.status != ManifestEntryStatus.DELETED


def _files(
    table: PyIceberg,
    metadata: Metadata,
    snapshots: Iterable[int],
    wanted: Callable[[ManifestEntry], bool],
    *,
    only: Callable[[ManifestFile], bool] = lambda _: True,
) -> pa.Table:
    """Return the wanted entries of snapshots as FILES; read a manifest of several only once."""
    manifests = {m.manifest_path: m for m in _manifests(table, snapshots) if only(m)}

    def entries(manifest: ManifestFile) -> list[ManifestEntry]:
        return manifest.fetch_manifest_entry(table.io, discard_deleted=False)

    rows: list[tuple[Any, ...]] = []
    values: dict[int, list[Any]] = {id: [] for id in metadata.values}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for file in (
            e.data_file for es in pool.map(entries, manifests.values()) for e in es if wanted(e)
        ):
            size, records = file.file_size_in_bytes, file.record_count
            rows.append((file.file_path, size, records, file.spec_id, file.file_format.value))
            places = metadata.places_of(file.spec_id)
            for id, found in values.items():
                found.append(file.partition[places[id]] if id in places else None)
    return distinct_files(data_files(listed_table(rows), values, metadata), "path")


def _manifests(table: PyIceberg, snapshots: Iterable[int]) -> Iterator[ManifestFile]:
    for id in snapshots:
        snapshot = table.metadata.snapshot_by_id(id)
        for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
            if manifest.content == ManifestContent.DATA:
                yield manifest


def _matching(table: PyIceberg, heads: Iterable[int], where: str) -> set[str]:
    try:
        condition = _RENDERER.render(where)
        scans = [table.scan(condition, case_sensitive=False, snapshot_id=head) for head in heads]
        bind(table.schema(), condition, case_sensitive=False)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"WHERE {where}: {first_line(error)}") from error
    return {task.file.file_path for scan in scans for task in scan.plan_files()}


_any: Any = iceberg
"""PyIceberg's classes, which take more than their signatures say."""

_COMPARE = {
    "=": _any.EqualTo,
    "!=": _any.NotEqualTo,
    "<": _any.LessThan,
    "<=": _any.LessThanOrEqual,
    ">": _any.GreaterThan,
    ">=": _any.GreaterThanOrEqual,
}


def _compare(left: Operand, op: Compared, right: Operand) -> Any:
    if op == "<=>":
        raise DefinitionError(
            "without Spark, WHERE does not support <=> on an Iceberg table: use ="
        )
    return _COMPARE[op](_reference(left), _value(right))


def _like(operand: Operand, pattern: str, escape: str) -> Any:
    if not re.fullmatch(r"[^%_\\]*%", pattern):
        raise DefinitionError("without Spark, WHERE supports LIKE only with 'prefix%'")
    return _any.StartsWith(_reference(operand), pattern[:-1])


def _reference(operand: Operand) -> str:
    if isinstance(operand, Constant):
        raise DefinitionError("without Spark, WHERE compares columns with constants only")
    return ".".join(operand.parts)


def _value(operand: Operand) -> Any:
    if not isinstance(operand, Constant) or operand.value is None:
        raise DefinitionError("without Spark, WHERE compares columns with constants only")
    return operand.value  # PyIceberg parses the text of a typed constant as the column's type


_RENDERER: WhereRenderer[iceberg.BooleanExpression] = WhereRenderer(
    all_of=lambda operands: iceberg.And(*operands),
    any_of=lambda operands: iceberg.Or(*operands),
    negate=iceberg.Not,
    compare=_compare,
    is_in=lambda operand, values: _any.In(_reference(operand), [*map(_value, values)]),
    is_null=lambda operand: _any.IsNull(_reference(operand)),
    like=_like,
)
