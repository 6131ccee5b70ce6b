"""What reads a table's manifests: the caller's credentials, where there are any, and read only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io

__all__ = ["Storage", "storage"]

_FILE = re.compile(r"/(metadata/)?[^/]*$")
"""A metadata file in its table's folder, most often in one of its own there."""

_SECRET = re.compile(r"(?i)secret|token|credential|password|key|sas|expir|signer|auth")


class Storage(FileIO):
    """Files of a table; of one that is not on this machine none that is here.

    Locations are whatever a table's writers put into its metadata, so with the service's own
    credentials only what is in the folder of `metadata`, which the catalog names, is read. `place`
    is what says where bytes come from, without who asks for them.
    """

    def __init__(
        self, io: FileIO, metadata: str, place: tuple[tuple[str, str], ...], *, is_own: bool
    ) -> None:
        super().__init__(io.properties)
        self._io = io
        self._remote = not _is_local(metadata)
        self._folder = _FILE.sub("/", _plain(metadata)) if is_own else None
        self.place = (*place, ("own", str(is_own)))

    def new_input(self, location: str) -> InputFile:
        """The file; raises PermissionError."""
        if self._remote and _is_local(location):
            raise PermissionError("a file of this machine")
        named = _plain(location)
        if self._folder is not None and (
            not named.startswith(self._folder) or not {".", ".."}.isdisjoint(named.split("/"))
        ):
            raise PermissionError(
                "a manifest outside of the table's folder, and the catalog gave no credentials of "
                "the caller's"
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
    is_own = not any(map(_SECRET.search, given))
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
    path = re.sub(r"^s3[an]://", "s3://", location)
    return re.sub(r"^file:(//)?(?=/)", "", path)


def _is_local(location: str) -> bool:
    return urlsplit(location).scheme.lower() in ("", "file")
