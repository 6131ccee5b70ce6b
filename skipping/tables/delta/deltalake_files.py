"""Read one version of a Delta table with delta-rs: its columns, its files, and their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from providers.errors import TableError
from skipping.parser.literals import join_name, split_parts
from skipping.tables import FILES, Columns, files_table
from skipping.tables.filesystem import Locate
from skipping.tables.partition_texts import partition_texts
from skipping.tables.paths import resolve_path
from skipping.tables.schema import Field, leaves, physical_name


def table_root(uri: str) -> str:
    """Return a table's root in Hadoop's form, given delta-rs' URL.

    >>> table_root("file:///tmp/a%20b/"), table_root("s3a://bucket/t/")
    ('file:/tmp/a b', 's3a://bucket/t')
    """
    return re.sub(r"\Afile://", "file:", unquote(uri).rstrip("/"))


@dataclass(frozen=True)
class LiveFiles:
    """One version of a table.

    `fields` are those of its schema; `mode` is its column mapping: none, name or id.
    """

    table: DeltaTable = field(repr=False)
    fields: tuple[Field, ...]
    partition: tuple[str, ...]
    mode: str

    @classmethod
    def of(cls, table: DeltaTable) -> LiveFiles:
        """Read the version that a table is at."""
        metadata = table.metadata()
        fields = json.loads(table.schema().to_json())["fields"]
        mode = metadata.configuration.get("delta.columnMapping.mode") or "none"
        return cls(table, tuple(fields), tuple(metadata.partition_columns), str(mode).lower())

    @cached_property
    def columns(self) -> Columns:
        """The leaf columns."""
        return Columns(leaves(self.fields, self.partition, mode=self.mode))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns with Arrow's types."""
        return pa.schema(self.table.schema().to_arrow())

    @property
    def root(self) -> str:
        """The root in Hadoop's form."""
        return table_root(self.table.table_uri)

    @cached_property
    def _actions(self) -> pa.Table:
        actions = pa.table(self.table.get_add_actions()).combine_chunks()
        paths = actions["path"].cast(pa.string())
        resolved = resolve_path(self.root, paths.combine_chunks()) if len(actions) else paths
        return actions.set_column(0, "path", resolved)

    def files(self) -> pa.Table:
        """Return the live files (FILES); partition values are keyed by the columns' identities."""
        actions = self._actions
        sizes = actions["size_bytes"].cast(pa.int64())
        return files_table(actions["path"], sizes, self._partition())

    def read_commits(self, commits: Iterable[bytes]) -> pa.Table:
        """Return the files (FILES) that commits add, each once: deletion vectors add files again.

        Partition values are the log's own texts. Raises ValueError, KeyError or TypeError for text
        that is not a commit.
        """
        actions = (json.loads(line) for commit in commits for line in commit.splitlines() if line)
        adds = {(a["path"], a["size"]): a for a in (x.get("add") for x in actions) if a is not None}
        if not adds:
            return FILES.empty_table()
        named = {c.physical.path[0]: c.logged_as for c in self.columns.values() if c.partition}
        partition = [
            [(named.get(k, k), v) for k, v in a["partitionValues"].items()] for a in adds.values()
        ]
        paths, sizes = zip(*adds, strict=True)
        return files_table(resolve_path(self.root, pa.array(paths, pa.string())), sizes, partition)

    def _partition(self) -> pa.Array:
        """Return partition values as the log's text, as far as delta-rs' typed values determine it.

        Values that lose information in delta-rs are left out, and so unknown: it reads empty text
        as null, unlike Spark, and a time without its zone.
        """
        pairs: list[list[tuple[str, str | None]]] = [[] for _ in range(len(self._actions))]
        for column in self.columns.values():
            if not column.partition or column.type in ("timestamp", "binary"):
                continue
            texts = partition_texts(self._partition_values(column.name))
            for of_file, text in zip(pairs, texts, strict=True):
                if text is not None or not column.type.startswith(("string", "varchar")):
                    of_file.append((column.logged_as, text))
        return pa.array(pairs, FILES.field("partition").type)

    def _partition_values(self, name: str) -> pa.ChunkedArray:
        return pc.struct_field(self._actions["partition"], split_parts(name))

    @cached_property
    def vectors(self) -> Mapping[str, pa.Array]:
        """For each file with a deletion vector, by path: for each row, whether it is live."""
        if "deletionVectors" not in (self.table.protocol().reader_features or ()):
            return {}
        found = pa.table(self.table.deletion_vectors())
        vectors = {
            table_root(uri): kept.values
            for uri, kept in zip(
                found["filepath"].to_pylist(), found["selection_vector"], strict=True
            )
        }
        unlisted = vectors.keys() - set(self._actions["path"].to_pylist())
        if unlisted or len(vectors) < len(found):
            raise TableError(
                f"delta-rs has deletion vectors of unknown files: {', '.join(unlisted)}"
            )
        return vectors

    def read(self, path: str, names: Sequence[str], locate: Locate) -> pa.Table:
        """Read top-level columns of a file by name, with the table's types, deleted rows included.

        Raises TableError for a column that cannot be read exactly.
        """
        fields = {f["name"]: f for f in self.fields}
        filesystem, inner = locate(path)
        with filesystem.open_input_file(inner) as source:
            # Spark's own unit: Arrow's default does not cover all years of an INT96.
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True)
            in_file = [name for name in names if name not in self.partition]
            stored = {name: self._find(file.schema_arrow, fields[name]) for name in in_file}
            wanted = sorted({name for name in stored.values() if name is not None})
            whole = file.read(columns=wanted, use_threads=False)
            rows = file.metadata.num_rows
        row = self._rows[path]
        columns = {}
        for name in names:
            type = self.arrow_schema.field(name).type
            if name in self.partition and pa.types.is_binary(type):
                # delta-rs returns the escapes in the log (\u0061) instead of the bytes.
                raise TableError(f"{name} is a partition column of bytes: select other columns")
            if name in self.partition:
                columns[name] = pa.repeat(
                    self._partition_values(join_name([name]))[row].cast(type), rows
                )
            elif (found := stored[name]) is not None:
                columns[name] = self._conform(whole[found].combine_chunks(), type, fields[name])
            elif "EXISTS_DEFAULT" in (fields[name].get("metadata") or {}):
                raise TableError(
                    f"{name} has a default in files without the column: select other columns"
                )
            else:
                columns[name] = pa.nulls(rows, type)
        return pa.table(columns, schema=pa.schema([self.arrow_schema.field(n) for n in names]))

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {path: row for row, path in enumerate(self._actions["path"].to_pylist())}

    def _find(self, stored: Iterable[pa.Field], field: Field) -> str | None:
        if self.mode == "id":
            return _by_id(list(stored), field)
        name = physical_name(field, self.mode)
        alike = [found.name for found in stored if found.name.lower() == name.lower()]
        if alike and alike != [name]:
            raise TableError(
                f"column {field['name']}: the file has {', '.join(alike)}, the table expects {name}"
            )
        return name if alike else None

    def _conform(self, array: pa.Array, type: pa.DataType, field: Field) -> pa.Array:
        written = field["type"]
        if not isinstance(written, Mapping) or written["type"] != "struct":
            refused = "variant" if written == "variant" else None
            if self.mode != "none" and '"struct"' in json.dumps(written):
                refused = "of structs in a list or map, in a table with column mapping"
            if refused:
                raise TableError(f"{field['name']} is {refused}: select other columns")
            return array.cast(type)
        children = []
        for inner, target in zip(written["fields"], type, strict=True):
            found = self._find(array.type, inner)
            if found is None:
                children.append(pa.nulls(len(array), target.type))
            else:
                child = pc.struct_field(array, [array.type.get_field_index(found)])
                children.append(self._conform(child, target.type, inner))
        return pa.StructArray.from_arrays(children, fields=list(type), mask=array.is_null())


def _by_id(stored: Sequence[pa.Field], field: Field) -> str | None:
    wanted = str(field["metadata"]["delta.columnMapping.id"]).encode()
    ids = {f.name: (f.metadata or {}).get(b"PARQUET:field_id") for f in stored}
    if not any(ids.values()):
        raise TableError(f"the file has no field ids, so {field['name']} cannot be found")
    return next((name for name, id in ids.items() if id == wanted), None)
