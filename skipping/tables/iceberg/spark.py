"""Read Iceberg tables through the session's own catalogs and credentials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from providers.errors import DefinitionError, TableError, first_line
from skipping.model.definition import TableId
from skipping.parser.literals import quote
from skipping.spark_api import collect_arrow
from skipping.tables import FILES, Columns, distinct_files
from skipping.tables.computed import Computing
from skipping.tables.iceberg.files import data_files, listed_table
from skipping.tables.iceberg.metadata import Metadata, Snapshot
from skipping.tables.spark_schema import translate_errors
from skipping.tables.spark_where import spark_condition

_ADDED = 1_000
"""Above this number of new files, compare the live files instead of listing each one."""


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Iceberg table by its full name, in the session's catalog of that name.

    Each call refreshes the session's cached table, because another engine may have committed.
    """

    spark: SparkSession
    name: str

    has_log: ClassVar[bool] = True

    @property
    def id(self) -> TableId:
        """The UUID and the location in the metadata."""
        return self._load()[1].id

    def version(self) -> int:
        """Return the last sequence number; raise TableError if the table is gone."""
        return self._load()[1].version

    def columns(self) -> Columns:
        """Return the columns of the current schema."""
        return Columns(self._load()[1].columns().values(), Computing(self.spark))

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """Return files of all branches and tags; with `where`, those that Iceberg would read."""
        _, metadata = self._load()
        heads = metadata.heads(metadata.version if version is None else version)
        if heads is None:
            raise TableError(f"{self.name} has no version {version}, or no longer has it")
        if where is not None:
            self._require_condition(where)
        with translate_errors(self.name):
            listed = [self._list_files(metadata, head, where) for head in heads]
        return distinct_files(pa.concat_tables([FILES.empty_table(), *listed]), "path")

    def changes(self, since: int, until: int) -> pa.Table | None:
        """See `Table`. None if a snapshot has expired, in v1 tables, and above _ADDED new files."""
        table, metadata = self._load()
        snapshots = metadata.between(since, until)
        if snapshots is None or sum(s.added for s in snapshots) > _ADDED:
            return None
        with translate_errors(self.name):
            return distinct_files(self._list_additions(table, metadata, snapshots), "path")

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Return for each path whether an unexpired snapshot has it."""
        self._load()
        with translate_errors(self.name):
            known = self.spark.table(f"{self.name}.all_data_files").select("file_path").distinct()
            return pc.is_in(
                paths, value_set=collect_arrow(known)[0].cast(pa.string()).combine_chunks()
            )

    def _load(self) -> tuple[Any, Metadata]:
        jvm: Any = self.spark._jvm
        session = self.spark._jsparkSession
        with translate_errors(self.name):
            spark3 = jvm.org.apache.iceberg.spark.Spark3Util
            table = spark3.loadIcebergTable(session, self.name)
            try:
                # Refresh the session's cached table. A second object that replaced it during a
                # commit to the first one would hide that commit from the session.
                table.refresh()
            except (PySparkException, Py4JError):  # the name is now another table's, or unused
                place = spark3.catalogAndIdentifier(session, self.name)
                place.catalog().invalidateTable(place.identifier())
                table = spark3.loadIcebergTable(session, self.name)
            current = table.operations().current()
            return table, Metadata(str(jvm.org.apache.iceberg.TableMetadataParser.toJson(current)))

    def _list_files(self, metadata: Metadata, snapshot: int, where: str | None) -> pa.Table:
        frame = self.spark.sql(f"SELECT * FROM {self.name}.data_files VERSION AS OF {snapshot}")
        struct = next((f.dataType for f in frame.schema if f.name == "partition"), StructType())
        assert isinstance(struct, StructType), "a partition has fields"
        values = {id: name for id, name in metadata.values.items() if name in struct.names}
        listing = frame.select(
            F.col("file_path").alias("path"),
            F.col("file_size_in_bytes").alias("size"),
            F.col("record_count").alias("stamp"),
            F.col("spec_id").alias("spec"),
            F.col("file_format").alias("format"),
            *(F.col(f"partition.{quote(name)}").alias(f"_{id}") for id, name in values.items()),
        )
        listed = collect_arrow(listing)
        files = data_files(listed, {id: listed[f"_{id}"] for id in values}, metadata)
        matching = None if where is None else self._matching(snapshot, where)
        if matching is None:
            return files
        return files.filter(pc.is_in(files["path"], value_set=matching))

    def _list_additions(
        self, table: Any, metadata: Metadata, snapshots: Sequence[Snapshot]
    ) -> pa.Table:
        jvm: Any = self.spark._jvm
        anything = jvm.java.lang.Class.forName("java.lang.Object")
        rows: list[tuple[Any, ...]] = []
        values: dict[int, list[Any]] = {id: [] for id in metadata.values}
        for snapshot in snapshots:
            for file in table.snapshot(snapshot.id).addedDataFiles(table.io()):
                spec, partition = int(file.specId()), file.partition()
                size, records = int(file.fileSizeInBytes()), int(file.recordCount())
                format = str(file.format().toString())
                rows.append((str(file.location()), size, records, spec, format))
                places = metadata.places_of(spec)
                for id, found in values.items():
                    found.append(partition.get(places[id], anything) if id in places else None)
        return data_files(listed_table(rows), values, metadata)

    def _require_condition(self, where: str) -> None:
        try:
            self.spark.table(self.name).where(spark_condition(where))
        except AnalysisException as error:
            raise DefinitionError(f"WHERE {where}: {first_line(error)}") from error

    def _matching(self, head: int, where: str) -> pa.Array | None:
        at = f"SELECT * FROM {self.name} VERSION AS OF {head}"
        try:
            found = self.spark.sql(at).where(spark_condition(where))
            plan: Any = found._jdf.queryExecution().optimizedPlan()
        except AnalysisException:
            return None  # a tag whose schema lacks the columns
        leaf = plan.collectLeaves().apply(0)
        if leaf.getClass().getSimpleName() == "LocalRelation":
            return pa.array([], pa.string())
        if leaf.getClass().getSimpleName() != "DataSourceV2ScanRelation":
            return None
        jvm: Any = self.spark._jvm
        groups = [part.taskGroup() for part in leaf.scan().toBatch().planInputPartitions()]
        # CopyResult, because py4j iterates over lists only.
        tasks = [task for group in groups for task in jvm.java.util.ArrayList(group.tasks())]
        paths = {str(task.file().location()) for task in tasks}
        return pa.array(sorted(paths), pa.string())
