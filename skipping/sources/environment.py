"""Settings and store from the environment, without a Spark session."""

from __future__ import annotations

import os

from providers.errors import SettingError, TableError
from skipping.config.settings import Settings, variable
from skipping.indexing.local import LocalBuild
from skipping.model.definition import Definition
from skipping.sources.base import Source
from skipping.stores import IndexStore
from skipping.stores.open import open_store
from skipping.stores.opensearch.credentials import Access, StartUp
from skipping.tables import Table
from skipping.tables.filesystem import Locate

__all__ = ["environment_source", "environment_store", "stored_root"]


def environment_source(opened: Table, locate: Locate) -> Source:
    """Open a table that this process indexes and queries; `locate` opens its files."""
    settings = Settings.of_environment(os.environ)
    return Source(
        opened,
        LocalBuild(locate=locate, dated=not opened.has_log),
        lambda: settings,
        lambda: environment_store(settings),
        lambda url: _open(url, settings),
    )


def environment_store(settings: Settings) -> IndexStore:
    """Open the store that the environment names; raise SettingError if it names no store."""
    if settings.store is None:
        raise SettingError(
            "no store is configured, and there is no Spark session to name one: give store=, an "
            f"IndexStore or its address, or set {variable('store')}"
        )
    return _open(settings.store, settings)


def stored_root(settings: Settings, definition: Definition) -> str:
    """Return the root to open the table of a stored definition by; raises TableError.

    Anybody with write access to the store may have chosen it. So it must be a folder of this
    machine, or below a folder that the environment names.
    """
    root = definition.table.root
    is_local = root.startswith("file:/") and not root.startswith("file://")
    is_below = any(root.startswith(f"{each.rstrip('/')}/") for each in settings.table_roots)
    if ".." in root.split("/") or not (is_local or is_below):
        raise TableError(
            f"{root:.200} is not opened: the path comes from the store, and is neither a folder of "
            f"this machine nor below one of the environment's {variable('tableRoots')}; name the "
            "table to open it"
        )
    return root


def _open(url: str, settings: Settings) -> IndexStore:
    return open_store(
        url, access=lambda server: _access(server, settings), kept=settings.cache_max_bytes
    )


def _access(server: str, settings: Settings) -> Access:
    start = StartUp.of(
        store=settings.store,
        ca=settings.opensearch_ca,
        certificate=settings.opensearch_certificate,
        key=settings.opensearch_key,
        insecure=settings.opensearch_insecure,
    )
    return Access.of(server, start, prefix=settings.opensearch_prefix)
