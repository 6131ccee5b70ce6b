"""Limits on the data that a driver accepts from a cluster.

Anyone who can write into the cluster, or is between it and the driver, controls the responses. A
response above a limit is rejected before it is unpacked: then its files are unknown and are read.
Each limit is several times what the largest tested tables need, with four million files.
"""

from __future__ import annotations

RESPONSE = 256 << 20
"""Bytes of one response. The pages of a large table have tens of MB; bitmaps of a hundred tests on
four million files have 130 MB."""

OBJECTS = 4_000_000
"""Objects and lists in one response. One of two bytes takes a hundred times that in memory."""

VALUES = 16_000_000
"""Values in one response. One of two bytes takes up to twenty times that in memory."""

PAGE = 64 << 20
"""Unpacked bytes of one page of entries; pages of this package have a few MB."""

TABLE = 2 << 30
"""Bytes read at a time for one table: its unpacked pages, or its documents in JSON."""

DOCUMENTS = 32 << 20
"""Bytes of registry documents in one response, and so of one document. Most have a few KB."""
