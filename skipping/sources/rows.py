"""Create DataFrames from rows in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from skipping.spark_api import arrow_schema, create_frame, parse_schema


def frame_of_rows(spark: SparkSession, schema: str, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Create a DataFrame without a Spark job; `schema` is Spark DDL, empty for no columns.

    The rows are converted to Arrow first. For a Python list, even an empty one, Spark would start
    Python workers, which takes two seconds.
    """
    if not schema:
        return DataFrame(spark._jsparkSession.emptyDataFrame(), spark)
    columns = parse_schema(schema)
    arrow = arrow_schema(columns)
    values: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(v, type) for v, type in zip(values, arrow.types, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=arrow)
    return create_frame(spark, table, columns)
