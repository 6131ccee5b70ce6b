"""Open PyIceberg tables; this process indexes and queries them, without Spark."""

from __future__ import annotations

from typing import Any

from skipping.sources.base import Source
from skipping.sources.environment import environment_source
from skipping.tables.iceberg.pyiceberg import PyIcebergTable

__all__ = ["pyiceberg_source"]


def pyiceberg_source(table: Any) -> Source:
    """Open a PyIceberg table with the environment's settings."""
    opened = PyIcebergTable(table)
    return environment_source(opened, opened.locate)
