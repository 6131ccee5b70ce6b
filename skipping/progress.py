"""Show the progress of long operations: as a bar in a terminal or notebook, else in the log.

The logger `skipping.progress` logs a line every few seconds at INFO. Short operations show nothing.
"""

from __future__ import annotations

import io
import logging
import sys
from importlib.util import find_spec
from typing import Any

from tqdm import tqdm

log = logging.getLogger("skipping.progress")

_SOON, _EVERY = 0.5, 5.0
"""Seconds until a bar is drawn, and between two log lines."""


class _LogBar(tqdm):  # type: ignore[misc]
    """A tqdm bar that logs lines instead of drawing."""

    monitor_interval = 0  # start no thread that redraws the bar

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        if msg != "":  # tqdm clears the bar with an empty message
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
    """Return a context manager that shows progress; its `update(n)` adds n.

    `total` is the final value, None if it is unknown. `unit` is a plural such as "files", and
    `what` names the operation. With `is_background`, progress is logged, not drawn. If the logger
    is disabled, nothing is.
    """
    options: dict[str, Any] = {"total": total, "unit": f" {unit}", "desc": what}
    options["disable"] = log.disabled
    if is_background or not (in_notebook() or _in_terminal()):
        times = {"mininterval": _EVERY, "delay": _EVERY, "miniters": 1}
        return _LogBar(**options, **times, file=io.StringIO())
    if in_notebook() and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as bar
    else:
        bar = tqdm
    return bar(**options, delay=_SOON)


def _in_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def in_notebook() -> bool:
    """Return whether this process is a Jupyter kernel, which has no terminal."""
    shell = sys.modules.get("IPython")
    return shell is not None and "IPKernelApp" in getattr(shell.get_ipython(), "config", ())
