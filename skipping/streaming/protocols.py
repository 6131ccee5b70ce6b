"""Define the interface of an index for streams. `skipping.index.SkippingIndex` implements it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from skipping.model.definition import Definition, IndexId, Revision, State
from skipping.stores import IndexStore
from skipping.tables import Table


class MaintainedIndex(Protocol):
    """The part of `SkippingIndex` that streams use."""

    table: Table

    @property
    def definition(self) -> Definition:
        """See `SkippingIndex`, as for all that follows."""

    @property
    def revision(self) -> Revision:
        """The number of writes of the definition."""

    @property
    def state(self) -> State:
        """The part of the table that is indexed."""

    @property
    def replaced(self) -> bool:
        """Whether the table was replaced since the index was defined."""

    def pending(self, *, until: int | None = None, retry: bool = True) -> pa.Table:
        """Return the files without an entry."""

    def reread(self) -> None:
        """Read the definition again."""

    def carry_over(self) -> None:
        """Adopt the table that replaced the indexed one."""

    def refresh(
        self,
        *,
        token: int | None = None,
        limit: int | None = None,
        until: int | None = None,
        retry: bool = True,
    ) -> State:
        """Index pending files."""


class OpenIndex(Protocol):
    """`SkippingIndex.on`."""

    def __call__(
        self, source: SparkSession, table: str, *, store: IndexStore, likely: IndexId | None = None
    ) -> MaintainedIndex:
        """Open the index of a table."""
