"""What opens a table: the one place that chooses between Spark, PyIceberg and a given Source."""

from __future__ import annotations

from typing import Any

from skipping.engines.source import Source

__all__ = ["open_source"]


def open_source(given: Any, name: str | None) -> Source:
    """The table of a name in a Spark session, or a table of PyIceberg's, which has no name here.

    A Source is taken as it is: so a format of another project is indexed (docs/extending.md).
    Raises TableError. Imports only what it needs: Spark for the one, PyIceberg for the other.
    """
    if isinstance(given, Source):
        return given
    if name is None:
        from skipping.engines.pyiceberg import local_source

        return local_source(given)
    from skipping.engines.spark import spark_source

    return spark_source(given, name)
