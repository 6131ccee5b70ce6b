"""Open Delta tables with delta-rs; this process indexes and queries them, without Spark."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

from providers.errors import TableError
from skipping.sources.base import Source
from skipping.sources.environment import environment_source

_INSTALL = "pip install 'lakehouse-file-skipping[delta]'"


def deltalake_source(table: Any) -> Source:
    """Open a `DeltaTable` with the environment's settings."""
    from skipping.tables.delta.deltalake import DeltaLakeTable

    return environment_source(DeltaLakeTable(table))


def delta_path_source(name: str) -> Source:
    """Open a Delta table by its path as in Spark: `/data/t`, `s3a://bucket/t`, ``delta.`/t` ``.

    Credentials come from environment variables (`AWS_ACCESS_KEY_ID`, ...). Raises TableError if the
    name is not a path, and ImportError without delta-rs.
    """
    if find_spec("deltalake") is None:
        raise ImportError(f"Delta tables without Spark need delta-rs: {_INSTALL}")
    from skipping.tables.delta.deltalake import open_delta

    path = re.sub(r"\A(?:delta\.)?`(.*)`\Z", r"\1", name, flags=re.DOTALL)
    match = re.fullmatch(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(/.*)", path, re.DOTALL)
    if match is None:
        raise TableError(
            f"{name} is not an absolute path or URL: only Spark can open a table by its name"
        )
    # delta-rs takes the text as a URL, so characters in the path must be quoted.
    url = f"{match[1] or 'file'}://{match[2] or ''}{quote(match[3])}"
    return deltalake_source(open_delta(url, path))
