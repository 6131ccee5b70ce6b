"""Avro files (manifests and lists of manifests), decoded with a check of every length.

PyIceberg decodes with a Cython class that does not check bounds: a length that is larger than its
block returns whatever memory lies behind it, or ends the process. This decoder is pure Python,
whose slices cannot leave the block. PyIceberg resolves the schemas and makes the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.schema import Schema

__all__ = ["Decoder", "read_records"]

_WIDEST = 70
"""Bits in the bytes of the longest number: ten bytes of seven."""


class Decoder(BinaryDecoder):
    """Values of one block; raises ValueError for one that does not end in it."""

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
                f"an Avro value of {n} bytes, where {len(self._data) - start} are left"
            )
        self._at = end
        return self._data[start:end]

    def skip(self, n: int) -> None:
        """Leave out the next `n` bytes."""
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
                    raise ValueError("an Avro number of more than 64 bits")
        except IndexError:
            raise ValueError("an Avro number that does not end in its block") from None
        self._at = at + 1
        return (number >> 1) ^ -(number & 1)

    def read_bytes(self) -> bytes:
        """Read the next bytes, which their number precedes."""
        return self.read(self.read_int())

    def skip_int(self) -> None:
        """Leave out the next number."""
        self.read_int()


def read_records(
    data: bytes,
    schema: Schema,
    types: Mapping[int, Callable[..., Any]],
    enums: Mapping[int, Callable[..., Any]],
) -> Iterator[Any]:
    """Yield the records of a file by a schema; raises ValueError for other data than Avro.

    A file that is cut off raises, too: PyIceberg's own reader returns what came before the cut.
    """
    decoder = Decoder(data)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    if header.magic != MAGIC:
        raise ValueError("no Avro file")
    codec = header.compression_codec()
    reader: Reader = resolve_reader(header.get_schema(), schema, dict(types), dict(enums))
    while not decoder.at_end:
        count, block = decoder.read_int(), decoder.read_bytes()
        if decoder.read(SYNC_SIZE) != header.sync:
            raise ValueError("an Avro block without its sync marker")
        inside = Decoder(codec.decompress(block) if codec else block)
        for _ in range(count):
            yield reader.read(inside)
