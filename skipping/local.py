"""Tables of PyIceberg's, indexed and asked in this process, without Spark."""

from __future__ import annotations

from typing import Any

from providers.errors import SettingError, TableError
from skipping.local_build import LocalBuild
from skipping.settings import Settings
from skipping.source import Source
from skipping.stores import IndexStore

__all__ = ["local_source"]


def local_source(table: Any) -> Source:
    """Raises TableError for what is no table of PyIceberg's."""
    if not any(c.__module__.startswith("pyiceberg.") for c in type(table).__mro__):
        raise TableError(
            f"{type(table).__name__} is no PyIceberg table; with Spark give a name too"
        )
    from skipping.tables.pyiceberg import PyIcebergTable

    opened = PyIcebergTable(table)
    return Source(opened, LocalBuild(locate=opened.locate), Settings, _no_store)


def _no_store() -> IndexStore:
    raise SettingError(
        "there is no Spark session to say where indexes are kept: give store=, an IndexStore or "
        "its address, as the session's spark.skipping.store has it"
    )
