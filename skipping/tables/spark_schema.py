"""Columns from Spark's schemas and errors from its JVM, for all formats that Spark reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from providers.errors import TableError, first_line
from skipping.tables import TableColumn, schema

__all__ = ["leaves", "translate_errors"]


@contextlib.contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Turn exceptions of the JVM into a TableError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        java = getattr(error, "java_exception", None)
        reason = first_line(java.getMessage() if java else error)
        raise TableError(f"cannot follow table {name}: {reason}") from error


def leaves(
    struct: StructType, partition: Sequence[str], *, mode: str = "none"
) -> Iterator[TableColumn]:
    """Yield the columns of a schema; see `skipping.tables.schema`."""
    return schema.leaves(struct.jsonValue()["fields"], partition, mode=mode)
