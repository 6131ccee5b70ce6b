"""Read and write the objects of a folder store with Rust's object_store (`obstore`).

The only operation that several writers compete for is `create`: of those that create one name,
exactly one succeeds.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from providers.errors import Damaged, StoreError, first_line
from skipping.stores.sqlite.permissions import check_folder_permissions

_TIMEOUT = timedelta(seconds=30)  # of a request with its repetitions
_REQUESTS = 16  # at once
_EXPIRE = 900.0  # seconds after which credentials are requested again
_PREFIX = re.compile("^(aws|azure|google)_", re.IGNORECASE)
_CLIENT = {
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type"),
    *("http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_only"),
    *("http2_keep_alive_while_idle", "http2_max_frame_size", "pool_idle_timeout", "timeout"),
    *("pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url"),
    *("randomize_addresses", "user_agent"),
}
_PROTECTED = re.compile(r"[^ -~]")
_USER = re.compile(r"//[^/@ ]*@")
_SUBFOLDERS = ("log", "data", "probe", "workload")


_T = TypeVar("_T")
_process = 0
"""The process whose threads serve all clients."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing; `modified` is the time by the clock of the storage."""

    name: str
    size: int
    modified: datetime


class Objects(Protocol):
    """The storage of a folder store. Names are relative to its folder.

    Each method raises StoreError when it fails.
    """

    @property
    def location(self) -> str:
        """The address of the folder, without secrets."""

    def get(self, name: str, *, most: int) -> bytes | None:
        """Return an object's bytes, or None if it does not exist; raise Damaged above `most`."""

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless it exists; return whether it was written.

        False may also mean that an earlier attempt of this call succeeded, or HTTP 409: the name is
        being written or deleted. After a StoreError, the object may or may not be written.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Write an object, whether it exists or not."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield the objects whose names begin with a folder (`log/`)."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; those that do not exist are ignored."""


def is_forked() -> bool:
    """Return whether this process was forked from one that used a folder store."""
    return _process not in (0, os.getpid())


def require_process(location: str) -> None:
    """Raise StoreError in such a process: threads and sockets of the clients are its parent's."""
    global _process
    _process = _process or os.getpid()
    if is_forked():
        raise StoreError(
            f"the store {location} can only be read, as it was, in a process that was forked from "
            "one that used such a store: start it with the multiprocessing method spawn"
        )


def get_all(objects: Objects, wanted: Mapping[str, int]) -> dict[str, bytes | None]:
    """Return several objects, read at the same time; `wanted` has the limit for each name."""
    found = in_parallel(lambda name: objects.get(name, most=wanted[name]), list(wanted))
    return dict(zip(wanted, found, strict=True))


def in_parallel(read: Callable[[_T], bytes | None], wanted: Sequence[_T]) -> list[bytes | None]:
    """Return what a function returns for each of these, called at the same time."""
    if len(wanted) < 2:
        return [read(each) for each in wanted]
    with ThreadPoolExecutor(min(_REQUESTS, len(wanted))) as pool:
        return list(pool.map(read, wanted))


