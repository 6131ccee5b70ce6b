"""What reads a table's manifests: the caller's credentials, where there are any, and read only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io

__all__ = ["Denied", "Storage", "storage"]

_METADATA = re.compile(r"/(metadata/)?[^/]*\.json$")
"""A metadata file in its table's folder, most often in one of its own there."""

_SECRET = re.compile(r"(?i)secret|token|credential|password|key|sas|expir|signer|auth")

_CREDENTIALS = {
    "s3": r"(s3|client)\.access-key-id",
    "gs": r"gcs\.oauth2\.token",
    "abfs": r"adls\.(account-key|sas-token.*|connection-string|client-secret)",
}
"""By scheme, the properties that say who reads; without one it is this process itself."""


_REFUSAL = re.compile(r"(?i)denied|forbidden|invalid.?access|signature|expired|status 40[013]")
"""How object stores, and those who ask them, say that credentials will not do."""


class Denied(Exception):
    """The storage refuses a caller's credentials."""


class Storage(FileIO):
    """Files of a table, of the scheme that its `metadata` file has.

    Locations are whatever a table's writers put into its metadata, so with the service's own
    credentials only what is in the folder of the metadata file, which the catalog names, is read.
    `place` is what says where bytes come from, without who asks for them.
    """

    def __init__(
        self, io: FileIO, metadata: str, place: tuple[tuple[str, str], ...], *, is_own: bool
    ) -> None:
        super().__init__(io.properties)
        self._io = io
        self._is_own = is_own
        self.folder = f"{_METADATA.sub('', _plain(metadata)).rstrip('/')}/"
        self.place = (*place, ("own", str(is_own)))

    def may_read(self, location: str) -> bool:
        """Whether the table may name a file."""
        named = _plain(location)
        if _scheme(named) != _scheme(self.folder) or not {".", ".."}.isdisjoint(named.split("/")):
            return False
        # A folder that is a whole bucket has other tables, too.
        is_narrow = bool(urlsplit(self.folder).path.strip("/"))
        return not self._is_own or (is_narrow and named.startswith(self.folder))

    def is_at(self, location: str) -> bool:
        """Whether a table's metadata file is in the folder of a table at a location."""
        return self.folder == f"{_plain(location).rstrip('/')}/"

    def check(self, location: str) -> None:
        """Ask the storage whether the caller may read a file; raises Denied, OSError.

        What is kept of a table in memory was read with somebody else's credentials, perhaps.
        """
        if self._is_own:  # then the catalog alone says who may
            return
        file = self.new_input(location)
        try:
            len(file)
        except Exception as error:  # each kind of storage has its own
            if isinstance(error, PermissionError) or _REFUSAL.search(str(error)):
                raise Denied("the storage refuses the credentials from the catalog") from None
            raise

    def new_input(self, location: str) -> InputFile:
        """The file; raises PermissionError."""
        if not self.may_read(location):
            raise PermissionError(
                "a manifest is outside of the table's folder, and the catalog gave no credentials "
                "of the caller's for it"
            )
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Raises PermissionError."""
        raise PermissionError("nothing is written here")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raises PermissionError."""
        raise PermissionError("nothing is written here")


def storage(said: Mapping[str, Any], location: str, own: Mapping[str, str]) -> Storage:
    """That of a loaded table (`LoadTableResult`) at a location, over the service's properties.

    Properties of the table itself do not count: its writers would say where this process connects
    to, and which class does it.
    """
    given = {**_strings(said.get("config")), **_credentials(said, location)}
    config = {**own, **given}
    config.pop("py-io-impl", None)
    place = tuple(sorted((k, v) for k, v in config.items() if not _SECRET.search(k)))
    needed = _CREDENTIALS.get(_scheme(location), "(?!)")
    is_own = not any(re.fullmatch(needed, key) for key in given)
    return Storage(load_file_io(config, location), location, place, is_own=is_own)


def _credentials(said: Mapping[str, Any], location: str) -> dict[str, str]:
    """Those for the longest prefix of a location."""
    given = said.get("storage-credentials") or ()
    fitting = [each for each in given if location.startswith(str(each.get("prefix")))]
    best: Mapping[str, Any] = max(fitting, key=lambda each: len(str(each["prefix"])), default={})
    return _strings(best.get("config"))


def _strings(given: Any) -> dict[str, str]:
    return {k: v for k, v in given.items() if isinstance(v, str)} if given else {}


def _plain(location: str) -> str:
    """A location as one of the ways in which it is written."""
    path = re.sub(r"(?i)^file:(//)?(?=/)", "", location)
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^(abfs|wasb)s?://", "abfs://", path))


def _scheme(location: str) -> str:
    return urlsplit(_plain(location)).scheme.lower()
