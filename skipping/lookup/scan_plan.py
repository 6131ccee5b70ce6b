"""The result of one scan: its files, what pruned them, and what was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


def format_bytes(size: float) -> str:
    """Format a number of bytes.

    >>> format_bytes(999), format_bytes(13_800_000)
    ('999 B', '13.8 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1_000
    return f"{size:,.1f} TB"


_BY_PARTITIONS = "by Spark's partition pruning"


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A step of the funnel, and what remains after it: files, bytes of files, or rows, if known."""

    name: str
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class FunnelRow:
    """A row of the funnel, in the terminal and in a notebook.

    `count` counts rows if the name is `rows`, else files. If the name begins with a minus, the step
    removed these files, and `note` names the cause. `bar` is the range that remains or was removed,
    from 0 to 1.
    """

    name: str
    count: int
    bytes: int | None = None
    note: str = ""
    bar: tuple[float, float] = (0.0, 1.0)

    @property
    def removes(self) -> bool:
        """Whether the step removed files."""
        return self.name.startswith("-")

    def __str__(self) -> str:
        size = "" if self.bytes is None else f"  {format_bytes(self.bytes)}"
        note = f"  {self.note}" if self.note else ""
        return f"  {self.name:<12} {self.count:>7,}{size}{note}"


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that a join collected for a scan, or why it collected no keys.

    `keys` is their number; None if they are unavailable and every file is read. `what` is "keys" or
    "ranges". `seconds` is the time to collect them. `how` describes their source: the join's own
    broadcast or shuffle, or another scan of the dimension.
    """

    dimension: str
    column: str = ""
    keys: int | None = None
    seconds: float = 0.0
    how: str = ""
    reason: str | None = None
    what: str = "keys"

    def __str__(self) -> str:
        whose = f"of {self.dimension} for {self.column}" if self.column else f"of {self.dimension}"
        if self.keys is None:
            return f"no {self.what} {whose}: {self.reason}"
        what = self.what if self.keys != 1 else self.what[:-1]
        return f"{self.keys:,} {what} {whose}: {self.how}, {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Counts of files of one scan.

    The table format would read `total` files with `bytes` bytes, after its own steps in `format`.
    The index prunes `pruned` of them; `unknown` have no entry and are read. `legs` counts the files
    that each leaf alone prunes. `opened` files were read; None if nothing ran. `reason` says why
    there was no lookup, `unused` why conditions did not help. `keys` are the keys of joins. `rows`
    are the rows that were read, and those that passed the filter above the scan. `seconds` is the
    time of the lookup. A `cached` scan filled the cache that a query reads: an earlier query opened
    its files. At least `without_match` opened files had no matching row; 0 if unknown.
    """

    table: str
    total: int | None = None
    pruned: int = 0
    unknown: int = 0
    legs: tuple[tuple[str, int], ...] = ()
    opened: int | None = None
    reason: str | None = None
    unused: tuple[str, ...] = ()
    keys: tuple[KeySet, ...] = ()
    rows: tuple[int, int] | None = None
    bytes: int | None = field(default=None, compare=False)
    pruned_bytes: int = field(default=0, compare=False)
    opened_bytes: int | None = field(default=None, compare=False)
    format: tuple[FunnelStep, ...] = field(default=(), compare=False)
    seconds: float | None = field(default=None, compare=False)
    cached: bool = False
    without_match: int = field(default=0, compare=False)

    @property
    def kept(self) -> int | None:
        """The number of files to read."""
        return None if self.total is None else self.total - self.pruned

    @property
    def kept_bytes(self) -> int | None:
        """The bytes of the files to read."""
        return None if self.bytes is None else self.bytes - self.pruned_bytes

    @property
    def funnel(self) -> tuple[FunnelStep, ...]:
        """Return what remains after each step, in the order of the steps.

        The steps are the table, its partitions, the format's statistics, the index, the files that
        Spark opened, the rows that it read there, and the rows that its filter left.
        """
        steps = list(self.format)
        if self.total is not None:
            if not steps or steps[-1].files != self.total:
                steps.append(FunnelStep("listed", self.total, self.bytes))
            steps.append(FunnelStep("index", self.kept, self.kept_bytes))
        if self.opened is not None:
            steps.append(FunnelStep("opened", self.opened, self.opened_bytes))
        if self.rows is not None:
            read, left = self.rows
            steps += [
                FunnelStep("rows read", rows=read),
                FunnelStep("rows left by the filter", rows=left),
            ]
        return tuple(steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        given = asdict(self)
        given["legs"] = [{"label": label, "pruned": count} for label, count in self.legs]
        funnel = [asdict(step) for step in self.funnel]
        return {**given, "kept": self.kept, "kept_bytes": self.kept_bytes, "funnel": funnel}

    @property
    def lines(self) -> tuple[FunnelRow, ...]:
        """The funnel as rows, with what removed files in each step."""
        return tuple(self._lines())

    @property
    def notes(self) -> tuple[str, ...]:
        """Further lines: the keys of joins, times, and why no more files were skipped."""
        return tuple(self._notes())

    def __str__(self) -> str:
        return "\n".join([self.table, *map(str, self.lines), *(f"  {n}" for n in self.notes)])

    def _lines(self) -> Iterator[FunnelRow]:
        most = max((step.files or 0 for step in self.funnel), default=0) or 1

        def keep(name: str, files: int, size: int | None, note: str = "") -> FunnelRow:
            return FunnelRow(name, files, size, note, (0.0, files / most))

        def take(name: str, files: int, of: int, note: str) -> FunnelRow:
            return FunnelRow(name, files, None, note, ((of - files) / most, of / most))

        counts = [
            (f"by the table's {step.name}", step.files)
            for step in self.format
            if step.files is not None
        ]
        # 0 opened files: Spark may not have listed them.
        listed = self.total if self.total is not None else self.opened or None
        if counts and listed is not None:
            counts.append((_BY_PARTITIONS, listed))
        # Show these steps only if the format or Spark pruned files.
        if counts and counts[0][1] > min(files for _, files in counts):
            before = counts[0][1]
            yield keep("in the table", before, self.format[0].bytes)
            for note, files in counts[1:]:
                if files < before:
                    yield take("- not read", before - files, before, note)
                before = files
        if self.total is not None and self.kept is not None:
            yield keep("files", self.total, self.bytes)
            useful = [(label, files) for label, files in self.legs if files]
            for label, files in useful:
                yield take("- pruned", files, self.total, f"by {label}")
            if len(useful) > 1:
                yield take("- pruned", self.pruned, self.total, "together")
            note = f"({self.unknown:,} of them unknown to the index)" if self.unknown else ""
            yield keep("= to read", self.kept, self.kept_bytes, note)
            if self.opened and self.opened < self.kept:
                yield take("- not read", self.kept - self.opened, self.kept, _BY_PARTITIONS)
        if self.opened is not None:
            yield keep("opened", self.opened, self.opened_bytes if self.opened else None)
        if self.rows is not None:
            read, passed = self.rows
            share = passed / read if read else 0.0
            yield FunnelRow("rows", read, None, f"after filters {passed:,}", (0.0, share))

    def _notes(self) -> Iterator[str]:
        yield from map(str, self.keys)
        if self.cached:
            yield "cached: the files were opened when the cache was filled, not by this query"
        if self.without_match:
            least = "" if self.without_match == self.opened else "at least "
            yield f"{least}{self.without_match:,} of the opened files had no matching row"
        if self.seconds is not None:
            yield f"index lookup {self.seconds:.3f} s"
        if self.reason is not None:
            yield f"no index was used: {self.reason}"
        yield from (f"not used: {text}" for text in self.unused)
        useless = [label for label, files in self.legs if not files]
        if useless:
            yield f"pruned no file: {'; '.join(dict.fromkeys(useless))}"
