"""Convert schemas of Spark and errors of its JVM, for all formats that Spark reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructField, StructType

from providers.errors import TableError, first_line


@contextlib.contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Turn exceptions of the JVM into a TableError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        java = getattr(error, "java_exception", None)
        reason = first_line(java.getMessage() if java else error)
        raise TableError(f"cannot read table {name}: {reason}") from error


def nested_schema(types: Mapping[tuple[str, ...], DataType]) -> StructType:
    """Return a schema with a type for each path of names."""
    tree: dict[str, Any] = {}
    for (*above, name), type in types.items():
        within = tree
        for part in above:
            within = within.setdefault(part, {})
        within[name] = type
    return _struct(tree)


def _struct(tree: Mapping[str, Any]) -> StructType:
    return StructType(
        [StructField(n, _struct(t) if isinstance(t, dict) else t) for n, t in tree.items()]
    )
