"""Pages of thousands of entries, which a new driver reads instead of one document for each file.

Each write adds pages with the identities and SCALAR fields of its files, as Arrow in Base64. Pages
are a copy, and are visible with their documents. If they have another number of files, or are
invalid, the documents are read. Tombstones remove entries from them. Reading 100,000 documents one
by one takes seconds.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import Damaged
from skipping.stores import IDENTITY
from skipping.stores.entries import is_scalar, sketches
from skipping.stores.opensearch import limits
from skipping.stores.opensearch.client import Body
from skipping.stores.opensearch.documents import table_of
from skipping.stores.opensearch.http import TooMuch
from skipping.stores.untrusted import read_stream

PAGE, NUMBER = "page", "page_number"
"""The fields of a page: its data, and its number within the write."""

_FILES = 10_000
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")
_Numbers = npt.NDArray[np.int64]


def pages(
    documents: Iterable[tuple[Body, Body]], types: dict[str, pa.DataType], *, generation: int
) -> list[tuple[Body, Body]]:
    """Return the pages to create with the documents of one generation."""
    bodies = sorted((body for _, body in documents), key=lambda body: int(body["ordinal"]))
    scalars = [name for name, type in types.items() if is_scalar(type)]
    made = []
    for number, start in enumerate(range(0, len(bodies), _FILES)):
        part = bodies[start : start + _FILES]
        stored = [name for name in scalars if any(name in body for body in part)]
        table = table_of(part, stored, types, identity=("ordinal",))
        for field in list(IDENTITY)[1:]:
            values = pa.array([body.get(field.name) for body in part], field.type)
            table = table.append_column(field, values)
        page = {PAGE: _pack(table), NUMBER: number, "generation": generation}
        made.append(({"create": {"_id": f"p{number}.{generation}"}}, page))
    return made


def unpack_pages(
    sources: Iterable[Body],
    removed: Sequence[int],
    fields: Sequence[str],
    types: Mapping[str, pa.DataType],
    *,
    most: int,
) -> pa.Table:
    """Return the entries with these SCALAR fields, sorted by ordinal.

    Raises Damaged for invalid pages, for a page that unpacks to more than `limits.PAGE`, and for
    more than `most` rows in all. Raises TooMuch if all pages take more than `limits.TABLE`.
    """
    wanted = {*IDENTITY.names, *fields, *(f"{sketch}_known" for sketch in sketches(fields))}
    tables, room = list[pa.Table](), limits.TABLE
    for source in sources:
        table = _table(source[PAGE])
        most -= len(table)
        if most < 0:  # a page of 3 KB can have two million
            raise Damaged("the pages have more rows than there are documents")
        tables.append(table.select([name for name in table.schema.names if name in wanted]))
        room -= tables[-1].nbytes
        if room < 0:
            raise TooMuch(f"the pages have more than {limits.TABLE >> 20} MB, the limit of a read")
    named = [t.select(IDENTITY.names).filter(t["path"].is_valid()) for t in tables]
    entries = pa.concat_tables([IDENTITY.empty_table(), *named]).sort_by("ordinal")
    gone = pa.array(removed, pa.int64())
    entries = entries.filter(pc.invert(pc.is_in(entries["ordinal"], value_set=gone)))
    entries = entries.combine_chunks()
    ordinals = entries["ordinal"].to_numpy()
    columns = {}
    for names in sketches(fields).values():
        known = f"{names[0].partition('_')[0]}_known"
        # A sketch never changes, so each file has it in one page only.
        parts = [t.filter(t[known].is_valid()) for t in tables if known in t.schema.names]
        for name in names:
            type = types.get(name, pa.null())
            there = [(t["ordinal"], t[name]) for t in parts if name in t.schema.names]
            columns[name] = _align(there, type, ordinals)
    for name in fields:
        entries = entries.append_column(name, columns[name])
    return entries


def _align(
    parts: Sequence[tuple[pa.ChunkedArray, pa.ChunkedArray]], type: pa.DataType, at: _Numbers
) -> pa.Array:
    """Return the values of these ordinals; null for missing ones."""
    if not parts:
        return pa.nulls(len(at), type)
    numbers = np.concatenate([ordinals.to_numpy() for ordinals, _ in parts])
    values = pa.concat_arrays([c.cast(type) for _, column in parts for c in column.chunks])
    order = np.argsort(numbers, kind="stable")
    rows = np.searchsorted(numbers[order], at)
    missing = np.append(numbers[order], -1)[rows] != at
    return values.take(pa.array(np.append(order, 0)[rows], mask=missing))


def _pack(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return b64encode(sink.getvalue()).decode()


def _table(page: str) -> pa.Table:
    return read_stream(b64decode(page), most=limits.PAGE)
