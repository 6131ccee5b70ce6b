"""Read files of known path and size with Spark, without looking for or listing them.

`spark.read` makes three requests to an object store for each path, in sequence, before it plans.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_BLOCK = 128 << 20
"""Bytes of a file system block; Spark uses blocks only to place tasks."""

_SETTINGS = {
    # The cache that a file index reads before it lists.
    "spark.sql.hive.manageFilesourcePartitions": "true",
    "spark.sql.hive.filesourcePartitionFileCacheSize": str(250 << 20),
    "spark.skipping.enabled": "false",
}

_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "recursiveFileLookup": "true",  # no partition columns from the paths
}


def read_files(
    spark: SparkSession,
    files: Sequence[tuple[str, int]],
    format: Any,
    schema: Any,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a DataFrame of files (path and bytes), at least one, read by a Java FileFormat.

    `schema` is a Python or Java schema. The function changes settings of the session, so the
    session must not be shared. By default a missing or damaged file fails the job.
    """
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
    jvm: Any = spark._jvm
    sources = jvm.org.apache.spark.sql.execution.datasources
    session = spark._jsparkSession
    status, path = jvm.org.apache.hadoop.fs.FileStatus, jvm.org.apache.hadoop.fs.Path
    gateway: Any = spark.sparkContext._gateway
    statuses = gateway.new_array(status, len(files))
    root = path(files[0][0])
    for i, (name, size) in enumerate(files):
        statuses[i] = status(size, False, 1, _BLOCK, 0, path(name))
    # Register all files as the listing of the first one's path: only this file index reads it.
    cache = sources.FileStatusCache.getOrCreate(session)
    cache.putLeafFiles(root, statuses)
    given = jvm.PythonUtils.toScalaMap({**_OPTIONS, **(options or {})})
    nothing = jvm.scala.Option.empty()
    index = sources.InMemoryFileIndex(
        session, jvm.PythonUtils.toSeq([root]), given, nothing, cache, nothing, nothing
    )
    cache.invalidateAll()  # the cache is shared, and the index has read it
    if isinstance(schema, StructType):
        schema = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(schema.jsonValue()))
    none = jvm.org.apache.spark.sql.types.StructType()
    relation = sources.HadoopFsRelation(index, none, schema, nothing, format, given, session)
    return DataFrame(session.baseRelationToDataFrame(relation), spark)
