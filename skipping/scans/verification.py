"""The outcome of reading what an index left out: nothing of it may match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from providers.errors import WrongAnswer

__all__ = ["Verification"]

_NAMED = 10
"""Files that an error names; of more it says how many."""


@dataclass(frozen=True, slots=True)
class Verification:
    """A scan with its index and without, which gave the same rows: how many, and of how many files.

    `opened` files of `without` were read with the index. `note` says why it left out none, where it
    could not be asked.
    """

    rows: int
    opened: int
    without: int
    note: str | None = None

    @classmethod
    def of(
        cls,
        rows: int,
        opened: int,
        skipped: int,
        wrong: Sequence[tuple[str, int]],
        note: str | None = None,
    ) -> Verification:
        """Of a scan of `opened` files, where `skipped` were left out.

        `wrong` are the paths of those that hold matching rows, and how many; raises WrongAnswer
        where there are any.
        """
        if not wrong:
            return cls(rows, opened, opened + skipped, note)
        lost = sum(count for _, count in wrong)
        named = [f"\n  {path}: {count:,}" for path, count in wrong[:_NAMED]]
        more = f"\n  and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
        raise WrongAnswer(
            f"{rows:,} rows with the index, {rows + lost:,} without. It is wrong: drop() it and "
            "create it anew, and please report this. Files that it left out, and how many rows of "
            f"each match:{''.join(named)}{more}"
        )

    def __str__(self) -> str:
        same = f"same {self.rows:,} rows, opened {self.opened:,} of {self.without:,} files"
        return f"{same}; {self.note}" if self.note else same
