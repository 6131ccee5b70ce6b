"""Versions of tables that have none: a digest of their files."""

from __future__ import annotations

import hashlib

import pyarrow as pa

__all__ = ["digest_of"]


def digest_of(files: pa.Table) -> int:
    """A number for a list of files (FILES, by path), of their paths, sizes and times."""
    digest = hashlib.blake2b(digest_size=8)
    for row in zip(*(files[n].to_pylist() for n in ("path", "size", "stamp")), strict=True):
        digest.update(repr(row).encode())
    return int.from_bytes(digest.digest(), "big") >> 1  # stores keep 63 bits
