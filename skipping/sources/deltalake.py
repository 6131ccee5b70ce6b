"""Tables of delta-rs, indexed and queried in this process, without Spark."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

from providers.errors import TableError
from skipping.sources.base import Source
from skipping.sources.environment import environment_source

__all__ = ["delta_path_source", "deltalake_source"]

_INSTALL = "pip install 'lakehouse-file-skipping[delta]'"


def deltalake_source(table: Any) -> Source:
    """Open a `DeltaTable` with the environment's settings."""
    from skipping.tables.delta.deltalake import DeltaLakeTable

    opened = DeltaLakeTable(table)
    return environment_source(opened, opened.locate)


def delta_path_source(name: str) -> Source:
    """Open a Delta table by its path in Spark: `/data/t`, `s3a://bucket/t`, ``delta.`/t` ``.

    Credentials are the environment's (`AWS_ACCESS_KEY_ID`, ...). Raises TableError for any other
    name, ImportError without delta-rs.
    """
    if find_spec("deltalake") is None:
        raise ImportError(f"Delta tables without Spark need delta-rs: {_INSTALL}")
    from skipping.tables.delta.deltalake import open_delta

    path = re.sub(r"\A(?:delta\.)?`(.*)`\Z", r"\1", name, flags=re.DOTALL)
    match = re.fullmatch(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(/.*)", path, re.DOTALL)
    if match is None:
        raise TableError(f"{name} is not a path: a table of a catalog needs Spark")
    # Text would be taken for a URL that is quoted already, whatever it is.
    url = f"{match[1] or 'file'}://{match[2] or ''}{quote(match[3])}"
    return deltalake_source(open_delta(url, path))
