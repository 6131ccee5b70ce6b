"""Versions of tables without a log: a digest of their files."""

from __future__ import annotations

import hashlib

import pyarrow as pa

__all__ = ["digest_of"]


def digest_of(files: pa.Table) -> int:
    """Return a digest of the paths, sizes and times of files (FILES, sorted by path)."""
    digest = hashlib.blake2b(digest_size=8)
    for row in zip(*(files[n].to_pylist() for n in ("path", "size", "stamp")), strict=True):
        digest.update(repr(row).encode())
    return int.from_bytes(digest.digest(), "big") >> 1  # stores keep 63 bits
