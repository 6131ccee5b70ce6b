"""How much of what a cluster says is taken into the driver.

Whoever may write into a cluster, or is between it and the driver, decides what answers hold. What
is more than this is refused with the reason, before it is unpacked: then the files are unknown and
are read. Each limit is several times what the largest tables need that were run, of four million
files.
"""

from __future__ import annotations

__all__ = ["DOCUMENTS", "OBJECTS", "PAGE", "RESPONSE", "TABLE", "VALUES"]

RESPONSE = 256 << 20
"""Bytes of one answer: the pages of a large table are tens of MB, a bitmap for each of a hundred
tests at four million files is 130."""

OBJECTS = 4_000_000
"""Objects and lists in one answer: each takes a hundred times its two bytes in memory."""

VALUES = 16_000_000
"""Values in one answer: a number takes up to twenty times its two bytes in memory."""

PAGE = 64 << 20
"""Bytes that one page of entries has when it is unpacked: ours have some MB."""

TABLE = 2 << 30
"""Bytes of all that is read at a time about one table: of its pages when they are unpacked, of its
documents as they come."""

DOCUMENTS = 32 << 20
"""Bytes of documents of the catalogue that come in one answer, and so the most of one of them.
Those of most tables have some KB."""
