"""The log of a folder store: numbered commits as JSON, each created once (docs/folder-format.md).

A commit changes the record of one index, and names the segments of the entries that it adds. A
checkpoint has what all commits up to its number amount to. Anyone who can write the folder may have
written these objects, so each is checked for size, form and range.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from providers.errors import Damaged, StoreError, first_line
from skipping.model.definition import IndexId
from skipping.stores.entries import ORDINALS

FORMAT = 1
"""The format of the folder. A commit or checkpoint with another number is refused."""

MOST_COMMIT = 64 << 20
"""Maximum of bytes of a commit or checkpoint."""

MOST_VALUES = 4_000_000
"""Maximum of values in them: Python parses them at once, while no other thread runs."""

HINT = "log/_last_checkpoint"
"""Names the newest checkpoint; the only object of the log whose content changes."""

WORKLOAD = "workload/"
"""The folder of what drivers counted of their queries; the log does not name these objects."""

RECORD: Mapping[str, type] = {
    **dict.fromkeys(("definition", "state", "lease"), str),
    **dict.fromkeys(("revision", "next"), int),
    "dropped": bool,
}
"""The fields of a record that commits change, and the types of their values."""

_NULLABLE = {"definition", "state", "lease"}
_MOST_PARTS = 10_000
_DATA = re.compile(r"data/[0-9a-f]{32}(-[a-z0-9]{1,20})?\.arrow")
_LOG = re.compile(r"log/([0-9]{10})(\.checkpoint)?\.json")
_OWN = re.compile(
    rf"({_DATA.pattern}|{_LOG.pattern}|{HINT}|(probe|drafts)/[0-9a-f]{{32}})(#[0-9]+)?"
)
_WORKLOAD = re.compile(rf"{WORKLOAD}([0-9-]{{10}}-[0-9a-f]{{16}})\.json(#[0-9]+)?")
_SKETCH = re.compile(r"s[0-9]{1,10}[a-z0-9]{0,9}")

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges of ordinals, both ends included."""


@dataclass(frozen=True, slots=True)
class Part:
    """An object with some columns of a segment: those of `sketches`, and the identities or not."""

    name: str
    bytes: int
    digest: str
    sketches: tuple[str, ...]
    identities: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """The entries and sketches of one write, or of several merged ones."""

    rows: int
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """Bytes of its objects."""
        return sum(part.bytes for part in self.parts)

    @property
    def id(self) -> str:
        """The name of its first object."""
        return self.parts[0].name


