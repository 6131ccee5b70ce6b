"""Convert typed partition values to text, as logs have them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def partition_texts(values: pa.ChunkedArray) -> list[str | None]:
    """Convert values to the text that `partition_value` of `skipping.indexing` parses."""
    plain = values.cast(pa.string())
    if pa.types.is_floating(values.type):
        spelled = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
        return [
            None if t is None else spelled.get(t, t.upper().replace("+", ""))
            for t in plain.to_pylist()
        ]
    if pa.types.is_timestamp(values.type):
        plain = pc.replace_substring(plain, " ", "T")
    texts: list[str | None] = plain.to_pylist()
    return texts
