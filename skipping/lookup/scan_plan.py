"""The outcome for one scan: how many files there are, what disproved which, and what was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["KeySet", "ScanPlan", "Step", "format_bytes"]


def format_bytes(size: float) -> str:
    """A number of bytes for people.

    >>> bytes_in_words(999), bytes_in_words(13_800_000)
    ('999 B', '13.8 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1_000
    return f"{size:,.1f} TB"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the funnel, and what it left: files, their bytes, or rows, where that is known."""

    name: str
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that a join collected for a scan, or why it has none.

    `keys` is their number, None where they are unavailable and every file is read, and `what` says
    whether they are keys or ranges; `seconds` is how long collecting took; `how` says whether a
    broadcast of Spark's was used or the dimension was read again.
    """

    dimension: str
    column: str = ""
    keys: int | None = None
    seconds: float = 0.0
    how: str = ""
    reason: str | None = None
    what: str = "keys"

    def __str__(self) -> str:
        whose = f"{self.column} by {self.dimension}" if self.column else self.dimension
        if self.keys is None:
            return f"no {self.what}, {whose}: {self.reason}"
        what = self.what if self.keys != 1 else self.what[:-1]
        return f"{self.keys:,} {what}, {whose}: {self.how}, {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Counts of files of one scan.

    `total` are the files that the table format would read by itself; `disproved` of them hold no
    match; `unknown` have no entry and are read; `legs` say how many each sketch disproves alone.
    `opened` are those it read, None where nothing ran. `reason` says why no index was asked;
    `unused` says of the parts of the condition that did not help, why. `keys` are those of joins;
    `rows` are the rows that were read and those left by the filter on top of the scan. `bytes` are
    those of the `total` files. `format` are the steps that the table format took by itself before;
    `seconds` is how long asking the index took.
    """

    table: str
    total: int | None = None
    disproved: int = 0
    unknown: int = 0
    legs: tuple[tuple[str, int], ...] = ()
    opened: int | None = None
    reason: str | None = None
    unused: tuple[str, ...] = ()
    keys: tuple[KeySet, ...] = ()
    rows: tuple[int, int] | None = None
    bytes: int | None = field(default=None, compare=False)
    disproved_bytes: int = field(default=0, compare=False)
    opened_bytes: int | None = field(default=None, compare=False)
    format: tuple[Step, ...] = field(default=(), compare=False)
    seconds: float | None = field(default=None, compare=False)

    @property
    def kept(self) -> int | None:
        """Files that are read."""
        return None if self.total is None else self.total - self.disproved

    @property
    def kept_bytes(self) -> int | None:
        """Bytes of the files that are read."""
        return None if self.bytes is None else self.bytes - self.disproved_bytes

    @property
    def funnel(self) -> tuple[Step, ...]:
        """What was left after each step, in the order in which things happen.

        The table, its partitions, the format's statistics; the index; what Spark opened; the rows
        it read there and those that its filter left.
        """
        steps = list(self.format)
        if self.total is not None:
            if not steps or steps[-1].files != self.total:
                steps.append(Step("listed", self.total, self.bytes))
            steps.append(Step("index", self.kept, self.kept_bytes))
        if self.opened is not None:
            steps.append(Step("opened", self.opened, self.opened_bytes))
        if self.rows is not None:
            read, left = self.rows
            steps += [Step("rows read", rows=read), Step("rows left by the filter", rows=left)]
        return tuple(steps)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        given = asdict(self)
        given["legs"] = [{"label": label, "disproved": count} for label, count in self.legs]
        funnel = [asdict(step) for step in self.funnel]
        return {**given, "kept": self.kept, "kept_bytes": self.kept_bytes, "funnel": funnel}

    def __str__(self) -> str:
        return "\n".join([self.table, *self._lines()])

    def _lines(self) -> Iterator[str]:
        yield from self._format_lines()
        if self.total is not None:
            yield f"  files        {self.total:>7,}{_sized(self.bytes)}"
        width = max((len(label) for label, _ in self.legs), default=0)
        for label, count in self.legs:
            yield f"  - disproved  {count:>7,}  by {label:<{width}}".rstrip()
        if len(self.legs) > 1:
            yield f"  - disproved  {self.disproved:>7,}  together"
        if self.kept is not None:
            note = f"  ({self.unknown:,} of them unknown to the index)" if self.unknown else ""
            yield f"  = to read    {self.kept:>7,}{_sized(self.kept_bytes)}{note}"
        if self.opened is not None:
            size = self.opened_bytes if self.opened else None
            yield f"  opened       {self.opened:>7,}{_sized(size)}"
        if self.rows is not None:
            yield "  rows         {:>7,}  of them after filters {:,}".format(*self.rows)
        yield from (f"  {keys}" for keys in self.keys)
        if self.seconds is not None:
            yield f"  asked in {self.seconds:.3f} s"
        if self.reason is not None:
            yield f"  no index was asked: {self.reason}"
        yield from (f"  not used: {text}" for text in self.unused)

    def _format_lines(self) -> Iterator[str]:
        """What the format pruned by itself, if it did."""
        counts = [(step.name, step.files) for step in self.format if step.files is not None]
        if not counts or counts[0][1] == min(files for _, files in counts):
            return
        yield f"  in the table {counts[0][1]:>7,}{_sized(self.format[0].bytes)}"
        before = counts[0][1]
        for name, files in counts[1:]:
            if files < before:
                yield f"  - not read   {before - files:>7,}  by the table's {name}"
            before = files


def _sized(size: int | None) -> str:
    return "" if size is None else f"  {format_bytes(size)}"
