"""Use the parts of PySpark's and Spark's API that differ between the supported releases."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark import __version__
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType, _parse_datatype_string

RELEASE = tuple(map(int, __version__.split(".")[:2]))
"""The release of PySpark, such as (4, 1)."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema; timestamps are in UTC."""
    if RELEASE >= (4, 2):
        return to_arrow_schema(schema, timezone="UTC")  # type: ignore[call-arg]
    return to_arrow_schema(schema)


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Return the rows of a DataFrame; `DataFrame.toArrow` exists since 4.0."""
    if RELEASE >= (4, 0):
        return frame.toArrow()
    batches = frame._collect_as_arrow()  # type: ignore[operator]
    return pa.Table.from_batches(batches, arrow_schema(frame.schema))


def create_frame(
    spark: SparkSession, table: pa.Table, schema: StructType | None = None
) -> DataFrame:
    """Create a DataFrame of an Arrow table; `createDataFrame` accepts these since 4.0."""
    if RELEASE >= (4, 0):
        return spark.createDataFrame(table, schema) if schema else spark.createDataFrame(table)
    schema = schema or from_arrow_schema(table.schema)
    context = spark.sparkContext
    jvm: Any = context._jvm
    longest = -(-len(table) // context.defaultParallelism) or 1
    cast = table.cast(arrow_schema(schema)).combine_chunks()
    rows = context._serialize_to_jvm(
        cast.to_batches(max_chunksize=longest),
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    frame = jvm.PythonSQLUtils.toDataFrame(rows, schema.json(), spark._jsparkSession)
    return DataFrame(frame, spark)


def repartition_by_number(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Put each row into the partition with the number in `column`; before 4.1, nearly so.

    The older releases have ranges only, and choose their limits from a sample of the rows.
    """
    if RELEASE >= (4, 1):
        return frame.repartitionById(partitions, column)
    return frame.repartitionByRange(partitions, column)


def parse_type(ddl: str) -> DataType:
    """Return the type that a DDL text describes; `DataType.fromDDL` exists since 4.0."""
    return _parse_datatype_string(ddl)


def parse_schema(ddl: str) -> StructType:
    """Return the schema that a DDL text such as `a INT, b STRING` describes."""
    schema = parse_type(ddl)
    assert isinstance(schema, StructType), "the schema is a list of columns"
    return schema


def error_condition(error: PySparkException) -> str | None:
    """Return the name of an error; the method is called `getCondition` since 4.0."""
    return error.getCondition() if RELEASE >= (4, 0) else error.getErrorClass()


def classic(jvm: Any) -> Any:
    """Return the Java package of SparkSession and Dataset; 4.0 moved these next to Connect's."""
    sql = jvm.org.apache.spark.sql
    return sql.classic if RELEASE >= (4, 0) else sql


def streaming(jvm: Any) -> Any:
    """Return the Java package of a running stream's parts, which 4.1 moved."""
    package = jvm.org.apache.spark.sql.execution.streaming
    return package.runtime if RELEASE >= (4, 1) else package


def streaming_relation(jvm: Any, source: Any, output: Any, session: Any) -> Any:
    """Return the plan of a streaming source; since 4.2 it may have a name."""
    none = jvm.scala.Option.empty()
    unnamed = []
    if RELEASE >= (4, 2):
        unassigned = getattr(jvm.org.apache.spark.sql.catalyst.streaming, "Unassigned$")
        unnamed.append(getattr(unassigned, "MODULE$"))
    return streaming(jvm).StreamingExecutionRelation(source, output, none, *unnamed, session)


def read_settings(spark: SparkSession) -> Any:
    """Return all settings of a session as a Java map."""
    conf = spark.conf._jconf
    if RELEASE >= (4, 0):
        return conf.getAllAsJava()
    jvm: Any = spark.sparkContext._jvm
    return jvm.scala.collection.JavaConverters.mapAsJavaMap(conf.getAll())


def read_relation(jvm: Any, *arguments: Any) -> Any:
    """Return the relation that a Java DataSource with these arguments reads.

    4.1 added the flag that nothing is written; 4.2 the name of a stream, and another flag.
    """
    unnamed = [jvm.scala.Option.empty()] if RELEASE >= (4, 2) else []
    sources = jvm.org.apache.spark.sql.execution.datasources
    source = sources.DataSource(*arguments, *unnamed)
    check_files, read_only = False, True
    if RELEASE >= (4, 2):
        rest = getattr(source, "resolveRelation$default$3")()
        return source.resolveRelation(check_files, read_only, rest)
    if RELEASE >= (4, 1):
        return source.resolveRelation(check_files, read_only)
    return source.resolveRelation(check_files)
