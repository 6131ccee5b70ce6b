"""Look up a table's index, and a predicate in it, for the worker processes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from providers.errors import SkippingError, first_line
from skipping.catalog.predicates import read_predicate
from skipping.catalog.storage import Storage
from skipping.config.settings import Settings
from skipping.lookup.lookup import shared_lookup
from skipping.lookup.query import IndexQuery
from skipping.model.definition import Definition
from skipping.stores import IndexStore
from skipping.tables.iceberg.metadata import table_id

log = logging.getLogger("skipping")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a lookup: a bit for each ordinal, set if its file is pruned; the index's files.

    Equal files have an equal `state`.
    """

    state: str
    pruned: bytes
    _files: pa.Table

    def files(self) -> bytes:
        """Return the files as an Arrow stream of path, size, stamp and ordinal."""
        sink = pa.BufferOutputStream()
        files = self._files.select(["path", "size", "stamp", "ordinal"])
        with pa.ipc.new_stream(sink, files.schema) as writer:
            writer.write_table(files)
        return bytes(sink.getvalue())


class Indexes:
    """The indexes of one store; safe to use from several threads."""

    def __init__(self, store: IndexStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._warned = ""

    def of(self, metadata: Mapping[str, Any], io: Storage) -> Definition | None:
        """Return the index of a table; None without an index, or if the store is unreachable."""
        # A table's writers choose its UUID and location. By taking those of another table, they
        # could learn values in its files. But the catalog decides where the table's metadata is.
        settings = self._settings
        try:
            id = table_id(metadata)
            if not settings.enabled or not io.is_at(id.root):
                return None
            lookup = shared_lookup(self._store, settings)
            return lookup.definition(id, timeout=settings.timeout)
        except SkippingError as error:
            self._warn(error)
            return None

    def find(self, definition: Definition, said: Mapping[str, Any]) -> Answer | None:
        """Look up a predicate that a worker sent; None if the index prunes no file."""
        try:
            predicate, columns = read_predicate(said)
            found = IndexQuery(self._store, definition, self._settings).find(predicate, columns)
        except Exception as error:  # reading never fails because of an index
            self._warn(error)
            return None
        if not found.pruned:
            return None
        pruned = np.zeros(found.pruned.max() + 1, bool)
        pruned[np.array(found.pruned, np.int64)] = True
        state = f"{found.index} {found.generation} {len(found.files)}"
        return Answer(state, np.packbits(pruned).tobytes(), found.files)

    def _warn(self, error: Exception) -> None:
        said = first_line(error)
        if said != self._warned:
            log.warning("no file is skipped: %s", said)
        self._warned = said
