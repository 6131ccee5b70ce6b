"""Render an explanation as HTML for notebooks: the terminal's details, and proportional bars.

The result is one HTML fragment without scripts or external resources. Viewers that remove its style
sheet still show a readable table. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from skipping.lookup.scan_plan import FunnelRow, ScanPlan, format_bytes

LIGHT = (
    "--ink:#1f2933;--quiet:#5d6b79;--paper:#fff;--line:#e1e6eb;--track:#eef1f4;"
    "--left:#4878a8;--gone:#a3b3c2;--kept:#c8553d;--rows:#7a6ba8;--warn:#9a5b00"
)
DARK = (
    "--ink:#e3e8ed;--quiet:#9aa7b4;--paper:#16191d;--line:#333a42;--track:#262c33;"
    "--left:#6d9dce;--gone:#6b7a89;--kept:#e5765c;--rows:#a394d6;--warn:#e0a54a"
)
# The page's theme overrides the system's, for example a dark Jupyter on a light desktop.
_THEMES = (
    f".skipping-explain{{{LIGHT}}}"
    f"@media (prefers-color-scheme:dark){{.skipping-explain{{{DARK}}}}}"
    "[data-jp-theme-light=true] .skipping-explain,.vscode-light .skipping-explain,"
    f"[data-md-color-scheme=default] .skipping-explain{{{LIGHT}}}"
    "[data-jp-theme-light=false] .skipping-explain,.vscode-dark .skipping-explain,"
    f"[data-md-color-scheme=slate] .skipping-explain{{{DARK}}}"
)
_SHAPES = """
.skipping-explain{box-sizing:border-box;max-width:1080px;padding:14px 18px 16px;
 border:1px solid var(--jp-border-color2,var(--line));border-radius:8px;
 color:var(--jp-ui-font-color1,var(--vscode-editor-foreground,var(--ink)));
 background:var(--jp-layout-color0,var(--vscode-editor-background,var(--paper)));
 font:13px/1.45 var(--jp-ui-font-family,system-ui,-apple-system,"Segoe UI",sans-serif)}
.skipping-explain :not(pre)>code{padding:0;border:0;color:inherit;background:none;
 overflow-wrap:anywhere;
 font:12px/1.45 var(--jp-code-font-family,ui-monospace,SFMono-Regular,Menlo,Consolas,monospace)}
.skipping-explain header,.skipping-explain .scan>p{display:flex;flex-wrap:wrap;
 align-items:baseline;gap:2px 14px;margin:0}
.skipping-explain header b{font-size:14px}
.skipping-explain .quiet{color:var(--jp-ui-font-color2,var(--quiet))}
.skipping-explain .scan{margin-top:12px;padding-top:12px;
 border-top:1px solid var(--jp-border-color2,var(--line))}
.skipping-explain .scan>p code{font-size:13px;font-weight:600}
.skipping-explain .sum{margin-left:auto}
.skipping-explain .sum b{font-size:15px;color:var(--kept)}
.skipping-explain table{width:100%;margin:6px 0 0;border:0;border-collapse:collapse;
 table-layout:auto;font-size:inherit;color:inherit}
.skipping-explain tr,.skipping-explain tbody tr:nth-child(odd){background:none}
.skipping-explain td,.skipping-explain th{padding:2px 12px 2px 0;border:0;text-align:left;
 vertical-align:middle;font-weight:400;white-space:nowrap;color:inherit;background:none}
.skipping-explain th{min-width:7.4em}
.skipping-explain .number{min-width:4.6em;text-align:right;font-variant-numeric:tabular-nums}
.skipping-explain .track{width:38%;min-width:130px}
.skipping-explain .who{width:99%;padding-right:0;white-space:normal;overflow-wrap:anywhere}
.skipping-explain .gone th,.skipping-explain .gone .number{
 color:var(--jp-ui-font-color2,var(--quiet))}
.skipping-explain .kept th,.skipping-explain .kept th+.number{font-weight:600}
.skipping-explain .bar{position:relative;height:14px;border-radius:3px;background:var(--track);
 overflow:hidden}
.skipping-explain .bar i{position:absolute;top:0;bottom:0;min-width:2px;border-radius:3px;
 background:var(--left)}
.skipping-explain .gone .bar i{background:repeating-linear-gradient(135deg,var(--gone) 0 4px,
 transparent 4px 7px)}
.skipping-explain .gone .bar{background:none}
.skipping-explain .kept .bar i{background:var(--kept)}
.skipping-explain .bar.bytes{height:3px;margin-top:2px;opacity:.6}
.skipping-explain .rows .bar i{background:var(--rows)}
.skipping-explain .kind{display:inline-block;padding:0 7px;border-radius:9px;
 background:var(--track);font-size:10.5px;line-height:17px;letter-spacing:.03em;white-space:nowrap}
.skipping-explain ul.notes{margin:8px 0 0;padding:0;list-style:none}
.skipping-explain ul.notes li{margin:2px 0;padding-left:14px;position:relative;
 overflow-wrap:anywhere}
.skipping-explain .notes li:before{content:"";position:absolute;left:1px;top:.5em;width:6px;
 height:6px;border-radius:50%;background:var(--left)}
