"""Parse untrusted JSON only if it cannot become much larger than its text."""

from __future__ import annotations

import json
from typing import Any


class TooManyParts(ValueError):
    """JSON with too many parts."""


RESIDUALS = 4 << 20
"""Maximum bytes that the repeated residual filter takes in one response."""


def check_parts(text: bytes, most: int) -> None:
    """Raise TooManyParts for a JSON text with more than `most` parts.

    Each list, object, key and element costs a comma, a colon or a bracket, and in Python about 100
    bytes: 64 MiB of `[],` would take 1.3 GiB.
    """
    if sum(map(text.count, (b",", b":", b"[", b"{"))) > most:
        raise TooManyParts(f"the JSON has more than {most:,} parts")


def read_json(text: bytes, most: int) -> Any:
    """Parse a JSON text with at most `most` parts; raise ValueError for any other text."""
    check_parts(text, most)
    try:
        return json.loads(text.decode())  # only UTF-8; `json` would detect UTF-16, too
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
