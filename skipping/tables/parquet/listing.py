"""List the files of a folder as Spark does, with the partitions in their paths.

Names that Spark reads differently from other libraries raise a TableError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.fs as pafs

from providers.errors import TableError
from skipping.parser.literals import join_name
from skipping.tables import files_table

_NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST = {"integer": 1 << 31, "long": 1 << 63}
_NO_TEXT = ("nan", "infinity")
"""Words that Java parses as numbers."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files (FILES) of a folder, sorted by path, and its partition columns.

    `partition` maps their names to Spark's types as in JSON schemas. `first` is the file from which
    Spark reads the columns.
    """

    files: pa.Table
    partition: Mapping[str, str]
    first: str


def list_folder(root: str, filesystem: pafs.FileSystem, inner: str) -> Listing:
    """List the folder `root`, as in FILES, whose path in the file system is `inner`.

    Raises TableError for a folder that does not exist, has no files, or that Spark would read
    differently: files next to partitions, folders that are not partitions, ambiguous values.
    """
    below = inner.rstrip("/") + "/"
    found = filesystem.get_file_info(pafs.FileSelector(inner, recursive=True))
    by_path = {info.path.removeprefix(below): info for info in found if info.is_file}
    if any(path.startswith("_delta_log/") for path in by_path):
        raise TableError(f"{root} is a Delta table: give it as a DeltaTable of delta-rs")
    there = {path: info for path, info in by_path.items() if info.size and not _is_hidden(path)}
    data = sorted(path for path in there if not _is_hidden(path, summary=True))
    if not data:
        raise TableError(f"{root} has no Parquet files")
    columns = _columns(root, data)
    raw = {path: [_raw(root, part) for part in path.split("/")[:-1]] for path in data}
    types = {name: _type(root, name, {raw[p][i] for p in data}) for i, name in enumerate(columns)}
    partition = [
        [
            (f"/{join_name([name])}", None if text is None else _plain(root, text, type))
            for text, (name, type) in zip(raw[path], types.items(), strict=True)
        ]
        for path in data
    ]
    files = files_table(
        [f"{root}/{path}" for path in data],
        [there[path].size for path in data],
        partition,
        stamps=[(there[path].mtime_ns or 0) // 1_000_000 for path in data],
    )
    summaries = [name for name in ("_common_metadata", "_metadata") if name in there]
    return Listing(files.sort_by("path"), types, f"{root}/{(summaries or data)[0]}")


def _is_hidden(path: str, *, summary: bool = False) -> bool:
    """Return whether Spark ignores a file: `HadoopFSUtils.shouldFilterOutPathName` for each part.

    With `summary`, return whether Spark reads no rows from it: `_metadata` has only columns.
    """

    def is_hidden(name: str) -> bool:
        named = name.startswith(("_common_metadata", "_metadata")) and not summary
        under = name.startswith("_") and "=" not in name and not named
        return under or name.startswith(".") or name.endswith("._COPYING_")

    return any(map(is_hidden, path.split("/")))


def _columns(root: str, data: Sequence[str]) -> list[str]:
    spelled = {
        tuple(part.partition("=")[:2] for part in path.split("/")[:-1]): path for path in data
    }
    for parts, path in spelled.items():
        if any(not equals for _, equals in parts):
            raise TableError(
                f"{root} has files in a folder that is not a partition, which Spark does not read: "
                f"{path}"
            )
    if len(spelled) > 1:
        raise TableError(
            f"{root} is partitioned in several ways, so Spark does not read it: "
            f"{', '.join(sorted(spelled.values())[:3])}"
        )
    names = [_unescape(root, name) for name, _ in next(iter(spelled))]
    if len({name.lower() for name in names}) < len(names) or "" in names:
        raise TableError(f"{root} has partition columns with the same name: {', '.join(names)}")
    return names


def _raw(root: str, part: str) -> str | None:
    """Return the partition value of a folder's name, still escaped; None for null."""
    text = part.partition("=")[2]
    if not text:
        raise TableError(f"{root} has a partition without a value, which Spark refuses: {part}")
    return None if text == _NULL else text


def _unescape(root: str, text: str) -> str:
    """Unescape text as Spark does; raise TableError for escapes beyond ASCII.

    Spark turns each escaped byte into a character, where other libraries decode UTF-8.
    """
    if escape := re.search("%[89A-Fa-f][0-9A-Fa-f]", text):
        raise TableError(
            f"{root} has {escape[0]} in the name of a partition, {text}, which Spark reads "
            "differently from other libraries: rename the folder, without escapes"
        )
    return re.sub("%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text)


def _type(root: str, name: str, values: Iterable[str | None]) -> str:
    """Return the type that Spark infers from escaped values; raise TableError if it is ambiguous.

    It is text if one value is certainly text, else an integer or a date if all values are. Java's
    forms of decimals, doubles and times are not recognised. Source: Spark's
    `PartitioningUtils.inferPartitionColumnValue`.
    """
    texts = [value for value in values if value is not None]
    if not texts:
        return "void"
    if any(_is_text(_unescape(root, text)) for text in texts):
        return "string"
    if all(re.fullmatch(r"-?[0-9]{1,18}", text) for text in texts):
        wide = any(not -_MOST["integer"] <= int(text) < _MOST["integer"] for text in texts)
        return "long" if wide else "integer"
    if all(map(_is_date, texts)):
        return "date"
    odd = next(text for text in texts if not re.fullmatch(r"-?[0-9]{1,18}", text))
    raise TableError(
        f"partition column {name} of {root} has the value {odd!r}, whose type only Spark can "
        "infer: use integers, dates such as 2024-01-31, or words"
    )


def _is_text(text: str) -> bool:
    """Return whether a value is certainly text: Java parses digits of any script as numbers."""
    first = text[:1]
    odd = first.isdigit() or first.isspace() or first <= " " or first in "+-."
    return not odd and text.lower() not in _NO_TEXT


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _plain(root: str, text: str, type: str) -> str:
    return str(int(text)) if type in _MOST else _unescape(root, text)
