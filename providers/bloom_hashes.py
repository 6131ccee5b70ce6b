"""The hashes that pybloom-live makes of keys, many at a time: Arrow in, a matrix out.

Its own `make_hashes` gives those of one key. Whoever uses these compares the two first: releases
of pybloom-live differ in how they hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from struct import pack
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Words", "hashes", "keys_of", "word"]

Words: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""A row a key, a column a slice: numbers yet to be cut to the bits of a slice."""


def word(width: int) -> int:
    """Bytes of a digest that make the hash for a slice of so many bits, up to 2^31.

    16 bits cut to a slice of some 20,000 favour its first part: such a filter, full, lets through
    up to 1.2 times its fpp of 0.001 or more, 1.12 times where its capacity is a power of 2.
    """
    return 2 if width < 1 << 15 else 4


def keys_of(values: pa.Array) -> pa.Array:
    """What pybloom-live hashes of each value, its text in UTF-8; of bytes it is Python's `repr`."""
    if pa.types.is_binary(values.type):
        return pa.array([repr(value).encode() for value in values.to_pylist()], pa.binary())
    return values.cast(pa.string()).cast(pa.binary())


def hashes(keys: pa.Array, *, slices: int, word: int) -> Words:
    """The hashes of each key, one a slice; filters of the same slices and word share them."""
    digest = _digest(8 * slices * word)
    a_digest = digest().digest_size // word
    parts = []
    for salt in range(-(-slices // a_digest)):
        before = pa.scalar(digest(pack("I", salt)).digest(), pa.binary())
        salted = pc.binary_join_element_wise(before, keys, pa.scalar(b"", pa.binary()))
        digests = b"".join([digest(key).digest() for key in salted.to_numpy(zero_copy_only=False)])
        parts.append(np.frombuffer(digests, f"=u{word}").reshape(len(keys), a_digest))
    return np.hstack(parts)[:, :slices]


def _digest(bits: int) -> Callable[..., Any]:
    """The hash function that pybloom-live takes for so many bits a key."""
    if bits > 128:
        steps = ((160, hashlib.sha1), (256, hashlib.sha256), (384, hashlib.sha384))
        return next((function for most, function in steps if bits <= most), hashlib.sha512)
    from xxhash import xxh128  # pybloom-live brings it

    return xxh128
