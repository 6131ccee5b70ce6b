"""Define `Source`: a table, and what is needed to index it."""

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


@dataclass(frozen=True, slots=True)
class Source:
    """A table, the build that sketches its files, and functions for its settings and store.

    `settings` returns the current settings, `store` opens the default store, and `open` opens a
    store by its address. `spark` is the session that opened the table, if any.
    """

    table: Table
    build: Build
    settings: Callable[[], Settings]
    store: Callable[[], IndexStore]
    open: Callable[[str], IndexStore] = open_store
    spark: SparkSession | None = None

    def resolve_store(self, given: IndexStore | str | PathLike[str] | None) -> IndexStore:
        """Return a store: the given one, the one at an address or path, or for None the default.

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
        """Return the source with a timeout in seconds for lookups; None changes nothing.

        Raises SettingError for a timeout that is not above zero and finite.
        """
        if timeout is None:
            return self
        if not 0 < timeout < float("inf"):
            raise SettingError(f"timeout takes seconds above zero, not {timeout!r}")
        settings = self.settings
        return replace(self, settings=lambda: replace(settings(), timeout=timeout))
