"""Read plain Parquet tables in Spark: folders of files without a log, by name or by path.

Only size and modification time show that a file was replaced, so both belong to its identity. Each
call makes Spark list the files again, because the session's cached list may be stale.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from providers.errors import DefinitionError, TableError, first_line
from skipping.spark_api import collect_arrow, read_relation
from skipping.tables import Columns, distinct_files, files_table
from skipping.tables.computed import Computing
from skipping.tables.parquet.unlogged import UnloggedTable
from skipping.tables.paths import resolve_path
from skipping.tables.schema import leaves
from skipping.tables.spark_schema import translate_errors
from skipping.tables.spark_where import spark_condition


@dataclass(frozen=True, slots=True)
class ParquetTable(UnloggedTable):
    """A plain Parquet table by its root in Hadoop's form (`file:/tmp/x y`), and its name."""

    spark: SparkSession
    root: str
    name: str
    _listed: dict[int, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    def columns(self) -> Columns:
        """Return the columns in the catalog, or those that Spark infers from the files.

        A partition column never has the identity of a column in the files. Depending on the path
        that Spark reads, the same name can be a partition column or a column in the files.
        """
        with translate_errors(self.name):
            relation = self._relation()
            fields = json.loads(relation.schema().json())["fields"]
            names = list(relation.partitionSchema().fieldNames())
        found = leaves(fields, names)
        named = (replace(c, identity=f"/{c.identity}") if c.partition else c for c in found)
        return Columns(named, Computing(self.spark))

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """Return the files; with `where` those with a matching row, found by a Spark job."""
        files = self._files_at(version)
        return files if where is None else files.filter(self._matching(files["path"], where))

    def _list_files(self) -> pa.Table:
        with translate_errors(self.name):
            relation = self._relation()
            types = StructType.fromJson(json.loads(relation.partitionSchema().json()))
            # Numbers instead of names, because the listing could have columns of these names.
            numbered = [
                {**f.jsonValue(), "name": f"_{i}", "metadata": {}} for i, f in enumerate(types)
            ]
            values = [
                # The timestamp as a number: its text depends on the session's time zone.
                F.expr(f"unix_micros(_{i})" if f.dataType.typeName() == "timestamp" else f"_{i}")
                for i, f in enumerate(types)
            ]
            listing = (
                self._listing(relation, {"type": "struct", "fields": numbered})
                .select(
                    "path",
                    "_metadata.file_size",
                    F.unix_millis("_metadata.file_modification_time").alias("stamp"),
                    *(v.cast("string").alias(f"_{i}") for i, v in enumerate(values)),
                )
                .coalesce(self.spark.sparkContext.defaultParallelism)
            )
            listed = collect_arrow(listing)
        columns = Columns(leaves(types.jsonValue()["fields"], types.names))
        identities = [f"/{name}" for name in columns]
        rows = zip(*(listed[f"_{i}"].to_pylist() for i in range(len(types))), strict=True)
        partition = [list(zip(identities, row, strict=True)) for row in rows] or [[]] * len(listed)
        paths = listed["path"].cast(pa.string())
        files = files_table(paths, listed["file_size"], partition, stamps=listed["stamp"])
        # A folder may be two partitions; queries compare values again.
        return distinct_files(files.sort_by("path"), "path")

    def _listing(self, relation: Any, partition: dict[str, Any]) -> DataFrame:
        """List one row for each file: Spark reads the relation with a format that opens no file."""
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
            matching = collect_arrow(found.select("_metadata.file_path").distinct())
        kept = matching["file_path"].cast(pa.string()).combine_chunks()
        return pc.is_in(paths, value_set=resolve_path("", kept))

    def _frame(self, relation: Any) -> DataFrame:
        return DataFrame(self.spark._jsparkSession.baseRelationToDataFrame(relation), self.spark)

    def _relation(self) -> Any:
        jvm: Any = self.spark._jvm
        leaf = self.spark.table(self.name)._jdf.queryExecution().analyzed().collectLeaves().apply(0)
        relation, catalog = leaf.relation(), leaf.catalogTable()
        if catalog.isDefined():
            table = catalog.get()
            location = table.storage().locationUri().get()
            catalog_utils = jvm.org.apache.spark.sql.catalyst.catalog.CatalogUtils
            options = table.storage().properties()
            options = options.updated("path", catalog_utils.URIToString(location))
            relation = read_relation(
                jvm,
                self.spark._jsparkSession,
                "parquet",
                jvm.PythonUtils.toSeq([]),
                jvm.scala.Some(table.schema()),
                table.partitionColumnNames(),
                table.bucketSpec(),
                options,
                catalog,
            )
        if str(relation.location().rootPaths().apply(0).toString()) != self.root:
            raise TableError(f"table {self.name} is gone from {self.root}")
        return relation
