"""Plot an index with matplotlib (`pip install 'lakehouse-file-skipping[plot]'`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.errors import DefinitionError
from providers.predicate import Predicate
from skipping.advise.analyze import list_kinds
from skipping.advise.sample import measure_files
from skipping.advise.savings import Saving
from skipping.advise.savings import savings as list_savings
from skipping.lookup.format import format_value
from skipping.lookup.scan_plan import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import SparkSession

    from skipping.index import SkippingIndex


KEPT, PRUNED, NEUTRAL = "#c8553d", "#a3b3c2", "#4878a8"

_FILES = 400
"""Maximum number of drawn files, and of matching files that are drawn in addition."""

_WITH_DOTS, _DOTS = 60, 60
"""Maximum numbers of drawn files, and of values in a file, to draw the values as dots."""


@dataclass(frozen=True, slots=True)
class FileMap:
    """Files to draw.

    `low` and `high` are the ends of each file's bar on the x axis, `values` the positions of some
    of its values, and `pruned` whether it is pruned (None without a predicate). `ticks` are
    positions with labels. `total` counts all files, and `kept` those not pruned, drawn or not.
    """

    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    values: tuple[npt.NDArray[np.float64], ...]
    pruned: npt.NDArray[np.bool_] | None
    ticks: tuple[tuple[float, str], ...]
    total: int
    kept: int


def new_axes(width: float, height: float) -> Axes:
    """Return axes of a new figure; raise DefinitionError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise DefinitionError(
            "plots need matplotlib: pip install 'lakehouse-file-skipping[plot]'"
        ) from error
    # pyplot would keep every figure in memory and select a window system.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure.subplots()


