"""Print results on stdout, as text or as one JSON document, and errors on stderr."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.errors import SkippingError, first_line
from skipping.model.identifiers import hide_passwords, printable


@dataclass(frozen=True, slots=True)
class Output:
    """What the options `--json`, `--quiet` and `--verbose` select."""

    json: bool
    quiet: bool
    verbose: bool

    def report(self, text: str) -> None:
        """Print a line about a success, unless quiet or JSON."""
        if not (self.json or self.quiet):
            print(printable_lines(text), flush=True)

    def warn(self, text: str) -> None:
        """Print a line on stderr, unless quiet."""
        if not self.quiet:
            print(printable_lines(text), file=sys.stderr, flush=True)

    def show(self, document: Mapping[str, Any], text: str) -> None:
        """Print a result: the document as JSON, or the text, both without passwords."""
        if self.json:
            print(hide_passwords(json.dumps(document, indent=2, default=str)))
        else:
            print(printable_lines(text))

    def fail(self, error: Exception, before: str = "") -> str:
        """Print an error on stderr, and its traceback if verbose; return its text."""
        text = str(error)
        if not isinstance(error, SkippingError | ImportError):  # of a library, or a bug
            text = f"{type(error).__name__}: {first_line(error)}"
        print_error(before + text)
        if self.verbose:
            trace = "".join(traceback.format_exception(error))
            print(printable_lines(trace), file=sys.stderr)
        return text


def print_error(text: object) -> None:
    """Print an error on stderr, without passwords and control characters."""
    print(f"error: {printable_lines(str(text))}", file=sys.stderr, flush=True)


def printable_lines(text: str) -> str:
    """Return a text of several lines that is safe for a terminal."""
    return "\n".join(map(printable, text.split("\n")))


def format_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an aligned table; columns of numbers are aligned to the right.

    >>> print(format_table(["table", "files"], [["flights", 1200], ["t", None]]))
    table    files
    flights  1,200
    t
    """
    cells = [list(names), *([_format_cell(value) for value in row] for row in rows)]
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [
        any(isinstance(v, int | float) for v in column) for column in zip(*rows, strict=True)
    ] or [False] * len(names)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )


def _format_cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) else printable(str(value))
