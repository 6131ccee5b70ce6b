"""Define the interface of an index for streams. `skipping.index.SkippingIndex` implements it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from skipping.model.definition import Definition, IndexId, Revision, State
from skipping.stores import IndexStore
from skipping.tables import Table


class MaintainedIndex(Protocol):
    """The part of `SkippingIndex` that streams use; see there."""

    table: Table

    @property
    def definition(self) -> Definition: ...
    @property
    def revision(self) -> Revision: ...
    @property
    def state(self) -> State: ...
    @property
    def replaced(self) -> bool: ...
    @property
    def is_adaptation_due(self) -> bool: ...
    def pending(self, *, until: int | None = None, retry: bool = True) -> pa.Table: ...
    def reread(self) -> None: ...
    def carry_over(self) -> None: ...
    def refresh(
        self,
        *,
        token: int | None = None,
        limit: int | None = None,
        until: int | None = None,
        retry: bool = True,
    ) -> State: ...


class OpenIndex(Protocol):
    """`SkippingIndex.on`."""

    def __call__(
        self, source: SparkSession, table: str, *, store: IndexStore, likely: IndexId | None = None
    ) -> MaintainedIndex: ...