def file_map(
    index: SkippingIndex,
    column: str,
    predicate: Predicate | str | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw each file of a table as a bar from the min to the max of a column.

    Files with few values show them as dots on the bar. With a predicate (as in
    `SkippingIndex.lookup`), the colour shows which files are pruned. Files are sorted by their
    mins. If there are more than 400 files, 400 evenly spaced ones are drawn, and with a predicate
    up to 400 of the files that it does not prune. Reads the column in the drawn files.
    """
    return draw_files(_make_map(index, column, predicate), column, ax=ax)


def _make_map(index: SkippingIndex, column: str, predicate: Predicate | str | None) -> FileMap:
    resolved = index.table.columns().resolve(column)
    work = list_kinds(resolved, ())[:1]
    if not work:
        raise DefinitionError(
            resolved.refusal or f"{column} is a partition column, which plots do not support"
        )
    table_files = index.table.files()
    pruned: npt.NDArray[np.bool_] | None = None
    if predicate is not None:
        pruned = index.why(predicate)["pruned"].to_numpy()
    picked = _pick_evenly(np.arange(len(table_files)), pruned)
    (sample,) = measure_files(
        index.spark, table_files.take(pa.array(picked)), [work], name=index.definition.name
    )
    files = sample.files.filter(sample.files["low"].is_valid())
    rows = picked[files["ordinal"].to_numpy()]
    scale = _Scale(files, resolved.type)
    return FileMap(
        scale.at(files["low"]),
        scale.at(files["high"]),
        tuple(scale.at(values.values) for values in files["keys"].combine_chunks()),
        None if pruned is None else pruned[rows],
        scale.ticks(),
        len(table_files),
        len(table_files) if pruned is None else int((~pruned).sum()),
    )


class _Scale:
    """Maps normalised values to positions on the x axis: a number to itself, text to its rank."""

    def __init__(self, files: pa.Table, type: str) -> None:
        self._type = type
        self._order: npt.NDArray[np.object_] | None = None
        both = [files[name].combine_chunks() for name in ("low", "high")]
        if not pa.types.is_integer(both[0].type):
            values = pa.concat_arrays([*both, files["keys"].combine_chunks().flatten()])
            self._order = np.array(sorted(set(values.to_pylist())), object)
            self._ends = (0, len(self._order) - 1)
        else:
            numbers = pa.concat_arrays(both).to_numpy()
            self._ends = (numbers.min(), numbers.max()) if len(numbers) else (0, 0)

    def at(self, values: Any) -> npt.NDArray[np.float64]:
        if self._order is None:
            return np.asarray(values.to_numpy(), float)
        return np.searchsorted(self._order, np.array(values.to_pylist(), object)).astype(float)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        places = np.unique(np.linspace(*self._ends, 5).round().astype(np.int64)).tolist()
        if self._order is not None:
            words = [str(self._order[place]) for place in places]
        else:
            words = [format_value(place, self._type).strip("'") for place in places]
            if self._type.startswith("timestamp"):
                words = [text[:16] for text in words]  # to the minute
        return tuple(zip(map(float, places), words, strict=True))


def draw_files(files: FileMap, column: str, *, ax: Axes | None = None) -> Axes:
    """Draw the files of a FileMap, with `column` as the label of the x axis."""
    order = np.lexsort((files.high, files.low))
    shown = _pick_evenly(order, None if files.pruned is None else files.pruned[order])
    ax = ax if ax is not None else new_axes(9, 2 + 3.5 * min(1.0, 0.15 + len(shown) / 60))
    rows = np.arange(len(shown))
    pruned = None if files.pruned is None else files.pruned[shown]
    thick = float(np.clip(220 / max(len(shown), 1), 0.6, 9))
    width = max(float(np.ptp(np.append(files.low, files.high))), 1e-9) if len(shown) else 1.0
    for picked, colour, name, layer in _groups(pruned, len(shown)):
        low, high = files.low[shown[picked]], files.high[shown[picked]]
        ax.hlines(rows[picked], low, high, color=colour, lw=thick, zorder=layer)
        # A bar that is too short to be visible becomes a square.
        size = max(0.8 * thick, 2.2 if layer > 2 else 1.0)
        short = high - low < 0.004 * width
        points = low[short], rows[picked][short]
        ax.scatter(*points, s=size**2, color=colour, marker="s", lw=0, zorder=layer)
        ax.scatter([], [], s=60, marker="s", color=colour, label=name)
    for row, file in zip(rows, shown, strict=True):
        values = files.values[file]
        if 2 < len(values) <= _DOTS and len(shown) <= _WITH_DOTS:
            ax.scatter(values, np.full(len(values), row), s=min(thick, 4), color="#222", zorder=5)
    # Without parse_math, matplotlib would render text between dollar signs as a formula.
    words = [_short(text) for _, text in files.ticks]
    ax.set_xticks([at for at, _ in files.ticks], words, parse_math=False)
    ax.set_xlabel(column, parse_math=False)
    sampled = f", {len(shown):,} drawn" if len(shown) < files.total else ""
    ax.set_ylabel(f"files, by their min{sampled}")
    ax.set_yticks([])
    ax.set_ylim(-1, len(shown))
    ax.spines[["top", "right", "left"]].set_visible(False)
    title = format_count(files.total)
    if pruned is not None:
        title += f": {files.kept:,} to read, {files.total - files.kept:,} pruned"
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    ax.set_title(title, loc="left", fontsize=11)
    return ax


def savings(spark: SparkSession, table: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the bytes that queries read, and those that they skipped, on each day.

    All drivers of the store are counted (`skipping.savings`); with `table`, only that table.
    """
    return draw_savings(list_savings(spark, table, by="day"), ax=ax)


def draw_savings(savings: Sequence[Saving], *, ax: Axes | None = None) -> Axes:
    """Draw savings by day, of one table or several, added up."""
    ax = ax if ax is not None else new_axes(9, 3.2)
    days = sorted({each.day for each in savings if each.day is not None})
    by_day = [[each for each in savings if each.day == day] for day in days]
    read = np.array([float(sum(each.opened_bytes for each in some)) for some in by_day])
    skipped = np.array([float(sum(each.bytes for each in some)) for some in by_day])
    # Days without queries have a place, too.
    places = np.array([(day - days[0]).days for day in days], float)
    ax.bar(places, read, 0.8, color=KEPT, label="read")
    ax.bar(places, skipped, 0.8, bottom=read, color=PRUNED, label="skipped")
    ticks = np.unique(np.linspace(0, len(days) - 1, min(6, len(days))).astype(int))
    ax.set_xticks([places[i] for i in ticks], [days[i].isoformat() for i in ticks])
    ax.set_ylabel("bytes")
    ax.yaxis.set_major_formatter(lambda value, _: format_bytes(int(value)))
    ax.spines[["top", "right"]].set_visible(False)
    requests, seconds = sum(s.requests for s in savings), sum(s.seconds for s in savings)
    ax.set_title(
        f"{format_bytes(int(skipped.sum()))} not read, about {requests:,} requests and "
        f"{seconds:,.0f} s of tasks saved",
        loc="left",
        fontsize=11,
    )
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def format_count(files: int) -> str:
    """Return a number of files as text, such as `1 file` or `1,200 files`."""
    return f"{files:,} file{'' if files == 1 else 's'}"


def _pick_evenly(
    files: npt.NDArray[np.int64], pruned: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.int64]:
    """Return up to _FILES of all files and up to _FILES of those not pruned, in order."""
    picked = np.zeros(len(files), np.bool_)
    kept = np.zeros(0, np.int64) if pruned is None else np.flatnonzero(~pruned)
    for group in (np.arange(len(files)), kept):
        if len(group):
            picked[group[np.linspace(0, len(group) - 1, _FILES).astype(int)]] = True
    return files[picked]


def _groups(
    pruned: npt.NDArray[np.bool_] | None, n: int
) -> list[tuple[npt.NDArray[np.bool_], str, str, int]]:
    if pruned is None:
        return [(np.ones(n, np.bool_), NEUTRAL, "", 2)]
    return [(pruned, PRUNED, "pruned", 2), (~pruned, KEPT, "to read", 3)]


def _short(words: str) -> str:
    return words if len(words) <= 16 else words[:15] + "…"
