"""Arrow data that somebody else put into a store: it is read right, or refused."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest

from providers.errors import Damaged
from skipping.stores.untrusted import read_array, read_stream
from tests.conftest import RunPython

FILES = pa.table(
    {
        "ordinal": pa.array(range(300), pa.int64()),
        "path": [f"part-{n:05}.parquet" for n in range(300)],
        "s1_known": pa.array([n % 7 > 0 for n in range(300)]),
        "s1_low": pa.array([n if n % 3 else None for n in range(300)], pa.int64()),
        "s1_text": pa.array([None if n % 5 else f"t\u00e9{n}" for n in range(300)]),
        "s1_bytes": pa.array([bytes([n % 256] * (n % 4)) for n in range(300)]),
    }
)


def pack(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    made: bytes = sink.getvalue().to_pybytes()
    return made


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_read_stream_reads_what_was_written(compression: str | None) -> None:
    chunks = pa.concat_tables([FILES, FILES.slice(5, 100), FILES.slice(0, 0)])
    for table in (FILES, chunks, FILES.slice(0, 0)):
        read = read_stream(pack(table, compression), most=1 << 20)
        assert read.equals(table)
        assert read.schema.equals(table.schema)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.int32()),
        pa.array([1], pa.uint64()),
        pa.array([[[1]]]),
        pa.array([[b"x"]], pa.list_(pa.large_binary())),
        pa.array([{"a": 1}]),
        pa.array(["x"]).dictionary_encode(),
        pa.array(["x"], pa.large_string()),
        pa.array([None]),
        pa.nulls(1, pa.list_(pa.null(), 1 << 30)),
        pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([1])),
    ],
    ids=lambda column: str(column.type),
)
def test_read_stream_refuses_types_that_no_store_keeps(column: pa.Array) -> None:
    with pytest.raises(Damaged, match=r"type that no store uses|holds a"):
        read_stream(pack(pa.table({"x": column})), most=1 << 20)


def test_read_stream_refuses_what_unpacks_to_more_than_its_budget() -> None:
    table = pa.table({"path": ["\0" * (1 << 20)] * 20})
    bomb = pack(table, "zstd")
    assert len(bomb) < 1 << 16
    assert read_stream(bomb, most=21 << 20).equals(table)
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(Damaged, match="more bytes than allowed"):
        read_stream(bomb, most=20 << 20)
    assert pa.default_memory_pool().bytes_allocated() == before
    with pytest.raises(Damaged, match="more bytes than allowed"):
        read_stream(bomb, most=len(bomb))


def test_read_stream_reads_what_is_not_packed_in_its_own_size() -> None:
    plain = pack(FILES)
    assert read_stream(plain, most=len(plain)).equals(FILES)


@pytest.mark.parametrize("data", [b"", b"PAR1" * 50, pack(FILES)[:300], pack(FILES)[400:]])
def test_read_stream_refuses_what_is_no_stream(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_stream(data, most=1 << 20)


def test_read_stream_counts_columns_that_share_a_buffer() -> None:
    """Fields and buffers are named by offsets, so a small block can name one a thousand times."""
    one = pa.array(range(1_000), pa.int64())
    table = pa.table({f"c{n}": one for n in range(9)})
    whole = pack(table)
    with pytest.raises(Damaged, match="more bytes than allowed"):
        read_stream(whole, most=8 * 8_000)
    assert read_stream(whole, most=9 * 8_000).equals(table)


def test_read_stream_counts_messages_without_rows() -> None:
    """Each takes 300 bytes in the block and 2,000 when it is read: 60 MB of them took 77 s."""

    def block(count: int) -> pa.Buffer:
        (full,) = FILES.to_batches()
        empty = pa.record_batch([pa.array([], f.type) for f in FILES.schema], schema=FILES.schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FILES.schema) as writer:
            for batch in (full, *[empty] * count):
                writer.write_batch(batch)
        return sink.getvalue()

    most = 10_000 // len(FILES.schema)
    assert read_stream(block(most - 1), most=1 << 20).equals(FILES)
    for count in (most, 11_000):
        with pytest.raises(Damaged, match="more messages than any release writes"):
            read_stream(block(count), most=1 << 20)


@pytest.mark.parametrize(
    "ends", [[0, 2_000_000_000, 4], [0, -1_000_000_000, 4], [0, 1, 200_000], [3, 1, 4]]
)
def test_read_array_refuses_offsets_that_lead_out(ends: list[int]) -> None:
    values = memoryview(b"abcd")
    good = memoryview(pa.array([0, 1, 4], pa.int32()).buffers()[1])
    assert read_array(pa.binary(), 2, good, values).to_pylist() == [b"a", b"bcd"]
    forged = memoryview(pa.array(ends, pa.int32()).buffers()[1])
    with pytest.raises(Damaged):
        read_array(pa.binary(), 2, forged, values)


CHILD = """
import json, random, resource, sys
from collections import Counter
import pyarrow as pa, pyarrow.compute as pc
from providers.errors import Damaged
from skipping.stores.untrusted import read_stream
from tests.skipping.stores.test_untrusted import FILES, pack
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
chosen, seen = random.Random(int(sys.argv[1])), Counter()
words = [b"\\xff\\xff\\xff\\x7f", b"\\0\\0\\0\\x80", b"\\xff" * 8, b"\\0" * 8, b"\\0\\x10\\0\\0"]
words += [(2**62).to_bytes(8, "little"), (2_000_000_000).to_bytes(4, "little")]
for compression in (None, "zstd", "lz4"):
    whole = pack(FILES, compression)
    for _ in range(int(sys.argv[2])):
        data = bytearray(whole)
        for _ in range(chosen.choice((1, 1, 2, 4))):
            at = chosen.randrange(len(data) - 8)
            if chosen.random() < 0.5:
                data[at] = chosen.randrange(256)
            else:
                word = chosen.choice(words)
                data[at & ~3 : (at & ~3) + len(word)] = word
        try:
            table = read_stream(bytes(data), most=1 << 20)
        except Damaged:
            seen["refused"] += 1
            continue
        # What is taken is used: as values, in order, and together with others.
        table.to_pylist()
        table.combine_chunks().sort_by(table.schema.names[0])
        for column in table.columns:
            pc.is_in(column, value_set=column.combine_chunks())
        seen["taken"] += 1
print(json.dumps(seen))
"""


def test_read_stream_survives_forged_bytes(run_python: RunPython) -> None:
    run = run_python("-c", CHILD, 37, 700)
    assert run.returncode == 0, run.stderr[-2_000:]
    seen = Counter[str](json.loads(run.stdout))
    assert seen["refused"] > 300
    assert seen["refused"] + seen["taken"] == 2_100
