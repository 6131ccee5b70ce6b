"""Open a table with the library that supports it: Spark, PyIceberg, delta-rs or pyarrow."""

from __future__ import annotations

import os
from typing import Any

from providers.errors import TableError
from skipping.sources.base import Source


def open_source(given: Any, name: str | None) -> Source:
    """Open a table by name in a Spark session, or a table of PyIceberg, delta-rs or pyarrow.

    `name` is given only with a Spark session. A Source is returned unchanged: other packages pass
    one for their own table formats (docs/extending.md). Raises TableError for other objects.
    """
    if isinstance(given, Source):
        return given
    if name is not None:
        from skipping.sources.spark import spark_source

        return spark_source(given, name)
    libraries = {c.__module__.partition(".")[0] for c in type(given).__mro__}
    if "pyiceberg" in libraries:
        from skipping.sources.environment import environment_source
        from skipping.tables.iceberg.pyiceberg import PyIcebergTable

        return environment_source(PyIcebergTable(given))
    if "deltalake" in libraries:
        from skipping.sources.deltalake import deltalake_source

        return deltalake_source(given)
    if isinstance(given, str) and "/" not in given and not os.path.exists(given):
        raise TableError(
            f"there is no folder {given}. To open a table by its name, pass a Spark session: "
            f'SkippingIndex.on(spark, "{given}"). Without Spark, pass a PyIceberg table or a '
            "DeltaTable"
        )
    if "pyarrow" in libraries or isinstance(given, str | os.PathLike):
        from skipping.sources.folder import folder_source

        return folder_source(given)
    raise TableError(
        f"{type(given).__name__} is not a PyIceberg table, a DeltaTable of delta-rs, a pyarrow "
        "Dataset or the path of a Parquet folder. With a Spark session, pass the table's name, too"
    )
