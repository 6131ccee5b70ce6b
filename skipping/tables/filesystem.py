"""Open the storage of data files with Arrow."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs

from providers.errors import TableError, first_line

Locate: TypeAlias = Callable[[str], tuple[pafs.FileSystem, str]]
"""Maps a path of FILES to its file system and the path in it."""

_SCHEMES = {"s3a": "s3", "s3n": "s3"}  # schemes of Hadoop, and Arrow's for the same storage


@functools.cache
def _open_filesystem(scheme: str, authority: str) -> tuple[pafs.FileSystem, str]:
    uri = f"{_SCHEMES.get(scheme, scheme)}://{authority}"
    try:
        filesystem, base = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"pyarrow cannot open {uri}: {first_line(error)}") from error
    return filesystem, base.rstrip("/")


def locate(path: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path of FILES (`file:/tmp/x y`), and the path in it.

    The path is not a URI, so it is not decoded. Raises TableError for a scheme that Arrow cannot
    open.
    """
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", path, re.DOTALL)
    if match is None or match[1] == "file":
        return pafs.LocalFileSystem(), match[3] if match else path
    filesystem, base = _open_filesystem(match[1], match[2] or "")
    return filesystem, base + match[3]


def is_unchanged(found: int, listed: int) -> bool:
    """Return whether a file's time (nanoseconds) equals that of the listing (milliseconds).

    Object stores list milliseconds, but return whole seconds for a single file.
    """
    whole = found % 1_000_000_000 == 0 and found // 1_000_000_000 == listed // 1_000
    return whole or found // 1_000_000 == listed
