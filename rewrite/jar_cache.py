"""Cache which jars Ivy resolved, so that later starts of Spark need no Ivy.

Spark loads cached jars from `spark.jars`. The cache is used only if `session` chose all packages,
the settings are the same, and no jar has changed since; otherwise Ivy resolves the packages again.

The jars run with all rights of this process. So an entry is read only from a folder and a file that
no other user can write; any other entry is ignored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from skipping.config.folders import cache_folder

log = logging.getLogger("skipping")

_SETTINGS = ("packages", "excludes", "repositories", "ivy", "ivySettings")

_KEPT = 4
"""Maximum number of entries; the least recently used are removed."""

_LONGEST = 1 << 20
"""Maximum size of an entry in bytes."""

_ABANDONED = 3600.0
"""Seconds after which an unfinished file is removed."""


class Jars:
    """The jars for one start of Spark.

    `given` are the user's settings, `settings` those passed to Spark.
    """

    def __init__(self, given: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        # A running JVM loads no more jars. The user's packages may contain Python files, which
        # Spark adds to the path only if it resolves the packages.
        own = any(given.get(key) for key in ("spark.jars", "spark.jars.packages"))
        packages = settings.get("spark.jars.packages")
        self._key = None
        if packages and not own and SparkContext._gateway is None:
            self._key = _key(settings)

    def settings(self) -> dict[str, str]:
        """Return settings that replace `spark.jars.packages`; empty if a jar has changed."""
        sizes = None if self._key is None else load(self._key)
        if sizes is None or {location: _size(location) for location in sizes} != sizes:
            return {}
        self._key = None
        return {"spark.jars": ",".join(sizes), "spark.jars.packages": ""}

    def remember(self, spark: SparkSession) -> None:
        """Cache which jars Ivy resolved for this start."""
        if self._key is None:
            return
        found = (spark.sparkContext.getConf().get("spark.jars") or "").split(",")
        sizes = {location: size for location in found if (size := _size(location)) is not None}
        if len(sizes) == len(found):
            save(self._key, sizes)
        self._key = None


def _key(settings: Mapping[str, str]) -> str:
    """Return a hash of all settings and files that determine which jars Spark loads."""
    folder = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"  # type: ignore[no-untyped-call]
    defaults = Path(folder, "spark-defaults.conf")
    parts = [str(settings.get(f"spark.jars.{name}")) for name in _SETTINGS]
    parts += [str(Path.home()), os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    parts += [defaults.read_text("utf-8", "replace") if defaults.is_file() else ""]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _size(location: str) -> int | None:
    """Return the size in bytes of the local file at a URL; None if there is no such file."""
    parts = urlsplit(location)
    try:
        return Path(unquote(parts.path)).stat().st_size if parts.scheme == "file" else None
    except OSError:
        return None


def folder() -> Path:
    """Return the folder of the cache: `$XDG_CACHE_HOME/lakehouse-file-skipping/jars`."""
    return cache_folder("jars")


def load(key: str) -> dict[str, int] | None:
    """Return the sizes of a key's jars by location; None if they are not cached."""
    try:
        with _open_folder(create=False) as within:
            sizes = json.loads(_read(within, f"{key}.json"))
            os.utime(f"{key}.json", dir_fd=within)
        return {str(location): int(size) for location, size in sizes.items()}
    except FileNotFoundError:
        return None
    except Exception as error:
        log.info("cannot load cached jars: %s: %s", type(error).__name__, error)
        return None


def save(key: str, sizes: Mapping[str, int]) -> None:
    """Cache the sizes of jars under a key; only log a failure."""
    try:
        with _open_folder(create=True) as within:
            unfinished = f"{secrets.token_hex(8)}.unfinished"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(unfinished, flags, 0o600, dir_fd=within), "w") as file:
                json.dump(sizes, file)
            os.replace(unfinished, f"{key}.json", src_dir_fd=within, dst_dir_fd=within)
            with suppress(FileNotFoundError):  # another process may clean at the same time
                _clean(within)
    except Exception as error:
        log.info("cannot cache jars: %s: %s", type(error).__name__, error)


@contextmanager
def _open_folder(*, create: bool) -> Iterator[int]:
    """Open the folder. The handle stays valid if the path is replaced by another folder."""
    path = folder()
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


def _clean(within: int) -> None:
    """Remove the least recently used entries, and unfinished files of dead processes."""
    found = {name: os.stat(name, dir_fd=within).st_mtime for name in os.listdir(within)}
    entries = sorted((n for n in found if n.endswith(".json")), key=found.__getitem__, reverse=True)
    old = time.time() - _ABANDONED
    unfinished = [n for n, at in found.items() if n.endswith(".unfinished") and at < old]
    for name in (*entries[_KEPT:], *unfinished):
        os.unlink(name, dir_fd=within)
