"""A table with the means to index it, as Spark or PyIceberg have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skipping.settings import Settings
from skipping.sketching import Build
from skipping.stores import IndexStore
from skipping.stores.opening import open_store
from skipping.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Source", "open_source"]


@dataclass(frozen=True, slots=True)
class Source:
    """A table, what sketches its files, and whose settings and store are meant unless given.

    `spark` is the session that it was opened with, None without Spark.
    """

    table: Table
    build: Build
    settings: Callable[[], Settings]
    store: Callable[[], IndexStore]
    spark: SparkSession | None = None

    def kept_in(self, given: IndexStore | str | None) -> IndexStore:
        """The store that is meant: the one given, by its address too, or else the settings'."""
        if isinstance(given, str):
            return open_store(given)
        return self.store() if given is None else given


def open_source(given: Any, name: str | None) -> Source:
    """The table of a name in a Spark session, or a table of PyIceberg's, which has no name here.

    Raises TableError. Imports only what it needs: Spark for the one, PyIceberg for the other.
    """
    if name is None:
        from skipping.local import local_source

        return local_source(given)
    from skipping.session import spark_source

    return spark_source(given, name)
