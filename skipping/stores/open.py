"""Open the store that `spark.skipping.store` names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from providers.errors import SettingError
from skipping.config.folders import cache_folder
from skipping.stores import IndexStore
from skipping.stores.fields import KEPT
from skipping.stores.folder.objects import Objects, ObstoreObjects
from skipping.stores.folder.store import REPLICA_MAX_BYTES, FolderStore
from skipping.stores.fork_safety import Lock
from skipping.stores.memory.store import MemoryStore
from skipping.stores.opensearch.credentials import SCHEMES, Access, server
from skipping.stores.sqlite.schema import VERSION
from skipping.stores.sqlite.store import SqliteStore

# Two letters at least, so that C:\x is a path.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
# Control characters and addresses: errors show the path, which then could have a password.
_NO_PATH = re.compile(r"[\0-\x1f]|//[^/]*@|://")
_SUPPORTED = (
    "supported are sqlite:/path, a path, memory:name, opensearch://host:9200, "
    "opensearch+https://host:9200, and for a folder that drivers share file:///path, "
    "s3a://bucket/path, gs://bucket/path, abfss://container@account/path and hdfs://host/path"
)
_FOLDERS = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs", "file")

_MOST = 32
"""Maximum of open stores of one type: the most recently used. Each has its own connections."""

_memory: dict[str, MemoryStore] = {}
_folders: dict[tuple[str, Path, str], FolderStore] = {}
_lock = Lock()


def open_store(
    url: str,
    *,
    access: Callable[[str], Access] = Access.of,
    objects: Callable[[str], Objects] = ObstoreObjects,
    kept: int = KEPT,
    ttl: float = 0.0,
    replicas: str | None = None,
    replica_max_bytes: int = REPLICA_MAX_BYTES,
    application: str = "",
) -> IndexStore:
    """Return the store at an address.

    This is `memory:name`, `sqlite:/path`, a path, `opensearch://host:9200`,
    `opensearch+https://host:9200`, or a folder: `file:///path` (percent-encoded), `s3a://`,
    `gs://`, `abfss://` or `hdfs://`.

    `access` returns the credentials for a server, `objects` opens object storage. `kept` limits the
    store's cache of fields, in bytes. A folder has a replica in the local folder `replicas` (None
    is the default), to which queries add no sketches above `replica_max_bytes`; they see the
    changes of other drivers `ttl` seconds later at most. A process has one store object for each
    address (and credentials or replica) of the last 32 opened. No file or connection is opened yet.
    Raises SettingError for any other address, and for OpenSearch without the extra `opensearch`.

    >>> open_store("memory:a") is open_store("memory:a")
    True
    >>> open_store("sqlite:/tmp/skipping.db").location
    'sqlite:/tmp/skipping.db'
    """
    url = url.strip()
    match = _SCHEME.fullmatch(url)
    scheme, rest = (match[1].lower(), match[2]) if match else ("", url)
    if scheme == "memory":
        with _lock:
            return _memory.setdefault(rest, MemoryStore(rest))
    if scheme in SCHEMES:
        address = server(url)
        given = access(address)
        with _lock:
            return _cluster(address, given, kept)
    if scheme in _FOLDERS:
        address = _folder_address(url)
        replica = replica_of(address, replicas)
        key = address, replica, application
        with _lock:
            found = _folders.pop(key, None) or FolderStore(
                objects(address), replica, ttl=ttl, kept=kept, replica_max_bytes=replica_max_bytes
            )
            _folders[key] = found
            while len(_folders) > _MOST:
                del _folders[next(iter(_folders))]
            return found
    if scheme == "sqlite" and rest.startswith("//"):
        # SQLAlchemy writes sqlite:///path; sqlite://host is not supported.
        rest = rest[2:] if rest.startswith("///") else ""
    elif scheme not in ("", "sqlite"):
        raise SettingError(f"spark.skipping.store: {scheme}: is not supported; {_SUPPORTED}")
    if not rest or _NO_PATH.search(rest):
        raise SettingError(
            f"spark.skipping.store: {_mask_user(url)!r} is not a local path; {_SUPPORTED}"
        )
    path = Path(rest).absolute()
    with _lock:
        return _file(path, kept)


def _folder_address(url: str) -> str:
    """Return the address of a folder in one form; raise SettingError."""
    parts = urlsplit(url)
    named = parts.scheme.lower() == "file" or bool(parts.netloc)
    if parts.query or parts.fragment or parts.password or not named:
        raise SettingError(
            f"spark.skipping.store: {_mask_user(url)!r} is not the address of a folder; "
            f"{_SUPPORTED}"
        )
    if parts.scheme.lower() != "file":
        return url.rstrip("/")
    path = Path(unquote(parts.path))
    if (
        parts.netloc not in ("", "localhost")
        or not path.is_absolute()
        or _NO_PATH.search(str(path))
    ):
        raise SettingError(
            f"spark.skipping.store: {_mask_user(url)!r} is not a local folder; {_SUPPORTED}"
        )
    if path.is_file():
        raise SettingError(
            f"spark.skipping.store: {path} is a file, but file: names a folder that drivers share. "
            f"For an SQLite store, set it to sqlite:{path}"
        )
    return path.as_uri()


def replica_of(address: str, replicas: str | None = None) -> Path:
    """Return the SQLite file in which this user's drivers on this host keep a folder's replica.

    Releases with another format of the file have a replica of their own.
    """
    if replicas is None:
        folder = cache_folder("replicas")
    elif _SCHEME.fullmatch(replicas) or _NO_PATH.search(replicas):
        raise SettingError(
            f"spark.skipping.store.replica: {_mask_user(replicas)!r} is not a local folder"
        )
    else:
        folder = Path(replicas).absolute()
    return folder / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}-{VERSION}.sqlite"


def missing_folder(store: IndexStore) -> Path | None:
    """Return the folder of an SQLite store if it does not exist yet; else None."""
    if not isinstance(store, SqliteStore):
        return None
    folder = Path(store.location.removeprefix("sqlite:")).parent
    return None if folder.exists() else folder


def _mask_user(url: str) -> str:
    """Hide the user and password of an address, and its query, which may have a token."""
    url = re.sub(r"[?#].*", "?...", url, flags=re.DOTALL)
    return re.sub(r"(//|^)[^/].*@", r"\1...@", url, flags=re.DOTALL)


@lru_cache(maxsize=_MOST)
def _file(path: Path, kept: int) -> SqliteStore:
    return SqliteStore(path, kept=kept)


@lru_cache(maxsize=_MOST)
def _cluster(server: str, access: Access, kept: int) -> IndexStore:
    try:
        from skipping.stores.opensearch.store import OpenSearchStore
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opensearchpy":
            raise
        raise SettingError(
            "spark.skipping.store: OpenSearch needs its client, "
            "pip install 'lakehouse-file-skipping[opensearch]'"
        ) from error
    return OpenSearchStore(server, access, kept=kept)
