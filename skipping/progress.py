"""Progress of long operations: a bar in a terminal and in a notebook, else lines in the log.

The logger `skipping.progress` logs a line every few seconds at INFO. Short operations show nothing.
"""

from __future__ import annotations

import io
import logging
import sys
from importlib.util import find_spec
from typing import Any

from tqdm import tqdm

__all__ = ["in_notebook", "progress"]

log = logging.getLogger("skipping.progress")

_SOON, _EVERY = 0.5, 5.0
"""Seconds before a bar is drawn, and between lines in the log."""


class _LogBar(tqdm):  # type: ignore[misc]
    """A bar that logs lines."""

    monitor_interval = 0  # no drawing thread

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        if msg != "":  # which would clear a terminal
            log.info("%s", self._format_line())
        return True

    def _format_line(self) -> str:
        now = self.format_dict
        done, total, elapsed = now["n"], now["total"], now["elapsed"]
        rate = now["rate"] or (done / elapsed if elapsed else 0)
        of = f" of {total:,}" if total else ""
        left = f", {tqdm.format_interval((total - done) / rate)} left" if total and rate else ""
        return f"{self.desc}: {done:,}{of}{self.unit}, {rate:,.1f}{self.unit}/s{left}"


def progress(total: int | None, unit: str, what: str, *, is_background: bool = False) -> tqdm[Any]:
    """Return a context whose `update(n)` adds n to the progress, of `total` if that is known.

    `unit` is a plural such as "files". With `is_background` it is logged, not drawn.
    """
    shown: dict[str, Any] = {"total": total, "unit": f" {unit}", "desc": what}
    if is_background or not (in_notebook() or _in_terminal()):
        times = {"mininterval": _EVERY, "delay": _EVERY, "miniters": 1}
        return _LogBar(**shown, **times, file=io.StringIO())
    if in_notebook() and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as drawn
    else:
        drawn = tqdm
    return drawn(**shown, delay=_SOON)


def _in_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this, which has no terminal."""
    shell = sys.modules.get("IPython")
    return shell is not None and "IPKernelApp" in getattr(shell.get_ipython(), "config", ())
