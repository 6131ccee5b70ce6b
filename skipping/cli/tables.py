"""Open the store and the tables that a command names, without Spark where possible."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from providers.errors import TableError
from skipping.cli.arguments import STORE, find_spark_option
from skipping.cli.session import start_session
from skipping.config.settings import Settings
from skipping.index import SkippingIndex
from skipping.model.definition import Definition
from skipping.model.identifiers import is_same_name, name_parts, qualify_name
from skipping.sources.base import Source
from skipping.sources.deltalake import delta_path_source
from skipping.sources.environment import environment_store, stored_root
from skipping.sources.folder import folder_path, folder_source
from skipping.sources.pyiceberg import iceberg_name_source, list_catalogs
from skipping.stores import IndexStore, list_definitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tables(Protocol):
    """The store of a command, and the tables that it can open."""

    @property
    def store(self) -> IndexStore:
        """The store with the indexes."""

    @property
    def settings(self) -> Settings:
        """The settings of the session, or of the environment."""

    @property
    def spark(self) -> SparkSession | None:
        """The session, if there is one."""

    def open(self, name: str) -> SkippingIndex:
        """Open the index of a table that the user names; raise SkippingError."""

    def open_definition(self, definition: Definition) -> SkippingIndex:
        """Open an index of the store; raise SkippingError."""

    def find_obstacle(self, definition: Definition) -> str | None:
        """Return why this command cannot open an index of the store; None if it may."""

    def has_name(self, definition: Definition, name: str) -> bool:
        """Return whether a definition belongs to the table that the user names."""


@dataclass(frozen=True, slots=True)
class SparkTables:
    """Opens tables by their names in a Spark session."""

    spark: SparkSession
    settings: Settings
    store: IndexStore

    def open(self, name: str) -> SkippingIndex:
        """See `Tables`."""
        return SkippingIndex.on(self.spark, spark_name(name), store=self.store)

    def open_definition(self, definition: Definition) -> SkippingIndex:
        """See `Tables`."""
        from skipping.sources.stored import stored_name

        return SkippingIndex.on(self.spark, stored_name(self.spark, definition), store=self.store)

    def find_obstacle(self, definition: Definition) -> str | None:
        """See `Tables`."""
        return None

    def has_name(self, definition: Definition, name: str) -> bool:
        """See `Tables`."""
        full = qualify_name(self.spark, name_parts(spark_name(name)))
        return is_same_name(definition.name, full)


@dataclass(frozen=True, slots=True)
class LocalTables:
    """Opens paths with delta-rs and pyarrow, and names with PyIceberg or through the store."""

    settings: Settings
    store: IndexStore
    spark: SparkSession | None = None

    def open(self, name: str) -> SkippingIndex:
        """See `Tables`."""
        return SkippingIndex.on(self._find_source(name)(), store=self.store)

    def open_definition(self, definition: Definition) -> SkippingIndex:
        """See `Tables`."""
        return SkippingIndex.on(self._open_root(definition), store=self.store)

    def find_obstacle(self, definition: Definition) -> str | None:
        """See `Tables`."""
        format = definition.table.format
        if format in ("delta", "parquet") or _is_iceberg_name(definition.name):
            return None
        if format == "iceberg":
            # Anyone with write access to the store can choose a name without parts.
            catalog = next(iter(name_parts(definition.name)), definition.name)
            return (
                f"PyIceberg is not configured for the catalog {catalog}: configure it, or use Spark"
            )
        return f"only Spark can open tables of the format {format}"

    def has_name(self, definition: Definition, name: str) -> bool:
        """See `Tables`."""
        if _is_path(name) or os.path.isdir(name):
            path = _absolute(name_parts(name)[-1] if "`" in name else name).rstrip("/")
            return definition.table.root.removeprefix("file:") == path.removeprefix("file:")
        wanted, parts = _fold(name), _fold(definition.name)
        return parts in (wanted, ["spark_catalog", *wanted], ["spark_catalog", "default", *wanted])

    def can_open(self, name: str) -> bool:
        """Return whether the table can be opened without Spark, as far as its name tells."""
        if _is_iceberg_name(name):
            return True
        if not _is_path(name) and (stored := self._find_definition(name)):
            return stored.table.format != "delta" or _has_delta_rs()
        if not _is_path(name) and not os.path.isdir(name):
            return False
        return _has_delta_rs() or folder_path(_absolute(name)) is not None

    def _find_source(self, name: str) -> Callable[[], Source]:
        """Return the function that opens a table; raise TableError for an unknown name."""
        if not _is_path(name):
            if _is_iceberg_name(name):
                return lambda: iceberg_name_source(name)
            if stored := self._find_definition(name):
                return lambda: self._open_root(stored)
            if not os.path.isdir(name):
                raise TableError(
                    f"{name} is not an absolute path or URL, a table of a catalog that PyIceberg "
                    f"is configured for, or the name of one index in {self.store.location}: only "
                    "Spark can open it by its name"
                )
        path = _absolute(name)
        folder = folder_path(path)
        return lambda: delta_path_source(path) if folder is None else folder_source(folder)

    def _find_definition(self, name: str) -> Definition | None:
        found = [d for d in list_indexes(self.store) if self.has_name(d, name)]
        if len(found) != 1:  # anyone with write access to the store can choose names
            return None
        return found[0] if self.find_obstacle(found[0]) is None else None

    def _open_root(self, definition: Definition) -> Source:
        match definition.table.format:
            case "delta":
                return delta_path_source(stored_root(self.settings, definition))
            case "parquet":
                return folder_source(stored_root(self.settings, definition))
        return iceberg_name_source(definition.name)


@contextmanager
def open_tables(
    given: argparse.Namespace, names: Sequence[str] = (), *, needs_spark: bool = False
) -> Iterator[Tables]:
    """Open the store, and Spark if the command or one of the tables needs it.

    Raises SettingError without a store, and SessionError if Spark cannot start.
    """
    conf = dict(each.split("=", 1) for each in given.conf)
    if given.store is not None:
        conf[STORE] = given.store
    settings = Settings.of_environment(os.environ)
    settings = replace(settings, store=conf.get(STORE) or settings.store)
    without = getattr(given, "without_spark", False)
    if without or not (needs_spark or _wants_spark(given, conf, settings)):
        tables = LocalTables(settings, environment_store(settings))
        if without or all(map(tables.can_open, names)):
            yield tables
            return
    with start_session(conf, given.formats, quiet=given.quiet) as spark:
        from skipping.sources.spark import settings_of, store_of

        settings = settings_of(spark)
        yield SparkTables(spark, settings, store_of(spark, settings))


def list_indexes(store: IndexStore) -> list[Definition]:
    """Return the definitions that are not dropped, sorted by name."""
    definitions = [d.value for d in list_definitions(store) if not d.value.dropped]
    return sorted(definitions, key=lambda definition: definition.name)


def spark_name(name: str) -> str:
    """Return a table's name for Spark: a path becomes ``delta.`/t` `` or ``parquet.`/t` ``."""
    if not _is_path(name) or "`" in name:
        return name
    path = _absolute(name)
    return f"{'delta' if folder_path(path) is None else 'parquet'}.`{path}`"


def _wants_spark(given: argparse.Namespace, conf: Mapping[str, str], settings: Settings) -> bool:
    if given.spark or find_spark_option(given) is not None:
        return True
    # Without a name, the store is in the session's warehouse directory; Hadoop opens `hdfs:`.
    return settings.store is None or settings.store.startswith("hdfs:")


def _is_path(name: str) -> bool:
    return "/" in name


def _absolute(name: str) -> str:
    return os.path.abspath(name) if os.path.isdir(name) else name


def _has_delta_rs() -> bool:
    return find_spec("deltalake") is not None


def _is_iceberg_name(name: str) -> bool:
    parts = _fold(name)
    return not _is_path(name) and len(parts) > 2 and parts[0] in list_catalogs()


def _fold(name: str) -> list[str]:
    return [part.casefold() for part in name_parts(name)]
