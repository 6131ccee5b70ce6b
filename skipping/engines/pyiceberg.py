"""Tables of PyIceberg's, indexed and asked in this process, without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from providers.errors import SettingError, TableError
from skipping.build.local import LocalBuild
from skipping.config.settings import Settings, variable
from skipping.engines.source import Source
from skipping.stores import IndexStore
from skipping.stores.open import open_store
from skipping.stores.opensearch.access import Access, StartUp

__all__ = ["local_source", "opener"]


def local_source(table: Any) -> Source:
    """With the environment's settings; raises TableError for what is no table of PyIceberg's."""
    if not any(c.__module__.startswith("pyiceberg.") for c in type(table).__mro__):
        raise TableError(
            f"{type(table).__name__} is not a PyIceberg table; with Spark give a name too"
        )
    from skipping.tables.iceberg.pyiceberg import PyIcebergTable

    opened = PyIcebergTable(table)
    settings = Settings.of_environment(os.environ)

    open = opener(settings)

    def store() -> IndexStore:
        if settings.store is None:
            raise SettingError(
                "there is no Spark session to say where indexes are kept: give store=, an "
                "IndexStore or its address, as spark.skipping.store or the environment's "
                f"{variable('store')} has it"
            )
        return open(settings.store)

    return Source(opened, LocalBuild(locate=opened.locate), lambda: settings, store, open)


def opener(settings: Settings) -> Callable[[str], IndexStore]:
    """What opens a store by its address where the settings are those of the whole process."""

    def open(url: str) -> IndexStore:
        return open_store(
            url, access=lambda server: _access(server, settings), kept=settings.cache_max_bytes
        )

    return open


def _access(server: str, settings: Settings) -> Access:
    """Who asks a server: all that the environment says was said at start-up."""
    start = StartUp.of(
        store=settings.store,
        ca=settings.opensearch_ca,
        certificate=settings.opensearch_certificate,
        key=settings.opensearch_key,
        insecure=settings.opensearch_insecure,
    )
    return Access.of(server, start, prefix=settings.opensearch_prefix)