class ObstoreObjects:
    """The objects below an address that `obstore` can open: S3, Google, Azure, a local folder.

    `options` are those of Rust's object_store, with credentials; a function is called again when
    they may have expired. Without options, the environment has them.
    """

    def __init__(
        self, url: str, options: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._options = options
        self._folder = local_folder(url)
        self._opened: Any = None
        self._opened_at = 0.0

    def __reduce__(self) -> tuple[object, ...]:
        return ObstoreObjects, (self._url, self._options)

    @property
    def location(self) -> str:
        """The address of the folder."""
        return self._url

    def get(self, name: str, *, most: int) -> bytes | None:
        with self._errors(f"read {name}"):
            try:
                if self._folder is not None:
                    return self._read_file(name, most)
                found = obstore.get(self._store(), name)
            except FileNotFoundError:
                return None
            self._require_size(name, found.meta["size"], most)
            return bytes(found.bytes())

    def create(self, name: str, data: bytes) -> bool:
        with self._errors(f"write {name}"):
            try:
                obstore.put(self._store(write=True), name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        with self._errors(f"write {name}"):
            obstore.put(self._store(write=True), name, data)

    def list(self, prefix: str) -> Iterator[Listed]:
        with self._errors(f"list {prefix}"), suppress(FileNotFoundError):
            if self._folder is not None:
                yield from self._list_files(prefix)
                return
            for page in obstore.list(self._store(), prefix):
                for each in page:
                    yield Listed(each["path"], each["size"], each["last_modified"])

    def delete(self, names: Sequence[str]) -> None:
        with self._errors("delete"), suppress(FileNotFoundError):
            if self._folder is not None:
                self._store(write=True)
                for name in names:
                    prefix, _, base = name.partition("/")
                    with suppress(FileNotFoundError), self._open_subfolder(prefix) as folder:
                        os.unlink(base, dir_fd=folder)
                return
            obstore.delete(self._store(write=True), list(names))

    def _list_files(self, prefix: str) -> Iterator[Listed]:
        """Yield the files of a folder, even those that object_store hides: `name#1` is a staged
        file, and may have been left by a killed writer.
        """
        self._store()
        assert self._folder is not None
        with self._open_subfolder(prefix) as folder:
            names = os.listdir(folder)
            for each in names:
                with suppress(FileNotFoundError):  # a staged file gets its name
                    found = os.stat(each, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        modified = datetime.fromtimestamp(found.st_mtime, timezone.utc)
                        yield Listed(f"{prefix}{each}", found.st_size, modified)

    def _read_file(self, name: str, most: int) -> bytes:
        """Return the bytes of a file. A link or pipe, which others may have made, is an error."""
        self._store()
        assert self._folder is not None
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        path = self._folder / name
        opened = os.open(path, flags)
        try:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode):
                raise StoreError(f"{path} is not a file: move it away")
            _check_write_permission(path, found, self._folder)
            self._require_size(name, found.st_size, most)
            with open(opened, "rb", closefd=False) as file:
                return file.read(most)
        finally:
            os.close(opened)

    def _require_size(self, name: str, size: int, most: int) -> None:
        if size > most:
            raise Damaged(
                f"{self._url}/{name} has {size:,} bytes, more than the {most:,} that a release "
                "writes"
            )

    @contextmanager
    def _open_subfolder(self, prefix: str) -> Iterator[int]:
        """Open a folder of the store so that its files cannot be those of another folder."""
        assert self._folder is not None
        opened = os.open(self._folder / prefix.rstrip("/"), os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            yield opened
        finally:
            os.close(opened)

    def _store(self, *, write: bool = False) -> Any:
        """Return the client; raise StoreError in a child of a fork, where its threads are gone."""
        require_process(self._url)
        if self._folder is not None:
            if write:
                self._folder.mkdir(0o700, parents=True, exist_ok=True)
            if not self._folder.exists():
                raise FileNotFoundError(str(self._folder))
            check_folder_permissions(self._folder)
            for name in _SUBFOLDERS:
                with suppress(FileNotFoundError):
                    found = (self._folder / name).lstat()
                    if not stat.S_ISDIR(found.st_mode):
                        raise StoreError(f"{self._folder / name} is not a folder: move it away")
                    _check_write_permission(self._folder / name, found, self._folder)
        if self._opened is None or time.monotonic() - self._opened_at > _EXPIRE:
            more: dict[str, Any] = {}
            if self._folder is None:
                more["retry_config"] = {"max_retries": 5, "retry_timeout": _TIMEOUT}
                given = self._options() if callable(self._options) else self._options
                more["config"], more["client_options"] = _split(given or {})
            self._opened, self._opened_at = from_url(self._url, **more), time.monotonic()
        return self._opened

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (StoreError, FileNotFoundError):
            raise
        except (BaseError, OSError, ValueError, RuntimeError) as error:
            # The first line names the cause; the others may have headers of the request.
            text = _USER.sub("//...@", _PROTECTED.sub(" ", first_line(error)))[:300]
            raise StoreError(f"the store {self._url} cannot {what}: {text}") from error


def _check_write_permission(path: Path, found: os.stat_result, folder: Path) -> None:
    """Raise StoreError if every user can enter the store's folder and write this path in it."""
    if found.st_mode & stat.S_IWOTH and folder.stat().st_mode & stat.S_IXOTH:
        raise StoreError(
            f"every user may write {path}, so it is not trusted: check who wrote it, and "
            f"chmod o-w {path}"
        )


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the storage, and those of the HTTP client, which obstore separates.

    The latter replace those that object_store takes from the environment, so they include them.
    """
    client = {"timeout": "30s", "connect_timeout": "5s"}
    environment = {name: value for name, value in os.environ.items() if _PREFIX.match(name)}
    for name, value in (environment | dict(options)).items():
        if (bare := _PREFIX.sub("", name).lower()) in _CLIENT:
            client[bare] = value
    config = {k: v for k, v in options.items() if _PREFIX.sub("", k).lower() not in _CLIENT}
    return config, client


def local_folder(url: str) -> Path | None:
    """Return the folder of a `file:` address; None for other addresses."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
