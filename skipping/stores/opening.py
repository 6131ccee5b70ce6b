"""From the setting `spark.skipping.store` to a store."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

from providers.errors import SettingError
from skipping.stores import IndexStore
from skipping.stores.memory import MemoryStore
from skipping.stores.sqlite import SqliteStore

__all__ = ["open_store"]

# Two letters at least, so that C:\x is a path.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_SUPPORTED = "supported are sqlite:/path, a path, file:/path and memory:name"

_memory: dict[str, MemoryStore] = {}
_lock = threading.Lock()


def open_store(url: str) -> IndexStore:
    """The store at `memory:name`, `sqlite:/path`, `file:/path` (percent-encoded) or a path.

    `memory:` with one name is one store for the whole process. Nothing is opened or created yet.
    Raises SettingError for anything else.

    >>> open_store("memory:a") is open_store("memory:a")
    True
    >>> open_store("sqlite:/tmp/skipping.db").location
    'sqlite:/tmp/skipping.db'
    """
    match = _SCHEME.fullmatch(url)
    scheme, rest = (match[1].lower(), match[2]) if match else ("", url)
    if scheme == "memory":
        with _lock:
            return _memory.setdefault(rest, MemoryStore(rest))
    if scheme == "file":
        parts = urlsplit(url)
        local = parts.netloc in ("", "localhost") and not parts.query and not parts.fragment
        rest = unquote(parts.path) if local else ""
    elif scheme == "sqlite" and rest.startswith("//"):
        # sqlite:///path is how SQLAlchemy spells it; sqlite://host is nothing we can reach.
        rest = rest[2:] if rest.startswith("///") else ""
    elif scheme not in ("", "sqlite"):
        raise SettingError(f"spark.skipping.store: no store at {scheme}: yet; {_SUPPORTED}")
    if not rest or "\0" in rest:
        raise SettingError(f"spark.skipping.store: {url!r} names no local path; {_SUPPORTED}")
    return SqliteStore(Path(rest))
