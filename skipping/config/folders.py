"""The folder in which this user's files on this host are cached."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return a folder of the cache: `$XDG_CACHE_HOME/lakehouse-file-skipping/` and the name."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".cache"
    return base / "lakehouse-file-skipping" / name
