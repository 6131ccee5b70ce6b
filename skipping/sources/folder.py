"""Open Parquet folders with pyarrow; this process indexes and queries them, without Spark."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from skipping.sources.base import Source
from skipping.sources.environment import environment_source
from skipping.tables.filesystem import locate
from skipping.tables.parquet.pyarrow import ParquetFolder


def folder_source(given: Any) -> Source:
    """Open a folder by its path, or a pyarrow Dataset, with the environment's settings."""
    is_path = hasattr(given, "__fspath__") or isinstance(given, str)
    return environment_source(ParquetFolder.at(given) if is_path else ParquetFolder.of(given))


def folder_path(name: str) -> str | None:
    """Return the path of a Parquet folder; None for any other name.

    The name is ``parquet.`/data/t` ``, or the path of a folder without a Delta log.
    """
    if match := re.fullmatch(r"parquet\.`(.*)`", name, re.DOTALL):
        return match[1].replace("``", "`")
    if "/" not in name or name.startswith("delta."):
        return None
    try:
        filesystem, inner = locate(ParquetFolder.at(name).root)
        folder, log = filesystem.get_file_info([inner, f"{inner}/_delta_log"])
    except (pa.ArrowException, OSError):
        return None
    is_parquet = folder.type == pafs.FileType.Directory and log.type == pafs.FileType.NotFound
    return name if is_parquet else None
