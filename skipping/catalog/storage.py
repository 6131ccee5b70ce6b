"""Read a table's manifests for a worker process, with the caller's credentials if there are any.

The table's writers choose the locations in its metadata and manifests. One function parses a
location, and the file is opened by the parsed parts, so that the writer's text is not parsed twice.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyiceberg.io import FileIO, load_file_io

from skipping.catalog.errors import Denied
from skipping.catalog.upstream import leads_out

_PIECE = 8 << 20

_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(/.*)")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f?#\\]")
"""Characters that some parsers of URIs remove, or at which they end the path."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_SCHEMES = {"": "file", "s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
"""Schemes that are other names of one storage."""

_METADATA = re.compile(r"/(metadata/)?[^/]*\.json$")
"""A metadata file in its table's folder, usually in the subfolder `metadata`."""

_SECRET = re.compile(r"(?i)secret|token|credential|password|key|sas|expir|signer|auth")

_CREDENTIALS = {
    "s3": r"(s3|client)\.access-key-id",
    "gs": r"gcs\.oauth2\.token",
    "abfs": r"adls\.(account-key|sas-token.*|connection-string|client-secret)",
}
"""Properties with credentials, by scheme. Without one, this process's own credentials are used."""

_REFUSAL = re.compile(r"(?i)denied|forbidden|invalid.?access|signature|expired|status 40[013]")
"""Error messages of object stores and their clients about missing or wrong credentials."""

_OUTSIDE = (
    "a manifest is outside of the table's folder, and the catalog returned no credentials of "
    "the caller for it"
)


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder: the scheme of its storage, the bucket or container, and the path."""

    scheme: str
    authority: str
    path: str

    def is_below(self, folder: Location) -> bool:
        """Return whether it is in a folder; the root of a bucket or file system does not count."""
        root = f"{folder.path.rstrip('/')}/"
        same = (self.scheme, self.authority) == (folder.scheme, folder.authority)
        return same and bool(root.strip("/")) and self.path.startswith(root)


def parse_location(text: str) -> Location:
    """Parse a location; raise PermissionError if other parsers could read it differently."""
    parts = _LOCATION.fullmatch(text)
    unsafe = _UNSAFE.search(text) or _CONTROL.search(unquote(text))
    if parts is None or unsafe or leads_out(text.encode(errors="replace")):
        raise PermissionError("a location is ambiguous or invalid")
    scheme = (parts[1] or "").lower()
    location = Location(_SCHEMES.get(scheme, scheme), parts[2] or "", parts[3])
    if location.scheme == "file" and location.authority:
        raise PermissionError("a location names another host")
    return location


class Storage:
    """Reads the files of a table; the catalog has named its `metadata` file.

    With the service's own credentials, it reads only files in the folder of the metadata file.
    `place` identifies the storage, without credentials.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        metadata: str,
        place: tuple[tuple[str, str], ...],
        *,
        is_own: bool,
    ) -> None:
        file = parse_location(metadata)
        path = _METADATA.sub("", file.path).rstrip("/")
        self.folder = Location(file.scheme, file.authority, path)
        self.place = (self.folder, *place, ("own", str(is_own)))
        self._config = dict(config)
        self._prefix = metadata[: len(metadata) - len(file.path)]
        self._is_own = is_own
        self._io: FileIO | None = None

    def may_read(self, location: str) -> bool:
        """Return whether the table may have a file at this location."""
        try:
            self._check_location(location)
        except PermissionError:
            return False
        return True

    def _check_location(self, text: str) -> Location:
        location = parse_location(text)
        if location.scheme != self.folder.scheme or (
            self._is_own and not location.is_below(self.folder)
        ):
            raise PermissionError(_OUTSIDE)
        return location

    def is_at(self, location: str) -> bool:
        """Return whether the metadata file is in the folder of a table at this location."""
        try:
            at = parse_location(location)
        except PermissionError:
            return False
        return self.folder == Location(at.scheme, at.authority, at.path.rstrip("/"))

    def read(self, text: str) -> Iterator[bytes]:
        """Yield pieces of a file; raise OSError, PermissionError, Denied for wrong credentials."""
        location = self._check_location(text)
        try:
            with closing(self._open(location)) as file:
                while piece := file.read(_PIECE):
                    yield piece
        except Exception as error:  # each kind of storage has its own
            if isinstance(error, PermissionError) or _REFUSAL.search(str(error)):
                if not self._is_own:
                    raise Denied("the storage refuses the credentials from the catalog") from None
                raise PermissionError(
                    "the storage denies this service access to a manifest of the table"
                ) from error
            raise

    def _open(self, location: Location) -> Any:
        if location.scheme == "file":
            return _open_below(self.folder.path, location.path)
        if self._io is None:
            self._io = load_file_io(self._config, f"{self._prefix}{self.folder.path}")
        # The catalog chose the scheme's spelling; the rest can be read in one way only.
        prefix = self._prefix.partition(":")[0]
        return self._io.new_input(f"{prefix}://{location.authority}{location.path}").open(
            seekable=False
        )


def _open_below(folder: str, path: str) -> Any:
    """Open a regular file below a folder, on a path without symbolic links; raise OSError."""
    steps = [step for step in path[len(folder) :].split("/") if step]
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for turn, step in enumerate(steps, 1):
            kind = os.O_DIRECTORY if turn < len(steps) else os.O_NONBLOCK  # a pipe would block
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind
            try:
                below = os.open(step, flags, dir_fd=at)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise PermissionError(_OUTSIDE) from error
                raise
            os.close(at)
            at = below
        if not steps or not stat.S_ISREG(os.fstat(at).st_mode):
            raise PermissionError("a manifest is not a regular file")
        return os.fdopen(os.dup(at), "rb", buffering=0)
    finally:
        os.close(at)


def storage(said: Mapping[str, Any], location: str, own: Mapping[str, str]) -> Storage:
    """Return the storage of a loaded table; settings in `said` (`LoadTableResult`) override `own`.

    Table properties are ignored: anyone who can write the table could choose the host that this
    process connects to, or the FileIO class. Raises PermissionError for a location that cannot be
    parsed.
    """
    given = {**_strings(said.get("config")), **_credentials(said, location)}
    config = {**own, **given}
    config.pop("py-io-impl", None)
    place = tuple(sorted((k, v) for k, v in config.items() if not _SECRET.search(k)))
    needed = _CREDENTIALS.get(parse_location(location).scheme, "(?!)")
    is_own = not any(re.fullmatch(needed, key) for key in given)
    return Storage(config, location, place, is_own=is_own)


def _credentials(said: Mapping[str, Any], location: str) -> dict[str, str]:
    given = said.get("storage-credentials")
    fitting = [
        each
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, dict) and location.startswith(str(each.get("prefix")))
    ]
    best: Mapping[str, Any] = max(fitting, key=lambda each: len(str(each["prefix"])), default={})
    return _strings(best.get("config"))


def _strings(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    return {k: v for k, v in given.items() if isinstance(v, str)}
