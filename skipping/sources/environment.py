"""Read settings and open stores from environment variables, without a Spark session."""

from __future__ import annotations

import os
from typing import Protocol

from pyarrow.fs import FileSystem

from providers.errors import SettingError, TableError
from skipping.config.settings import Settings, variable
from skipping.indexing.local import LocalBuild
from skipping.model.definition import Definition
from skipping.sources.base import Source
from skipping.stores import IndexStore
from skipping.stores.folder.objects import Objects, ObstoreObjects
from skipping.stores.open import open_store
from skipping.stores.opensearch.credentials import Access, StartUp
from skipping.tables import Table


class LocalTable(Table, Protocol):
    """A table whose files this process opens."""

    def locate(self, path: str) -> tuple[FileSystem, str]:
        """Return a path's file system, and the path in it."""


def environment_source(opened: LocalTable) -> Source:
    """Return the source of a table that this process indexes."""
    settings = Settings.of_environment(os.environ)
    return Source(
        opened,
        LocalBuild(locate=opened.locate, dated=not opened.has_log),
        lambda: settings,
        lambda: environment_store(settings),
        lambda url: _open(url, settings),
    )


def environment_store(settings: Settings) -> IndexStore:
    """Open the store in the settings; raise SettingError if they have no store."""
    if settings.store is None:
        raise SettingError(
            "no store is configured: without Spark, pass store= (an address or an IndexStore), or "
            f"set the environment variable {variable('store')}"
        )
    return _open(settings.store, settings)


def stored_root(settings: Settings, definition: Definition) -> str:
    """Return the root location of a stored definition's table; raise TableError if it is unsafe.

    Anyone with write access to the store may have chosen it. So it must be a folder of this
    machine, or below a folder in SKIPPING_TABLE_ROOTS.
    """
    root = definition.table.root
    is_local = root.startswith("file:/") and not root.startswith("file://")
    is_below = any(root.startswith(f"{each.rstrip('/')}/") for each in settings.table_roots)
    if ".." in root.split("/") or not (is_local or is_below):
        raise TableError(
            f"{root:.200} is not opened: the path comes from the store, and is neither a local "
            f"folder nor below a folder in the environment variable {variable('tableRoots')}. Set "
            "it, or pass the table's path"
        )
    return root


def _open(url: str, settings: Settings) -> IndexStore:
    return open_store(
        url,
        access=lambda server: _access(server, settings),
        objects=environment_objects,
        kept=settings.cache_max_bytes,
        ttl=settings.cache_ttl,
        replicas=settings.store_replica,
        replica_max_bytes=settings.store_replica_max_bytes,
    )


def environment_objects(address: str) -> Objects:
    """Return the objects of a folder store; raise SettingError for `hdfs:`."""
    if address.startswith("hdfs:"):
        raise SettingError(
            f"{address} can only be opened in a Spark session: outside of one, name a store that "
            "Python can open"
        )
    return ObstoreObjects(address)


def _access(server: str, settings: Settings) -> Access:
    start = StartUp.of(
        store=settings.store,
        ca=settings.opensearch_ca,
        certificate=settings.opensearch_certificate,
        key=settings.opensearch_key,
        insecure=settings.opensearch_insecure,
    )
    return Access.of(server, start, prefix=settings.opensearch_prefix)
