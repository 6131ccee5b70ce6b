"""A table with the means to index it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from os.path import abspath
from typing import TYPE_CHECKING

from providers.errors import SettingError
from skipping.config.settings import Settings
from skipping.indexing.sketch import Build
from skipping.stores import IndexStore
from skipping.stores.open import open_store
from skipping.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """A table, the build that sketches its files, and default settings and store.

    `open` opens a store by its address. `spark` is the session that opened the table, if any.
    """

    table: Table
    build: Build
    settings: Callable[[], Settings]
    store: Callable[[], IndexStore]
    open: Callable[[str], IndexStore] = open_store
    spark: SparkSession | None = None

    def resolve_store(self, given: IndexStore | str | PathLike[str] | None) -> IndexStore:
        """Return the given store, which may be an address or path, or the default store.

        Raises SettingError for any other type.
        """
        if isinstance(given, str):
            return self.open(given)
        if isinstance(given, PathLike):
            return self.open(f"sqlite:{abspath(given)}")
        if given is not None and not hasattr(given, "definitions"):
            raise SettingError(
                "store takes an IndexStore, an address such as sqlite:/data/skipping.sqlite or a "
                f"path, not {type(given).__name__}"
            )
        return self.store() if given is None else given

    def within(self, timeout: float | None) -> Source:
        """Return the source with a timeout in seconds for lookups, if given; raise SettingError."""
        if timeout is None:
            return self
        if not 0 < timeout < float("inf"):
            raise SettingError(f"timeout takes seconds above zero, not {timeout!r}")
        given = self.settings
        return replace(self, settings=lambda: replace(given(), timeout=timeout))
