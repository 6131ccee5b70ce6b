"""Read Delta tables through the session's own DeltaLog: its catalog, credentials and cache."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import DefinitionError, TableError, first_line
from skipping.model.definition import TableId
from skipping.spark_api import collect_arrow
from skipping.tables import FILES, Columns, distinct_files, files_table
from skipping.tables.computed import Computing
from skipping.tables.paths import resolve_path
from skipping.tables.schema import leaves, with_generated_partitions
from skipping.tables.spark_schema import translate_errors
from skipping.tables.spark_where import spark_condition

_COMMITS = 1_000
"""Above this number of commits, compare the live files instead of reading each commit."""

_PREFIX = 32
"""Delta's default for the maximum length of a text bound in characters."""

_ADDED = "add struct<path: string, size: bigint, partitionValues: map<string, string>>"


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table by its root in Hadoop's form (`file:/tmp/x y`), and its name.

    Each call gets the log from Spark, which caches it. If a table was dropped and created again at
    the same path, it is the new table.
    """

    spark: SparkSession
    root: str
    name: str

    has_log: ClassVar[bool] = True

    @property
    def id(self) -> TableId:
        """The id in the metadata, with the root: copies of a folder share the id."""
        with translate_errors(self.name):
            return TableId("delta", str(self._snapshot().metadata().id()), self.root)

    def version(self) -> int:
        """Return the newest version; raise TableError if the table is gone."""
        with translate_errors(self.name):
            return int(self._snapshot().version())

    def columns(self) -> Columns:
        """Return the current columns; those that cannot be indexed have a reason."""
        with translate_errors(self.name):
            snapshot = self._snapshot()
            metadata = snapshot.metadata()
            fields = json.loads(metadata.schemaString())["fields"]
            partition = _strings(metadata.partitionColumns())
            mode = str(metadata.columnMappingMode().name())
            statistics = json.loads(snapshot.statsSchema().json())["fields"]
        bounded = {
            c.physical.path for c in leaves(statistics, ()) if c.physical.path[0] == "minValues"
        }
        found = (
            replace(c, bounded=_PREFIX if ("minValues", *c.physical.path) in bounded else None)
            for c in leaves(fields, partition, mode=mode)
        )
        return Columns(with_generated_partitions(found), Computing(self.spark))

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """Return the live files of a version; with `where` those that Delta plans to read."""
        with translate_errors(self.name):
            snapshot = self._snapshot(version)
            frame = None
            if where is not None:
                frame = self._plan_where(int(snapshot.version()), where)
            if frame is None:
                frame = DataFrame(snapshot.allFiles().toDF(), self.spark)
            return self._table(frame)

    def changes(self, since: int, until: int) -> pa.Table | None:
        """See `Table`. None if a commit is missing or unreadable, or for more than _COMMITS."""
        if until <= since:
            return FILES.empty_table()
        if until - since > _COMMITS:
            return None
        commits = [f"{self.root}/_delta_log/{v:020d}.json" for v in range(since + 1, until + 1)]
        try:
            # Settings of the session could silently drop rows: these options override them.
            added = (
                self.spark.read.schema(_ADDED)
                .option("mode", "FAILFAST")
                .option("ignoreMissingFiles", "false")
                .option("ignoreCorruptFiles", "false")
                .option("recursiveFileLookup", "false")
                .option("__globPaths__", "false")
                .json(commits)
                .where("add IS NOT NULL")
                .select("add.*")
            )
            files = self._table(added)
        except (PySparkException, Py4JError):
            return None
        return distinct_files(files, "path", "size")  # a deletion vector adds its file again

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Return for each path whether a readable version may contain it; true if unknown.

        These are the files of the earliest version that the log can rebuild, and all added since.
        """
        with translate_errors(self.name):
            earliest = int(self._log().history().getEarliestRecreatableCommit())
        live, since = self.files(earliest), self.changes(earliest, self.version())
        if since is None:
            return pa.repeat(True, len(paths))
        known = pa.concat_tables([live, since]).column("path").combine_chunks()
        return pc.is_in(paths, value_set=known)

    def _log(self) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self.spark._jsparkSession, self.root
        )

    def _snapshot(self, version: int | None = None) -> Any:
        jvm: Any = self.spark._jvm
        none = jvm.scala.Option.empty()
        log = self._log()
        snapshot = log.update(False, none, none)
        if snapshot.version() < 0:
            raise TableError(f"table {self.name} is gone: there is no log at {self.root}")
        if version is None or version == snapshot.version():
            return snapshot
        try:
            return log.getSnapshotAt(version, none, none, False)
        except Py4JError as error:
            if type(error) is not Py4JError:  # an exception in Java
                raise
            return log.getSnapshotAt(version, none, none)  # before Delta 4.4

    def _plan_where(self, version: int, where: str) -> DataFrame | None:
        """Return the files of the scan that Delta plans; None if the plan does not have them."""
        jvm: Any = self.spark._jvm
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        try:
            query = reader.load(self.root).where(spark_condition(where))
        except AnalysisException as error:
            raise DefinitionError(f"WHERE {where}: {first_line(error)}") from error
        leaves = query._jdf.queryExecution().optimizedPlan().collectLeaves()
        leaf = leaves.apply(0)
        if leaf.getClass().getSimpleName() == "LocalRelation":
            return DataFrame(self._snapshot(version).allFiles().toDF(), self.spark).limit(0)
        if leaves.size() != 1 or leaf.getClass().getSimpleName() != "LogicalRelation":
            return None
        location = leaf.relation().location()
        if location.getClass().getSimpleName() != "PreparedDeltaFileIndex":
            return None
        # One Dataset instead of a call per file: 100,000 calls through py4j take a minute.
        encoder = jvm.org.apache.spark.sql.delta.implicits.package.addFileEncoder()
        files = location.preparedScan().files()
        return DataFrame(self.spark._jsparkSession.createDataset(files, encoder).toDF(), self.spark)

    def _table(self, frame: DataFrame) -> pa.Table:
        added = collect_arrow(frame.select("path", "size", "partitionValues")).combine_chunks()
        if not added.num_rows:
            return FILES.empty_table()
        paths = resolve_path(self.root, _only(added, "path").cast(pa.string()))
        partition = self._partition(_only(added, "partitionValues").cast(FILES.field(3).type))
        return files_table(paths, _only(added, "size"), partition)

    def _partition(self, values: pa.MapArray) -> pa.MapArray:
        if not len(values.keys):
            return values
        named = {c.physical.path[0]: c.identity for c in self.columns().values() if c.partition}
        distinct = values.keys.dictionary_encode()
        identities = pa.array([named.get(k, k) for k in distinct.dictionary.to_pylist()])
        return pa.MapArray.from_arrays(
            values.offsets, identities.take(distinct.indices), values.items
        )


def _strings(sequence: Any) -> list[str]:
    return [str(sequence.apply(i)) for i in range(sequence.size())]


def _only(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).chunk(0)
