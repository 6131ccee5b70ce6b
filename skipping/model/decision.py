"""Define the decisions of automatic indexes. An index's definition contains its newest ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, get_args

from skipping.parser.errors import mask_controls

Action = Literal["add", "drop"]

MOST_DECISIONS = 30
"""Maximum number of decisions that a definition contains, not counting those about its columns."""

_LONGEST = 4_096
_MOST_BYTES = float(1 << 62)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A change of an automatic index, with its reason; `benefit` and `cost` are bytes a day.

    `bytes` is the expected size of the column's sketches, for the table's `files` files of that
    `day` (in UTC).
    """

    day: date
    action: Action
    identity: str
    column: str
    kind: str
    bytes: int
    files: int
    benefit: float
    cost: float
    reason: str

    def describe(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "day": self.day.isoformat()
        }

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Decision:
        """Parse the JSON object of `describe`; raise ValueError, KeyError or TypeError."""
        given = {name: data[name] for name in cls.__slots__}
        texts = [given[name] for name in ("identity", "column", "kind", "reason")]
        numbers = [given[name] for name in ("bytes", "files", "benefit", "cost")]
        if given["action"] not in get_args(Action):
            raise ValueError("a decision has an unknown action")
        if type(given["bytes"]) is not int or type(given["files"]) is not int:
            raise ValueError("a decision has a size that is not an integer")
        if not all(isinstance(t, str) and len(t) <= _LONGEST for t in texts):
            raise ValueError("a decision has a text that is too long, or no text")
        if any(mask_controls(text) != text for text in texts):
            raise ValueError("a decision has control characters")
        if not all(type(n) in (int, float) and 0 <= n <= _MOST_BYTES for n in numbers):
            raise ValueError("a decision has a number of bytes that cannot be")
        return cls(**{**given, "day": date.fromisoformat(given["day"])})
