"""The outcome for one scan: how many files there are, what disproved which, and what was read."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KeySet", "ScanPlan"]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that a join collected for a scan, or why it has none.

    `keys` is their number, None where they are unavailable and every file is read; `seconds` is how
    long collecting took; `how` says whether a broadcast of Spark's was used or the dimension was
    read again.
    """

    dimension: str
    column: str = ""
    keys: int | None = None
    seconds: float = 0.0
    how: str = ""
    reason: str | None = None

    def __str__(self) -> str:
        whose = f"{self.column} by {self.dimension}" if self.column else self.dimension
        if self.keys is None:
            return f"no keys, {whose}: {self.reason}"
        return f"{self.keys:,} keys, {whose}: {self.how}, {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Counts of files of one scan.

    `total` are the files that the table format would read by itself; `disproved` of them hold no
    match; `unknown` have no entry and are read; `legs` say how many each sketch disproves alone.
    `opened` are those it read, None where nothing ran. `reason` says why no index was asked;
    `unused` says of the parts of the condition that did not help, why. `keys` are those of joins;
    `rows` are the rows that were read and those left by the filter on top of the scan.
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

    @property
    def kept(self) -> int | None:
        """Files that are read."""
        return None if self.total is None else self.total - self.disproved

    def __str__(self) -> str:
        lines = [self.table]
        if self.total is not None:
            lines.append(f"  files        {self.total:>7,}")
        width = max((len(label) for label, _ in self.legs), default=0)
        for label, count in self.legs:
            lines.append(f"  - disproved  {count:>7,}  by {label:<{width}}".rstrip())
        if len(self.legs) > 1:
            lines.append(f"  - disproved  {self.disproved:>7,}  together")
        if self.kept is not None:
            note = f"  ({self.unknown:,} of them unknown to the index)" if self.unknown else ""
            lines.append(f"  = to read    {self.kept:>7,}{note}")
        if self.opened is not None:
            lines.append(f"  opened       {self.opened:>7,}")
        if self.rows is not None:
            lines.append("  rows         {:>7,}  of them after filters {:,}".format(*self.rows))
        lines.extend(f"  {keys}" for keys in self.keys)
        if self.reason is not None:
            lines.append(f"  no index was asked: {self.reason}")
        lines.extend(f"  not used: {text}" for text in self.unused)
        return "\n".join(lines)
