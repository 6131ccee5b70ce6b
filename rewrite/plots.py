"""Plot which files queries skipped, with matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import SparkSession

from rewrite.observe.explain import Explanation
from rewrite.observe.history import history
from skipping.lookup.scan_plan import FunnelStep, ScanPlan, format_bytes
from skipping.plots import KEPT, PRUNED, format_count, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def funnel(explained: Explanation | ScanPlan, *, ax: Axes | None = None) -> Axes:
    """Draw how many files remain after each step of a scan.

    If an Explanation has several scans, the one with the most files is drawn.
    """
    if isinstance(explained, Explanation):
        explained = max(explained.scans, key=lambda scan: scan.funnel[0].files or 0)
    steps = [step for step in explained.funnel if step.files is not None]
    ax = ax if ax is not None else new_axes(8, 0.9 + 0.42 * len(steps))
    most = max((step.files or 0 for step in steps), default=0) or 1
    places = np.arange(len(steps))[::-1]
    widths = [step.files or 0 for step in steps]
    ax.barh(places, [most] * len(steps), color="#eef1f4", height=0.62)
    colours = [KEPT if step.name in ("index", "opened") else "#4878a8" for step in steps]
    ax.barh(places, widths, color=colours, height=0.62)
    for place, step in zip(places, steps, strict=True):
        inside = (step.files or 0) > 0.6 * most
        ax.annotate(
            _words(step),
            (step.files or 0, place),
            xytext=(-6 if inside else 6, 0),
            textcoords="offset points",
            va="center",
            ha="right" if inside else "left",
            color="white" if inside else "#222",
        )
    ax.set_yticks(places, [step.name for step in steps], parse_math=False)
    ax.set_xticks([])
    ax.set_xlim(0, most)
    ax.spines[["top", "right", "bottom", "left"]].set_visible(False)
    ax.tick_params(left=False)
    ax.set_title(explained.table, loc="left", fontsize=11, parse_math=False)
    return ax


def _words(step: FunnelStep) -> str:
    size = "" if step.bytes is None else f", {format_bytes(step.bytes)}"
    return f"{format_count(step.files or 0)}{size}"


def over_time(spark: SparkSession, table: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the number of read and of skipped files for each past scan (`rewrite.history`).

    With `table`, a full name as explain shows it, draw only scans of that table.
    """
    rows = [
        (row.ended, row.files or row.opened or 0, row.pruned or 0)
        for row in history(spark).collect()
        if table is None or row.table == table
    ]
    return draw_history(rows, ax=ax)


def draw_history(scans: Sequence[tuple[datetime, int, int]], *, ax: Axes | None = None) -> Axes:
    """Draw scans, oldest first; each is (end time, number of files, number of pruned files)."""
    ax = ax if ax is not None else new_axes(9, 3.2)
    total = np.array([files for _, files, _ in scans], float)
    skipped = np.array([pruned for _, _, pruned in scans], float)
    places = np.arange(len(scans))
    width = 0.8 if len(scans) <= 120 else 1.0
    ax.bar(places, total - skipped, width, color=KEPT, label="read")
    ax.bar(places, skipped, width, bottom=total - skipped, color=PRUNED, label="skipped")
    ticks = np.unique(np.linspace(0, len(scans) - 1, min(6, len(scans))).astype(int))
    days = len({ended.date() for ended, _, _ in scans}) > 1
    form = "%m-%d %H:%M" if days else "%H:%M:%S"
    ax.set_xticks(ticks, [scans[i][0].strftime(form) for i in ticks])
    ax.set_ylabel("files")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.margins(x=0.01)
    ax.spines[["top", "right"]].set_visible(False)
    share = skipped.sum() / total.sum() if total.sum() else 0
    ax.set_title(
        f"{len(scans):,} scans, {share:.0%} of {total.sum():,.0f} files skipped",
        loc="left",
        fontsize=11,
    )
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax
