"""Compute pybloom-live's hashes of many keys at a time: Arrow in, a matrix out.

pybloom-live's `make_hashes` hashes one key. Callers compare the two first, because releases of
pybloom-live hash differently.
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

Words: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""A row for each key, a column for each slice: numbers before the modulus by the slice's bits."""


def word(width: int) -> int:
    """Return how many bytes of a digest pybloom-live uses for a slice of `width` bits (up to 2^31).

    Two bytes modulo some 20,000 are not uniform: they favour the first part of the slice. So a full
    filter of that size has up to 1.2 times its fpp (0.001 or more), or 1.12 times if its capacity
    is a power of 2.
    """
    return 2 if width < 1 << 15 else 4


def keys_of(values: pa.Array) -> pa.Array:
    """Return the bytes that pybloom-live hashes: UTF-8 for text, Python's `repr` for bytes."""
    if pa.types.is_binary(values.type):
        return pa.array([repr(value).encode() for value in values.to_pylist()], pa.binary())
    return values.cast(pa.string()).cast(pa.binary())


def hashes(keys: pa.Array, *, slices: int, word: int) -> Words:
    """Hash each key for each slice; filters with the same slices and word share the hashes."""
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
    if bits > 128:
        steps = ((160, hashlib.sha1), (256, hashlib.sha256), (384, hashlib.sha384))
        return next((function for most, function in steps if bits <= most), hashlib.sha512)
    from xxhash import xxh128  # a dependency of pybloom-live

    return xxh128
