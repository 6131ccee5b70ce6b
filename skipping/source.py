"""A table with the means to index it, as Spark or PyIceberg have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from providers.errors import SettingError
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

    `open` opens a store by its address. `spark` is the session that it was opened with, None
    without Spark.
    """

    table: Table
    build: Build
    settings: Callable[[], Settings]
    store: Callable[[], IndexStore]
    open: Callable[[str], IndexStore] = open_store
    spark: SparkSession | None = None

    def kept_in(self, given: IndexStore | str | None) -> IndexStore:
        """The store that is meant: the one given, by its address too, or else the settings'."""
        if isinstance(given, str):
            return self.open(given)
        return self.store() if given is None else given

    def within(self, timeout: float | None) -> Source:
        """The same with so many seconds for a question, if any are given; raises SettingError."""
        if timeout is None:
            return self
        if not 0 < timeout < float("inf"):
            raise SettingError(f"timeout takes seconds above zero, not {timeout!r}")
        given = self.settings
        return replace(self, settings=lambda: replace(given(), timeout=timeout))


def open_source(given: Any, name: str | None) -> Source:
    """The table of a name in a Spark session, or a table of PyIceberg's, which has no name here.

    Raises TableError. Imports only what it needs: Spark for the one, PyIceberg for the other.
    """
    if name is None:
        from skipping.local import local_source

        return local_source(given)
    from skipping.session import spark_source

    return spark_source(given, name)
