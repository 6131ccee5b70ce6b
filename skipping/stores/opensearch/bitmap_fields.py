"""Read BYTES fields from doc values into the driver's cache (`slices`).

One layout is read at a time, because its values have the same length; only documents with a known
sketch are read. If a document is missing or its value is cut off, the file is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers.index_predicate import BitsSet
from skipping.stores.opensearch.client import PAGE_SIZE, Body
from skipping.stores.opensearch.documents import BYTES, decode_values
from skipping.stores.opensearch.index import ORDER, Entries
from skipping.stores.slices import Block, Slices, TooLarge, block_of, collect_slices

_AT_ONCE = 16 << 20  # approximate bytes of values in one response


def read_slices(entries: Entries, test: BitsSet, kept: Slices | None, *, most: int) -> Slices:
    """Return a test's field of all files; update `kept` values to the record's generation.

    Raises TooLarge for more than `most` bytes.
    """
    after: Body = {"range": {"generation": {"gt": kept.generation if kept is not None else 0}}}
    blocks = (
        block
        for layout, keys in test.probes
        for block in _blocks(entries, test, layout, keys, after, most)
    )
    read = collect_slices(entries.record.generation, blocks, most=most)
    if kept is None:
        return read.after(Slices(entries.record.generation), entries.unswept())
    return kept.after(read, [*entries.unswept(), *entries.find_tombstones(after)])


def _blocks(
    entries: Entries,
    test: BitsSet,
    layout: int,
    keys: pa.FixedSizeListArray,
    after: Body,
    most: int,
) -> Iterator[Block]:
    last = pc.max(keys.flatten()).as_py()
    size = max(64, min(PAGE_SIZE, _AT_ONCE // ((last or 0) // 8 + 1)))
    field, type = f"{BYTES}.{test.sketch}_{test.field}", pa.large_binary()
    wanted: list[Body] = [
        {"term": {f"{test.sketch}_known": True}},
        {"term": {f"{test.sketch}_{test.layout}": layout}},
    ]
    body = {
        "query": entries.visible(after, *wanted),
        "_source": False,
        "stored_fields": "_none_",
        "docvalue_fields": [field],
    }
    hits = entries.pages(body, ORDER, size=size)
    while page := list(islice(hits, size)):
        found = [(h["sort"][0], h["fields"][field]) for h in page if field in h.get("fields", {})]
        files = np.array([ordinal for ordinal, _ in found], np.int64)
        values = [decode_values(type, value) for _, value in found]
        lengths = np.array([len(value) for value in values], np.int64)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            # Each bit takes a word for up to 64 files.
            if 64 * int(length) * -(-len(rows) // 64) > most:
                raise TooLarge(f"values of {length:,} bytes do not fit into the cache")
            octets = np.frombuffer(b"".join([values[row] for row in rows]), np.uint8)
            yield block_of(layout, files[rows], octets.reshape(len(rows), length))