@dataclass(frozen=True, slots=True)
class Commit:
    """A change of one index.

    `store` is the id of the store, drawn by its first commit; `id` tells commits of competing
    writers apart, and `previous` is that of the commit before ("" for the first). `set` has the
    fields of the record that change, `add` the segments to apply, `removed` the removed ordinals,
    and `merged` the segments that `add` replaces without a change of their entries.
    """

    store: str
    version: int
    previous: str
    index: IndexId
    set: Mapping[str, Any] = field(default_factory=dict)
    add: tuple[Segment, ...] = ()
    removed: Ranges = ()
    merged: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: secrets.token_hex(16))

    def to_bytes(self) -> bytes:
        """Return the JSON of the commit."""
        return _dump({"format": FORMAT, **asdict(self)})

    @classmethod
    def parse(cls, data: bytes, version: int) -> Commit:
        """Parse the commit with this number; raise Damaged, or StoreError for another format."""
        found = _load(data)
        try:
            if type(found["version"]) is not int or found["version"] != version:
                raise ValueError(f"says that it is {found['version']!s:.20}")
            return cls(
                store=_name(found["store"]),
                version=version,
                previous=_name(found["previous"]) if version > 1 else "",
                index=_name(found["index"]),
                set=_fields(found["set"]),
                add=_segments(found["add"]),
                removed=_ranges(found["removed"]),
                merged=tuple(_data_name(each) for each in found["merged"]),
                id=_name(found["id"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"commit {version} is invalid: {first_line(error)}") from None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The segments of an index that are live, and the ordinals that were removed."""

    segments: tuple[Segment, ...] = ()
    removed: Ranges = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of all objects of the index."""
        return frozenset(part.name for each in self.segments for part in each.parts)

    def after(self, commit: Commit) -> Manifest:
        """Return the manifest with a commit applied; raise Damaged if it merges what is not live.

        A dropped or erased index has no segments.
        """
        if commit.set.get("dropped"):
            return Manifest()
        segments = self.segments
        if commit.merged:
            ids = [each.id for each in segments]
            if not set(commit.merged) <= set(ids):
                raise Damaged(f"commit {commit.version} merges segments that are not live")
            at = min(ids.index(each) for each in commit.merged)
            rest = [each for each in segments if each.id not in commit.merged]
            # Merged segments have no removed entries.
            removed = self.removed if rest else ()
            return Manifest((*rest[:at], *commit.add, *rest[at:]), removed)
        removed = join(self.removed, commit.removed) if commit.removed else self.removed
        return Manifest((*segments, *commit.add), removed)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Parse the JSON values; raise KeyError, TypeError or ValueError."""
        return cls(_segments(data["segments"]), _ranges(data["removed"]))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All indexes after the commit with this version and id: each one's record and manifest."""

    store: str
    version: int
    commit: str
    indexes: Mapping[IndexId, tuple[Mapping[str, Any], Manifest]]

    @property
    def name(self) -> str:
        """The name of its object."""
        return checkpoint_name(self.version)

    def to_bytes(self) -> bytes:
        """Return the JSON of the checkpoint."""
        indexes = {
            index: {"record": dict(record), **manifest.to_json()}
            for index, (record, manifest) in self.indexes.items()
        }
        return _dump(
            {
                "format": FORMAT,
                "store": self.store,
                "version": self.version,
                "commit": self.commit,
                "indexes": indexes,
            }
        )

    @classmethod
    def parse(cls, data: bytes, version: int) -> Checkpoint:
        """Parse the checkpoint with this number; raise Damaged, or StoreError as `Commit.parse`."""
        found = _load(data)
        try:
            if found["version"] != version:
                raise ValueError(f"says that it is {found['version']!s:.20}")
            indexes = {
                _name(index): (_fields(each["record"]), Manifest.from_json(each))
                for index, each in found["indexes"].items()
            }
            return cls(_name(found["store"]), version, _name(found["commit"]), indexes)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(f"checkpoint {version} is invalid: {first_line(error)}") from None


def commit_name(version: int) -> str:
    """Return the name of a commit's object.

    >>> commit_name(42)
    'log/0000000042.json'
    """
    return f"log/{version:010}.json"


def checkpoint_name(version: int) -> str:
    """Return the name of a checkpoint's object."""
    return f"log/{version:010}.checkpoint.json"


def is_own(name: str) -> bool:
    """Return whether a release writes an object with this name; `#1` marks a staged file.

    >>> is_own("log/0000000042.json#1"), is_own("data/2026/sales.parquet")
    (True, False)
    """
    return _OWN.fullmatch(name) is not None


def workload_name(key: str) -> str:
    """Return the name of the object with a driver's counts of a day.

    >>> workload_name("2026-11-29-0123456789abcdef")
    'workload/2026-11-29-0123456789abcdef.json'
    """
    return f"{WORKLOAD}{key}.json"


def workload_key(name: str) -> str | None:
    """Return the key in such a name, also of a staged file; None for other names."""
    match = _WORKLOAD.fullmatch(name)
    return None if match is None else match[1]


def version_of(name: str) -> tuple[int, bool] | None:
    """Return the number of a commit or checkpoint, and whether it is one; None for other names.

    >>> version_of("log/0000000042.json"), version_of("data/x")
    ((42, False), None)
    """
    match = _LOG.fullmatch(name)
    return None if match is None else (int(match[1]), match[2] is not None)


def parse_hint(data: bytes) -> int:
    """Return the number of the newest checkpoint; raise Damaged."""
    found = _load(data)
    version = found.get("version")
    if type(version) is not int or not 0 < version < 10**10:
        raise Damaged(f"{HINT} has no valid version")
    return version


def hint_of(checkpoint: Checkpoint) -> bytes:
    """Return the content of HINT for a checkpoint."""
    return _dump({"format": FORMAT, "store": checkpoint.store, "version": checkpoint.version})


def join(*several: Ranges) -> Ranges:
    """Return the union of ranges, sorted.

    >>> join(((0, 3), (9, 9)), ((4, 5),))
    ((0, 5), (9, 9))
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted(each for ranges in several for each in ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return tuple(joined)


def _dump(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def require_size(data: bytes) -> bytes:
    """Return the JSON of a commit or checkpoint; raise StoreError if readers would refuse it."""
    values = sum(data.count(each) for each in (b",", b"[", b"{"))
    if len(data) > MOST_COMMIT or values > MOST_VALUES:
        raise StoreError(
            f"a commit or checkpoint is too large ({len(data):,} bytes, {values:,} values): make "
            "several smaller changes"
        )
    return data


def _load(data: bytes) -> dict[str, Any]:
    require_size(data)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"an object of the log is not JSON: {first_line(error)}") from None
    if not isinstance(found, dict):
        raise Damaged("an object of the log is not a JSON object")
    format = found.get("format")
    if type(format) is not int or format != FORMAT:
        upgrade = "upgrade, or " if type(format) is int and format > FORMAT else ""
        raise StoreError(
            f"the store has format {format!s:.20}, but this release reads format {FORMAT}: "
            f"{upgrade}name another folder and run CREATE SKIPPING INDEX again for each table"
        )
    return found


def _fields(given: Any) -> dict[str, Any]:
    fields = dict(given)
    for name, value in fields.items():
        if name not in RECORD or not (
            type(value) is RECORD[name] or (value is None and name in _NULLABLE)
        ):
            raise ValueError(f"the record has an invalid {name!s:.30}")
        if isinstance(value, str):
            value.encode()  # a lone surrogate cannot be stored
        if type(value) is int and not 0 <= value <= ORDINALS:
            raise ValueError(f"{name} is out of range")
    return fields


def _segments(given: Any) -> tuple[Segment, ...]:
    found = tuple(
        Segment(_count(each["rows"]), tuple(_part(part) for part in each["parts"]))
        for each in given
    )
    if not all(0 < len(each.parts) <= _MOST_PARTS for each in found):
        raise ValueError(f"a segment has no parts, or more than {_MOST_PARTS:,}")
    return found


def _part(given: Any) -> Part:
    sketches = tuple(given["sketches"])
    if not all(isinstance(each, str) and _SKETCH.fullmatch(each) for each in sketches):
        raise ValueError("a part has an invalid sketch")
    if type(given["identities"]) is not bool:
        raise ValueError("a part has no valid flag identities")
    digest = given["digest"]
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError("a part has an invalid digest")
    return Part(
        _data_name(given["name"]), _count(given["bytes"]), digest, sketches, given["identities"]
    )


def _ranges(given: Any) -> Ranges:
    found = tuple((first, last) for first, last in given)
    for first, last in found:
        if type(first) is not int or type(last) is not int or not 0 <= first <= last < ORDINALS:
            raise ValueError("removed has an invalid range")
    return found


def _count(given: Any) -> int:
    if type(given) is not int or not 0 <= given < 1 << 40:
        raise ValueError("a count is out of range")
    return given


def _data_name(given: Any) -> str:
    # The name is used as a path, so it must be one that this release writes.
    if not isinstance(given, str) or not _DATA.fullmatch(given):
        raise ValueError("the name of a segment is invalid")
    return given


def _name(given: Any) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= 4_096:
        raise ValueError("a name is invalid")
    given.encode()  # a lone surrogate cannot be stored
    return given
