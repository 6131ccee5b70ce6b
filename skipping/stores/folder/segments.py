"""Write the entries of an index as objects with Arrow data, and read them back.

A small segment is one object with all columns, so that it costs one request. A larger one has an
object for the identities with the bounds, and one for each larger sketch, which is read when a
query first needs it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from providers.errors import Damaged
from skipping.stores import IDENTITY
from skipping.stores.entries import is_scalar, portions, sketches
from skipping.stores.folder.log import Part, Segment
from skipping.stores.untrusted import read_stream

MOST_PART = 1 << 30
"""Maximum of bytes of an object with entries."""

_SMALL = 1 << 20  # bytes up to which a segment is one object
_MOST_UNPACKED = 2 << 30
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def write_segments(entries: pa.Table) -> Iterator[tuple[Segment, dict[str, bytes]]]:
    """Yield segments that together have these entries, and the bytes of their objects by name."""
    for some in portions(entries, np.arange(len(entries))):
        yield _write(some)


def _write(entries: pa.Table) -> tuple[Segment, dict[str, bytes]]:
    number = uuid.uuid4().hex
    by_sketch = sketches(entries.schema.names)
    whole = entries.nbytes <= _SMALL
    first = [
        name
        for name, columns in by_sketch.items()
        if whole or all(is_scalar(entries.schema.field(column).type) for column in columns)
    ]
    columns = [*IDENTITY.names, *(column for name in first for column in by_sketch[name])]
    plan = [(f"data/{number}.arrow", tuple(first), columns)]
    for name, columns in by_sketch.items():
        if name not in first:
            plan.append((f"data/{number}-{name}.arrow", (name,), ["ordinal", *columns]))
    parts, objects = [], {}
    for path, names, columns in plan:
        data = _pack(entries.select(columns))
        objects[path] = data
        parts.append(
            Part(path, len(data), hashlib.sha256(data).hexdigest(), names, path == plan[0][0])
        )
    return Segment(len(entries), tuple(parts)), objects


def _pack(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_part(part: Part, data: bytes, rows: int) -> pa.Table:
    """Return the table of an object; raise Damaged if it is not what a commit says.

    It has the column `ordinal`, the columns of its sketches, and maybe the other identities.
    """
    if len(data) != part.bytes or hashlib.sha256(data).hexdigest() != part.digest:
        raise Damaged(f"{part.name} is not what was written")
    table = read_stream(data, most=_MOST_UNPACKED)
    names = set(table.schema.names)
    wanted = set(IDENTITY.names if part.identities else ["ordinal"])
    if (
        len(table) != rows
        or set(sketches(list(names - set(IDENTITY.names)))) != set(part.sketches)
        or names & set(IDENTITY.names) != wanted
        or table.schema.field("ordinal").type != pa.int64()
        or table["ordinal"].null_count
    ):
        raise Damaged(f"{part.name} has other rows or columns than its commit says")
    return table
