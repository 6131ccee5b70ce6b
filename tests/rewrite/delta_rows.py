"""The rows of small Delta tables, version by version, without Spark: milliseconds, not seconds.

Only for tests: reads the log from version 0 on, columns by name, deletion vectors in files.
"""

from __future__ import annotations

import json
import struct
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyroaring import BitMap64

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377
_MOST = 5_000
"""Files whose rows are remembered: none ever changes."""


class DeltaRows:
    """A table that is followed: `at(log)` says what it holds after each next commit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live: dict[str, dict[str, Any]] = {}
        self._schema: list[dict[str, Any]] = []
        self._read: dict[str, list[dict[str, Any]]] = {}

    def at(self, log: Path) -> list[str]:
        """The rows after the commit in a file of the log; commits come in order."""
        for line in log.read_text().splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind == "metaData":
                self._schema = json.loads(action["schemaString"])["fields"]
            elif kind == "remove":
                # With the vector that it had: the file may be added with another one.
                live = self._live.get(action["path"])
                if live and live.get("deletionVector") == action.get("deletionVector"):
                    del self._live[action["path"]]
            elif kind == "add":
                self._live[action["path"]] = action
        return sorted(row for rows in self.files() for row in rows)

    def files(self) -> list[list[str]]:
        """The rows of each file, as of the last commit that was read."""
        return sorted(sorted(self._rows(add)) for add in self._live.values())

    def _rows(self, add: dict[str, Any]) -> list[str]:
        if add["path"] not in self._read:
            if len(self._read) == _MOST:
                self._read.clear()
            path = self._folder / unquote(add["path"])
            found = pq.ParquetFile(path).read(use_threads=False)
            self._read[add["path"]] = found.to_pylist()
        deleted = self._deleted(add.get("deletionVector"))
        values = add.get("partitionValues") or {}
        physical = [
            field["metadata"].get("delta.columnMapping.physicalName", field["name"])
            for field in self._schema
        ]
        return [
            repr([values[name] if name in values else row.get(name) for name in physical])
            for i, row in enumerate(self._read[add["path"]])
            if i not in deleted
        ]

    def _deleted(self, vector: dict[str, Any] | None) -> BitMap64:
        if vector is None:
            return BitMap64()
        if vector["storageType"] != "u":
            raise NotImplementedError(f"a deletion vector of the kind {vector['storageType']}")
        *prefix, name = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
        file = f"deletion_vector_{uuid.UUID(bytes=_z85(name))}.bin"
        at, size = vector["offset"], vector["sizeInBytes"]
        content = self._folder.joinpath(*prefix, file).read_bytes()[at + 4 : at + 4 + size]
        if struct.unpack("<i", content[:4])[0] != _MAGIC:
            raise ValueError(f"{file} is no deletion vector")
        return BitMap64.deserialize(content[4:])


def _z85(text: str) -> bytes:
    out = b""
    for at in range(0, len(text), 5):
        number = 0
        for digit in text[at : at + 5]:
            number = 85 * number + _DIGITS.index(digit)
        out += struct.pack(">I", number)
    return out
