"""Open Iceberg tables by name with PyIceberg and its own configuration, without Spark."""

from __future__ import annotations

from importlib.util import find_spec

from skipping.model.identifiers import name_parts
from skipping.sources.base import Source
from skipping.sources.environment import environment_source


def list_catalogs() -> frozenset[str]:
    """Return the catalogs in PyIceberg's configuration, in lower case; empty without PyIceberg.

    The configuration is `.pyiceberg.yaml` and the environment variables `PYICEBERG_CATALOG__*`.
    """
    if find_spec("pyiceberg") is None:
        return frozenset()
    from skipping.tables.iceberg.pyiceberg import configured_catalogs

    return configured_catalogs()


def iceberg_name_source(name: str) -> Source:
    """Open `catalog.namespace.table`; raise TableError if that fails."""
    from skipping.tables.iceberg.pyiceberg import PyIcebergTable, open_iceberg

    catalog, *identifier = name_parts(name)
    return environment_source(PyIcebergTable(open_iceberg(catalog, tuple(identifier))))
