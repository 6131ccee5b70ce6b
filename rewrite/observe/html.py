"""An explanation for notebooks: a table a scan, its bars as long as what each step left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from skipping.lookup.scan_plan import ScanPlan, Step, format_bytes

__all__ = ["render"]

_CELL = "padding:1px 10px 1px 0;text-align:"
_BAR = "height:0.8em;background:#4878a8;min-width:1px;width:"


def render(title: str, scans: Sequence[ScanPlan]) -> str:
    """HTML without scripts or styles of its own outside its tags."""
    body = "".join(map(_scan, scans)) or "<p>no file scan</p>"
    return f"<div><b>{escape(title)}</b>{body}</div>"


def _scan(scan: ScanPlan) -> str:
    most = max((step.files or 0 for step in scan.funnel), default=0)
    rows = "".join(_step(step, most) for step in scan.funnel)
    legs = "".join(
        f"<li>{count:,} files disproved by {escape(label)}</li>" for label, count in scan.legs
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in _notes(scan))
    return (
        f"<p style='margin:6px 0 2px'>{escape(scan.table)}</p>"
        f"<table style='border-collapse:collapse'>{rows}</table>"
        f"<ul style='margin:2px 0 8px'>{legs}{notes}</ul>"
    )


def _step(step: Step, most: int) -> str:
    files = "" if step.files is None else f"{step.files:,}"
    size = "" if step.bytes is None else format_bytes(step.bytes)
    if step.rows is not None:
        files, size = f"{step.rows:,} rows", ""
    share = 100 * step.files / most if step.files is not None and most else 0
    bar = f"<div style='{_BAR}{share:.2f}%'></div>" if step.files is not None else ""
    return (
        f"<tr><td style='{_CELL}left'>{escape(step.name)}</td>"
        f"<td style='{_CELL}right'>{files}</td><td style='{_CELL}right'>{size}</td>"
        f"<td style='width:240px'>{bar}</td></tr>"
    )


def _notes(scan: ScanPlan) -> Iterator[str]:
    if scan.unknown:
        yield f"{scan.unknown:,} files are unknown to the index and are read"
    yield from map(str, scan.keys)
    if scan.seconds is not None:
        yield f"asked in {scan.seconds:.3f} s"
    if scan.reason is not None:
        yield f"no index was asked: {scan.reason}"
    yield from (f"not used: {text}" for text in scan.unused)
