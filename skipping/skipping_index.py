"""The index of one table as users make it: with a stream that keeps it, where one is wanted.

What needs no stream is in `skipping.index`, which streams themselves stand on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from providers.base import Param
from providers.errors import Conflict, DefinitionError
from skipping.config.options import IndexOptions
from skipping.index import Index
from skipping.parser.fragments import column_specs
from skipping.stores import IndexStore

if TYPE_CHECKING:
    from os import PathLike

    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset
    from pyiceberg.table import Table as PyIceberg
    from pyspark.sql import SparkSession
    from typing_extensions import Self

__all__ = ["SkippingIndex"]


class SkippingIndex(Index):
    """The index of one table in one store.

    >>> index = SkippingIndex.on(spark, "flights")  # doctest: +SKIP
    >>> print(index.lookup(Compare("tailnum", "=", "N201AA")))  # doctest: +SKIP

    A table of PyIceberg's, one of delta-rs' (`DeltaTable`), and a folder of Parquet files, by its
    path or as a Dataset of pyarrow's, need neither Spark nor a JVM; where the index is kept has to
    be said.

    >>> flights = catalog.load_table("db.flights")  # doctest: +SKIP
    >>> index = SkippingIndex.on(flights, store="sqlite:/data/skipping.sqlite")  # doctest: +SKIP
    >>> index.scan("tailnum = 'N201AA'").to_pandas()  # doctest: +SKIP
    """

    @classmethod
    def create(
        cls,
        source: SparkSession | PyIceberg | DeltaTable | Dataset | str | PathLike[str],
        table: str | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        where: str | None = None,
        build: bool = True,
        store: IndexStore | str | PathLike[str] | None = None,
        timeout: float | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Param] | None = None,
    ) -> Self:
        """Define an index and build it for the files there are, unless `build` is false.

        `columns` is written as in SQL: `"tailnum VALUE_LIST(500), dep_time MIN_MAX"`, or a list of
        such texts. A table without Spark has no name here: `create(flights, "tailnum VALUE_LIST",
        store=...)`; its `where` is that of CREATE. With `if_not_exists` an index that the table has
        is taken as it is; `timeout` as in `on`. `options` are those of WITH: `{"auto_refresh":
        True}` starts a stream in this session, which needs Spark. Raises StatementError,
        DefinitionError, TableError, and else Conflict if the table has one.
        """
        name, columns = (None, table) if columns is None else (table, columns)
        if columns is None:
            raise DefinitionError(
                'name the columns to index: create(spark, "flights", "tailnum VALUE_LIST"), or '
                'without Spark create(flights, "tailnum VALUE_LIST")'
            )
        text = columns if isinstance(columns, str) else ", ".join(columns)
        specs, chosen = column_specs(text), IndexOptions.of(options or {})
        session: Any = source
        if chosen.streamed or chosen.checkpoint_location is not None:
            if name is None:
                raise DefinitionError("a stream needs a Spark session: leave out auto_refresh")
            from skipping.streaming.checkpoints import require_checkpoint  # Spark's, as streams are

            require_checkpoint(session, chosen)
        try:
            index = cls.define(
                source, name, specs, where=where, options=chosen, store=store, timeout=timeout
            )
        except Conflict:
            if not if_not_exists:
                raise
            return cls.on(source, name, store=store, timeout=timeout)
        if build and chosen.build:
            index.refresh()
        if chosen.streamed:
            from skipping.streaming.jobs import keep

            keep(session, index.store, index.table.name)
        return index
