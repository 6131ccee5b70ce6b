"""Convert lists of Iceberg's data files, from any library, to FILES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from providers.values import arrow_type
from skipping.tables import FILES
from skipping.tables.iceberg.metadata import Metadata
from skipping.tables.partition_texts import partition_texts

_UNSURE = "\0"
"""A text that is not a value of any type of partition columns, except strings."""

LISTED = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("stamp", pa.int64()),  # the number of records
        ("spec", pa.int32()),
        ("format", pa.string()),
    ]
)


def listed_table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return a table with the schema LISTED from its rows."""
    return pa.table([[row[i] for row in rows] for i in range(len(LISTED))], schema=LISTED)


def data_files(
    listed: pa.Table, values: Mapping[int, pa.ChunkedArray | Sequence[Any]], metadata: Metadata
) -> pa.Table:
    """Return a FILES table from LISTED columns, and partition values by the id of their column.

    Locations keep their spelling, with or without a scheme, because it is unknown whether two
    spellings are one file. Only identity transforms have values of the column itself. Values that a
    file's spec lacks are left out, which is not the same as null.
    """
    types = {c.physical.field_id: c.type for c in metadata.columns().values()}
    texts = {id: _texts(array, types.get(id, "")) for id, array in values.items()}
    logged = {s: [i for i in metadata.places_of(s) if i in texts] for s in metadata.specs}
    partition = [
        [(f"#{id}", texts[id][row]) for id in logged.get(spec, ())]
        for row, spec in enumerate(listed["spec"].to_pylist())
    ]
    return pa.table(
        [
            *(listed[name].cast(FILES.field(name).type) for name in ("path", "size", "stamp")),
            pa.array(partition, FILES.field("partition").type),
            pc.utf8_lower(listed["format"].cast(pa.string())),
        ],
        schema=FILES,
    )


def _texts(values: pa.ChunkedArray | Sequence[Any], type: str) -> list[str | None]:
    """Return partition values as text for `partition_values` of `skipping.indexing`.

    The values are Arrow's, or Python's as in manifests, where days and microseconds are numbers.
    """
    arrow = arrow_type(type)
    if arrow is None or pa.types.is_binary(arrow):
        return [_UNSURE] * len(values)
    if not isinstance(values, pa.ChunkedArray):
        counted = pa.int32() if pa.types.is_date32(arrow) else pa.int64()
        is_counted = pa.types.is_date32(arrow) or pa.types.is_timestamp(arrow)
        values = pa.array(values, counted if is_counted else arrow)
    return partition_texts(values.cast(arrow))
