"""How benchmarks measure and print: interleaved runs, medians with the range, where it ran."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from statistics import median

__all__ = ["Timing", "heading", "interleaved", "table"]

Timing = Sequence[float]
"""Seconds of one candidate's runs, in the order of the rounds."""


def heading(title: str, **facts: object) -> None:
    """Print what was measured and where."""
    packages = " ".join(f"{p} {version(p)}" for p in ("pyspark", "delta-spark", "pyarrow"))
    print(f"\n{title}")
    print(f"  Python {platform.python_version()} {packages}, {os.cpu_count()} cores", end="")
    print(f", load {os.getloadavg()[0]:.1f}")
    print("  " + ", ".join(f"{name} {value}" for name, value in facts.items()))


def interleaved(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int, warm: int = 1
) -> dict[str, list[float]]:
    """Seconds of each candidate, run as A B C C B A ...; the first `warm` rounds are not kept.

    On a busy machine only candidates of one round can be compared, so look at `ratio`. Java still
    compiles in the first rounds, which always serves the last candidate.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warm + rounds):
        for name, run in list(candidates.items())[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            run()
            if turn >= warm:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def spread(values: Sequence[float], digits: int = 2, scale: float = 1.0) -> str:
    """The median, then the least and the greatest."""
    low, middle, high = (f"{scale * f(values):.{digits}f}" for f in (min, median, max))
    return f"{middle} ({low} to {high})"


def ratio(measured: Timing, base: Timing) -> str:
    """The median of the rounds' ratios, then the least and the greatest."""
    return spread([a / b for a, b in zip(measured, base, strict=True)])


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows in aligned columns: the first to the left, the others to the right."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for n, row in enumerate(cells):
        first, *others = (
            cell.rjust(w) if i else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join([first, *others]).rstrip())
        if n == 0:
            print("  " + "  ".join("-" * w for w in widths))