.skipping-explain .notes .why{color:var(--warn)}
.skipping-explain .notes .why:before{background:var(--warn)}
.skipping-explain .times{width:62%;min-width:340px;margin-top:0}
.skipping-explain .times .track{width:60%}
.skipping-explain .times .bar{height:8px}
"""
STYLE = "<style>" + _THEMES + _SHAPES.replace("\n ", "").replace("\n", "") + "</style>"


def render(title: str, scans: Sequence[ScanPlan], times: Sequence[tuple[str, float]] = ()) -> str:
    """Return an HTML fragment for an execution or a plan; `times` has (name, seconds) pairs."""
    body = "".join(map(_scan, scans)) or "<div class='scan'>no file scan</div>"
    return (
        f"{STYLE}<div class='skipping-explain'>"
        f"<header><b>{escape(title)}</b>{_all(scans)}</header>"
        f"{body}{_times(times)}</div>"
    )


def _all(scans: Sequence[ScanPlan]) -> str:
    """Render the number of files of all scans together; empty text for a single scan."""
    ends = [(scan.funnel[0].files, _last(scan)) for scan in scans if scan.funnel]
    if len(ends) < 2 or any(None in end for end in ends):
        return ""
    files, left = (sum(end[i] or 0 for end in ends) for i in (0, 1))
    return _share(left, files, f"in {len(scans)} scans")


def _last(scan: ScanPlan) -> int | None:
    """Return the number of opened files; before an execution, of files that would be opened."""
    return scan.opened if scan.opened is not None else scan.kept


def _share(left: int, files: int, what: str) -> str:
    return f"<span class='sum'><b>{left:,}</b> of {files:,} files {escape(what)}</span>"


def _scan(scan: ScanPlan) -> str:
    counts = count_files(scan)
    share = "" if counts is None else _share(*counts)
    title = f"<p><code>{escape(scan.table)}</code>{share}</p>"
    return f"<div class='scan'>{title}{render_funnel(scan)}</div>"


def render_funnel(scan: ScanPlan) -> str:
    """Return a scan's steps and notes, for an element with the class `skipping-explain`."""
    most = max((line.bytes or 0 for line in scan.lines), default=0)
    rows = "".join(_line(line, most) for line in scan.lines)
    notes = "".join(map(_note, scan.notes))
    table = f"<table class='steps'><tbody>{rows}</tbody></table>"
    listed = f"<ul class='notes'>{notes}</ul>"
    return f"{table if rows else ''}{listed if notes else ''}"


def count_files(scan: ScanPlan) -> tuple[int, int, str] | None:
    """Return the files that a scan opened or would read, those of its table, and which it is.

    Return None if one of the numbers is unknown.
    """
    left, files = _last(scan), scan.funnel[0].files if scan.funnel else None
    if left is None or files is None:
        return None
    return left, files, "opened" if scan.opened is not None else "to read"


def _line(line: FunnelRow, most: int) -> str:
    """Render a row of the table: the step, its files, their bytes, a bar, and the condition."""
    style = "gone" if line.removes else "rows" if line.name == "rows" else ""
    if line.name in ("= to read", "opened"):
        style = "kept"
    size = "" if line.bytes is None else format_bytes(line.bytes)
    thin = "" if line.bytes is None else _bar(0.0, line.bytes / (most or 1), "bar bytes")
    return (
        f"<tr class='{style}'><th scope='row'>{escape(line.name)}</th>"
        f"<td class='number'>{line.count:,}</td><td class='number quiet'>{size}</td>"
        f"<td class='track'>{_bar(*line.bar)}{thin}</td><td class='who'>{_who(line.note)}</td></tr>"
    )


def _bar(start: float, end: float, style: str = "bar") -> str:
    place = f"left:{100 * start:.2f}%;width:{100 * (end - start):.2f}%"
    piece = f"<i style='{place}'></i>" if end > start else ""
    return f"<div class='{style}' aria-hidden='true'>{piece}</div>"


def _who(note: str) -> str:
    """Render the condition of a step and the index type that evaluated it."""
    label, _, kind = note.rpartition("  ")
    if not label or not label.startswith("by "):
        return f"<span class='quiet'>{escape(note)}</span>" if note else ""
    return f"by <code>{escape(label[3:])}</code> <span class='kind'>{escape(kind)}</span>"


def _note(note: str) -> str:
    style = " class='why'" if note.startswith(("no ", "not ")) else ""
    return f"<li{style}>{escape(note)}</li>"


def _times(times: Sequence[tuple[str, float]]) -> str:
    """Render the times as bars; the longest has full width. One time alone needs no bars."""
    if len(times) < 2:
        return ""
    most = max((seconds for _, seconds in times), default=0.0) or 1.0
    rows = "".join(_time(name, seconds, most) for name, seconds in times)
    return f"<div class='scan'><table class='times'><tbody>{rows}</tbody></table></div>"


def _time(name: str, seconds: float, most: float) -> str:
    return (
        f"<tr class='rows'><th scope='row'>{escape(name)} in</th>"
        f"<td class='number'>{seconds:.3f} s</td>"
        f"<td class='track'>{_bar(0.0, seconds / most)}</td></tr>"
    )
