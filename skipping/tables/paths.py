"""Resolve paths of logs and plans to those of FILES."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc


def resolve_path(root: str, paths: pa.Array) -> pa.Array:
    """Resolve paths of the log, URL-encoded and relative or absolute, to those of a FileStatus.

    >>> resolve_path("file:/t", pa.array(["p=a%2520b/x", "s3://bucket/a%20b/x"])).to_pylist()
    ['file:/t/p=a%20b/x', 's3://bucket/a b/x']
    """
    base = root.rstrip("/")
    plain = pc.binary_join_element_wise(pa.scalar(base), paths, "/")
    special = pc.match_substring_regex(paths, r"%|:|^/|//|(^|/)\.\.?(/|$)")
    if not pc.any(special).as_py():
        return plain
    resolved = [_resolve(base, path) for path in paths.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special, pa.array(resolved, pa.string()))


def _resolve(base: str, path: str) -> str:
    """Resolve a path as Hadoop's `new Path(new URI(path))`, relative to the root."""
    uri = re.fullmatch(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", path, re.DOTALL)
    assert uri is not None, "every part of the pattern is optional"
    scheme, authority, rest = uri[1], uri[2], uri[3]
    inner = posixpath.normpath(unquote(rest))
    if not inner.startswith("/"):
        return f"{base}/{inner}"
    prefix = f"{scheme}:" if scheme else ""
    return prefix + (f"//{authority}" if authority else "") + "/" + inner.lstrip("/")
