"""Offer a scan as a LazyFrame of Polars, which reads columns and files when it is collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from providers.predicate import And, Predicate
from skipping.filters.polars import translate_polars
from skipping.scans.base import Scan


def lazy_frame(scan: Scan) -> pl.LazyFrame:
    """Return the rows as a LazyFrame."""
    schema = pl.DataFrame(scan.arrow_schema.empty_table()).schema

    def frames(
        columns: list[str] | None, predicate: Any, rows: int | None, size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(schema) if columns is None else columns
        named = set(wanted)
        if predicate is not None:
            named |= set(predicate.meta.root_names())
        # At least one column: rows without columns cannot be counted.
        names = [name for name in schema if name in named] or list(schema)[:1]
        pruning: Predicate = And(())
        if predicate is not None and rows is None:
            pruning = translate_polars(predicate, scan.indexable_columns())
        with scan.project_and_prune(names, pruning).to_arrow_batch_reader() as reader:
            for batch in reader:
                frame = pl.DataFrame(batch)
                if rows is not None:  # Polars limits the rows before it filters them
                    frame, rows = frame.head(rows), rows - min(rows, len(frame))
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame.select(wanted)
                if rows == 0:
                    return

    return register_io_source(frames, schema=schema, validate_schema=True)
