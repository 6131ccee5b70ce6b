"""Cache compiled classes on disk, so that a release's Java is compiled once, not in each session.

The classes run with all rights of this process. So they are loaded only from a folder and a file
that no other user can write, and only if each class has the SHA-256 in the manifest. Any other
entry is ignored. `rewrite/jars.py` caches the jars of a start in the same way.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import secrets
import stat
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["load", "save"]

log = logging.getLogger("skipping")

_KEPT = 4
"""Maximum number of entries; the least recently used are removed."""

_LONGEST = 64 << 20
"""Maximum size of an entry in bytes."""

_ABANDONED = 3600.0
"""Seconds after which an unfinished file is removed."""

_MANIFEST = "manifest.json"


def folder(kind: str = "classes") -> Path:
    """Return the folder of the cache: `$XDG_CACHE_HOME/lakehouse-file-skipping/classes`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".cache"
    return base / "lakehouse-file-skipping" / kind


def load(key: str, kind: str = "classes") -> dict[str, bytes] | None:
    """Return the class files with a key (hexadecimal), by resource name; None if not cached."""
    try:
        with _open_folder(kind, create=False) as within:
            content = _read(within, f"{key}.zip")
            os.utime(f"{key}.zip", dir_fd=within)
        return _unpack(key, content)
    except FileNotFoundError:
        return None
    except Exception as error:
        log.info("cannot load cached %s: %s: %s", kind, type(error).__name__, error)
        return None


def save(key: str, classes: Mapping[str, bytes], kind: str = "classes") -> None:
    """Cache class files under a key; only log a failure."""
    try:
        with _open_folder(kind, create=True) as within:
            unfinished = f"{secrets.token_hex(8)}.unfinished"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(unfinished, flags, 0o600, dir_fd=within), "wb") as file:
                file.write(_pack(key, classes))
            os.replace(unfinished, f"{key}.zip", src_dir_fd=within, dst_dir_fd=within)
            with suppress(FileNotFoundError):  # another process may clean at the same time
                _clean(within)
    except Exception as error:
        log.info("cannot cache %s: %s: %s", kind, type(error).__name__, error)


@contextmanager
def _open_folder(kind: str, *, create: bool) -> Iterator[int]:
    """Open the folder. The handle stays valid if the path is replaced by another folder."""
    path = folder(kind)
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    within = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _is_private(os.fstat(within)):
            raise PermissionError(f"other users can access {path}")
        yield within
    finally:
        os.close(within)


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _read(within: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(name, flags, dir_fd=within), "rb") as file:
        found = os.fstat(file.fileno())
        # `st_nlink` is 0 if another process has replaced the entry meanwhile.
        if not stat.S_ISREG(found.st_mode) or not _is_private(found) or found.st_nlink > 1:
            raise PermissionError(f"other users can access {name}")
        if found.st_size > _LONGEST:
            raise ValueError(f"{name} has {found.st_size:,} bytes, more than {_LONGEST:,}")
        return file.read(_LONGEST)


def _pack(key: str, classes: Mapping[str, bytes]) -> bytes:
    manifest = {
        "key": key,
        "sha256": {name: hashlib.sha256(code).hexdigest() for name, code in classes.items()},
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(_MANIFEST, json.dumps(manifest))
        for name, code in classes.items():
            archive.writestr(name, code)
    return out.getvalue()


def _unpack(key: str, content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        manifest = json.loads(archive.read(_MANIFEST))
        hashes = manifest["sha256"]
        if manifest["key"] != key or {_MANIFEST, *hashes} != set(archive.namelist()):
            raise ValueError("the manifest belongs to another entry")
        classes = {name: archive.read(name) for name in hashes}
    for name, code in classes.items():
        if hashlib.sha256(code).hexdigest() != hashes[name]:
            raise ValueError(f"{name} is damaged")
    return classes


def _clean(within: int) -> None:
    """Remove the least recently used entries, and unfinished files of dead processes."""
    found = {name: os.stat(name, dir_fd=within).st_mtime for name in os.listdir(within)}
    entries = sorted((n for n in found if n.endswith(".zip")), key=found.__getitem__, reverse=True)
    old = time.time() - _ABANDONED
    unfinished = [n for n, at in found.items() if n.endswith(".unfinished") and at < old]
    for name in (*entries[_KEPT:], *unfinished):
        os.unlink(name, dir_fd=within)
