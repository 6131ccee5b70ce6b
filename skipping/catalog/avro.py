"""Decode Avro files (manifests and manifest lists), and check every length.

PyIceberg decodes with a Cython class that does not check bounds: a length beyond the block returns
the memory behind it, or crashes the process. This decoder is pure Python, whose slices cannot leave
the block. PyIceberg resolves the schemas and creates the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.schema import Schema

_WIDEST = 70
"""Bits in the bytes of the longest number: ten bytes of seven."""


class Decoder(BinaryDecoder):
    """Decodes the values of one block; raises ValueError if one does not end in it."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether the end is reached."""
        return self._at == len(self._data)

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def read(self, n: int) -> bytes:
        """Read the next `n` bytes."""
        start, end = self._at, self._at + n
        if n < 0 or end > len(self._data):
            raise ValueError(
                f"an Avro value has {n} bytes, but only {len(self._data) - start} are left"
            )
        self._at = end
        return self._data[start:end]

    def skip(self, n: int) -> None:
        """Skip the next `n` bytes."""
        self.read(n)

    def read_int(self) -> int:
        """Read the next number: zigzag, seven bits per byte."""
        data, at = self._data, self._at
        try:
            byte = data[at]
            number, shift = byte & 0x7F, 7
            while byte & 0x80:
                at += 1
                byte = data[at]
                number |= (byte & 0x7F) << shift
                shift += 7
                if shift > _WIDEST:
                    raise ValueError("an Avro number has more than 64 bits")
        except IndexError:
            raise ValueError("an Avro number does not end in its block") from None
        self._at = at + 1
        return (number >> 1) ^ -(number & 1)

    def read_bytes(self) -> bytes:
        """Read the next byte string, after its length."""
        return self.read(self.read_int())

    def skip_int(self) -> None:
        """Skip the next number."""
        self.read_int()


def read_records(
    data: bytes,
    schema: Schema,
    types: Mapping[int, Callable[..., Any]],
    enums: Mapping[int, Callable[..., Any]],
) -> Iterator[Any]:
    """Yield the records of a file, read with `schema`; raise ValueError if it is not Avro.

    It raises for a truncated file, too; PyIceberg's own reader returns the records before the cut.
    """
    decoder = Decoder(data)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    if header.magic != MAGIC:
        raise ValueError("the file is not Avro")
    codec = header.compression_codec()
    reader: Reader = resolve_reader(header.get_schema(), schema, dict(types), dict(enums))
    while not decoder.at_end:
        count, block = decoder.read_int(), decoder.read_bytes()
        if decoder.read(SYNC_SIZE) != header.sync:
            raise ValueError("an Avro block has no sync marker")
        inside = Decoder(codec.decompress(block) if codec else block)
        for _ in range(count):
            yield reader.read(inside)
