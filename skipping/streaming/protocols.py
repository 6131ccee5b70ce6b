"""Define the interface that streams use; `skipping.index.SkippingIndex` implements it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from skipping.model.definition import Definition, IndexId, Revision, State
from skipping.stores import IndexStore
from skipping.tables import Table


class MaintainedIndex(Protocol):
    """The part of `SkippingIndex` that streams use. The docstrings there have the details."""

    table: Table

    @property
    def definition(self) -> Definition:
        """The columns, types and options of the index."""

    @property
    def revision(self) -> Revision:
        """How often the definition was written."""

    @property
    def state(self) -> State:
        """The version of the table that is indexed, the status, and the last error."""

    @property
    def replaced(self) -> bool:
        """Whether the table was replaced since the index was defined."""

    def pending(self, *, until: int | None = None, retry: bool = True) -> pa.Table:
        """Return path and size of the files without an entry."""

    def reread(self) -> None:
        """Read the definition again."""

    def carry_over(self) -> None:
        """If the table was replaced, define the index for the table that has its name now."""

    def refresh(
        self,
        *,
        token: int | None = None,
        limit: int | None = None,
        until: int | None = None,
        retry: bool = True,
    ) -> State:
        """Index the pending files; return the state."""


class OpenIndex(Protocol):
    """The signature of `SkippingIndex.on`."""

    def __call__(
        self, source: SparkSession, table: str, *, store: IndexStore, likely: IndexId | None = None
    ) -> MaintainedIndex:
        """Open the index of a table."""
