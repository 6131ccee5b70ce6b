"""A scan as a LazyFrame of Polars, which says what it reads when it is collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from providers.predicate import And, Predicate
from skipping.filters.polars import translate_polars

if TYPE_CHECKING:
    from skipping.scans.engines import EngineScan

__all__ = ["lazy_frame"]


def lazy_frame(pl: Any, scan: EngineScan) -> Any:
    """The rows; `pl` is Polars."""
    from polars.io.plugins import register_io_source

    schema = pl.DataFrame(scan.arrow_schema.empty_table()).schema

    def frames(
        columns: list[str] | None, predicate: Any, rows: int | None, size: int | None
    ) -> Iterator[Any]:
        """What Polars reads: these columns, of the rows of the predicate, so many at most."""
        wanted = list(schema) if columns is None else columns
        named = set(wanted)
        if predicate is not None:
            named |= set(predicate.meta.root_names())
        # Some column, if it is none: without one there are no rows to count.
        names = [name for name in schema if name in named] or list(schema)[:1]
        asked: Predicate = And(())
        if predicate is not None and rows is None:
            asked = translate_polars(predicate, scan.known())
        with scan.narrowed(names, asked).to_arrow_batch_reader() as reader:
            for batch in reader:
                frame = pl.DataFrame(batch)
                if rows is not None:  # so many before the predicate, as Polars has it
                    frame, rows = frame.head(rows), rows - min(rows, len(frame))
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame.select(wanted)
                if rows == 0:
                    return

    return register_io_source(frames, schema=schema, validate_schema=True)
