"""The result of verifying an index: no pruned file may hold a matching row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from providers.errors import WrongAnswer

_NAMED = 10
"""Files that an error names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Verification:
    """A scan that returned the same `rows` with its index and without.

    `opened`: files opened with the index. `without`: files opened without it. If the index was
    unavailable, `note` says why.
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
        """Verify a scan that opened `opened` files and skipped `skipped`.

        `wrong` are skipped files with matching rows, and the number of these rows. Raises
        WrongAnswer if there are any.
        """
        if not wrong:
            return cls(rows, opened, opened + skipped, note)
        lost = sum(count for _, count in wrong)
        named = [f"\n  {path}: {count:,}" for path, count in wrong[:_NAMED]]
        more = f"\n  and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
        raise WrongAnswer(
            f"{rows:,} rows with the index, {rows + lost:,} without: the index is wrong. drop() "
            "and create it again, and please report this. Skipped files, with their matching rows:"
            f"{''.join(named)}{more}"
        )

    def __str__(self) -> str:
        same = f"same {self.rows:,} rows, opened {self.opened:,} of {self.without:,} files"
        return f"{same}; {self.note}" if self.note else same
