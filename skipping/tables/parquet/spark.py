"""Read plain Parquet tables in Spark: folders with files and without a log, by name or by path.

Only size and modification time show that a file was replaced, so both belong to its identity. Each
call makes Spark list the files again, because the session's cached list may be stale.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from providers.errors import DefinitionError, TableError, first_line
from skipping.model.definition import TableId
from skipping.tables import FILES, Columns
from skipping.tables.computed import Computing
from skipping.tables.digest import digest_of
from skipping.tables.paths import resolve_path
from skipping.tables.spark_schema import leaves, translate_errors
from skipping.tables.spark_where import spark_condition

__all__ = ["ParquetTable"]


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """A plain Parquet table by its root in Hadoop's spelling (`file:/tmp/x y`), and its name.

    A version is a digest of the list of files. Versions have no order: they only differ if the
    files do. Only the newest version can be read, and the last result of `version`.
    """

    spark: SparkSession
    root: str
    name: str
    _listed: dict[int, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    has_log: ClassVar[bool] = False

    @property
    def id(self) -> TableId:
        """The root. A new table at the same root has the same identity, but other files."""
        return TableId("parquet", "", self.root)

    def version(self) -> int:
        """Return a digest of paths, sizes and times; raise TableError if the table is gone."""
        files = self._list()
        version = digest_of(files)
        self._listed.clear()
        self._listed[version] = files
        return version

    def columns(self) -> Columns:
        """Return the columns in the catalog, or those that Spark infers from the files.

        A partition column never has the identity of a column in the files. Depending on the path
        that Spark reads, one name can be the partition column or the column in the files.
        """
        with translate_errors(self.name):
            relation = self._relation()
            schema = StructType.fromJson(json.loads(relation.schema().json()))
            names = list(relation.partitionSchema().fieldNames())
        found = leaves(schema, names)
        named = (replace(c, identity=f"/{c.identity}") if c.partition else c for c in found)
        return Columns(named, Computing(self.spark))

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """Return the files (FILES); with `where` only those with a matching row.

        A folder has no metadata with statistics, so `where` runs a Spark job, which prunes
        partitions and row groups. Raises TableError for an older version, DefinitionError for a
        condition that is not valid on this table.
        """
        files = self._listed.get(version) if version is not None else None
        if files is None:
            files = self._list()
            if version is not None and digest_of(files) != version:
                raise TableError(f"{self.name} has no log: its older files cannot be listed")
        return files if where is None else files.filter(self._matching(files["path"], where))

    def changes(self, since: int, until: int) -> pa.Table | None:
        """Return None unless the versions are equal: a folder has no log."""
        return FILES.empty_table() if since == until else None

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Return for each path whether the file exists now: no older version can be read."""
        return pc.is_in(paths, value_set=self._list()["path"].combine_chunks())

    def _list(self) -> pa.Table:
        with translate_errors(self.name):
            relation = self._relation()
            types = StructType.fromJson(json.loads(relation.partitionSchema().json()))
            # Numbers instead of names, which could be those of columns of the listing.
            numbered = [_rename_field(f.jsonValue(), f"_{i}") for i, f in enumerate(types)]
            values = [
                # The timestamp as a number: its text depends on the session's time zone.
                F.expr(f"unix_micros(_{i})" if f.dataType.typeName() == "timestamp" else f"_{i}")
                for i, f in enumerate(types)
            ]
            listed = (
                self._listing(relation, {"type": "struct", "fields": numbered})
                .select(
                    "path",
                    "_metadata.file_size",
                    F.unix_millis("_metadata.file_modification_time").alias("stamp"),
                    *(v.cast("string").alias(f"_{i}") for i, v in enumerate(values)),
                )
                .coalesce(self.spark.sparkContext.defaultParallelism)
                .toArrow()
            )
        identities = [f"/{name}" for name in Columns(leaves(types, types.names))]
        rows = zip(*(listed[f"_{i}"].to_pylist() for i in range(len(types))), strict=True)
        partition = [list(zip(identities, row, strict=True)) for row in rows] or [[]] * len(listed)
        files = pa.table(
            [
                listed["path"].cast(pa.string()),
                listed["file_size"],
                listed["stamp"],
                pa.array(partition, FILES.field("partition").type),
                pa.repeat("parquet", len(listed)),
            ],
            schema=FILES,
        )
        return _distinct(files.sort_by([("path", "ascending")]))

    def _listing(self, relation: Any, partition: dict[str, Any]) -> DataFrame:
        """List one row for each file: Spark reads the relation by a format that opens no file."""
        jvm: Any = self.spark._jvm
        sources = jvm.org.apache.spark.sql.execution.datasources
        binary = sources.binaryfile.BinaryFileFormat
        listed = relation.copy(
            relation.location(),
            jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(partition)),
            binary.schema(),
            jvm.scala.Option.empty(),
            binary(),
            # A file may be deleted while Spark lists.
            relation.options().updated("ignoreMissingFiles", "true"),
            relation.sparkSession(),
        )
        return self._frame(listed)

    def _matching(self, paths: pa.ChunkedArray, where: str) -> pa.Array:
        with translate_errors(self.name):
            try:
                found = self._frame(self._relation()).where(spark_condition(where))
            except AnalysisException as error:
                raise DefinitionError(f"WHERE {where}: {first_line(error)}") from error
            matching = found.select("_metadata.file_path").distinct().toArrow()
        kept = matching["file_path"].cast(pa.string()).combine_chunks()
        return pc.is_in(paths, value_set=resolve_path("", kept))

    def _frame(self, relation: Any) -> DataFrame:
        return DataFrame(self.spark._jsparkSession.baseRelationToDataFrame(relation), self.spark)

    def _relation(self) -> Any:
        """Return what Spark would read now, without the session's cached file list."""
        jvm: Any = self.spark._jvm
        leaf = self.spark.table(self.name)._jdf.queryExecution().analyzed().collectLeaves().apply(0)
        relation, catalog = leaf.relation(), leaf.catalogTable()
        if catalog.isDefined():
            table = catalog.get()
            location = table.storage().locationUri().get()
            catalog_utils = jvm.org.apache.spark.sql.catalyst.catalog.CatalogUtils
            options = table.storage().properties()
            options = options.updated("path", catalog_utils.URIToString(location))
            relation = jvm.org.apache.spark.sql.execution.datasources.DataSource(
                self.spark._jsparkSession,
                "parquet",
                jvm.PythonUtils.toSeq([]),
                jvm.scala.Some(table.schema()),
                table.partitionColumnNames(),
                table.bucketSpec(),
                options,
                catalog,
            ).resolveRelation(False, True)
        if str(relation.location().rootPaths().apply(0).toString()) != self.root:
            raise TableError(f"table {self.name} is gone from {self.root}")
        return relation


def _rename_field(field: dict[str, Any], name: str) -> dict[str, Any]:
    """Rename a field of a JSON schema, and drop its metadata."""
    return {**field, "name": name, "metadata": {}}


def _distinct(files: pa.Table) -> pa.Table:
    """Keep each path once: a folder may be two partitions, and queries compare values again."""
    paths = files["path"].to_pylist()
    first = [i for i, path in enumerate(paths) if i == 0 or paths[i - 1] != path]
    return files.take(pa.array(first, pa.int64())).combine_chunks()
