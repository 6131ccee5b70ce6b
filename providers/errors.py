"""What can go wrong, as one tree. Building an index and statements raise; reading never does.

SkippingError
├── StatementError     the text of a statement is wrong; the message points at the word
├── DefinitionError    a column, kind or parameter that an index cannot be sound on
│   └── NoIndex        a table without an index, where one is needed
├── SettingError       a setting that does not exist or a value it does not take
├── SessionError       a Spark session that cannot carry the hooks
├── WrongAnswer        a query that answered otherwise with its indexes than without (verify)
├── TableError         a table that is not there or cannot be followed
└── StoreError         a store that is away, locked, corrupt, too new or not allowed
    ├── NoStore        there is none: nothing was created yet, or it was deleted
    ├── Damaged        what it holds is not what was written: flipped bits, a torn copy
    ├── Rewound        its past is not the one that was remembered, as after a restore
    └── Conflict       somebody else changed the definition first; read it again
"""

from __future__ import annotations

__all__ = [
    "Conflict",
    "Damaged",
    "DefinitionError",
    "NoIndex",
    "NoStore",
    "Rewound",
    "SessionError",
    "SettingError",
    "SkippingError",
    "StatementError",
    "StoreError",
    "TableError",
    "WrongAnswer",
    "first_line",
]


def first_line(error: object) -> str:
    r"""What an error says, without the stack traces that Java's go on with; or else its type.

    >>> first_line(ValueError("no such file\n  at java.io")), first_line(TimeoutError())
    ('no such file', 'TimeoutError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


class SkippingError(Exception):
    """Every error of this project. The message says what to do about it."""


class StatementError(SkippingError):
    """The text of a statement is wrong; the message shows the text with a mark under the word."""


class DefinitionError(SkippingError):
    """A column, kind or parameter that an index cannot be sound on.

    `position` or `about` say where in a statement the word stands, as far as whoever raises knows:
    a position in its text, or the name of a part of it.
    """

    def __init__(
        self, message: str, *, position: int | None = None, about: str | None = None
    ) -> None:
        super().__init__(message)
        self.position = position
        self.about = about


class NoIndex(DefinitionError):
    """A table has no index, where one is needed."""


class SettingError(SkippingError):
    """A setting that does not exist, or a value that it does not take."""


class SessionError(SkippingError):
    """A Spark session that cannot carry the hooks."""


class WrongAnswer(SkippingError):
    """A query answered otherwise with its indexes than without; the message says what differs."""


class TableError(SkippingError):
    """A table that is not there, or that cannot be followed."""


class StoreError(SkippingError):
    """A store that is away, locked, corrupt, written by a newer release, or not allowed."""


class NoStore(StoreError):
    """There is no store: nothing was created in it yet, or it was deleted."""


class Damaged(StoreError):
    """What the store holds is not what was written: bits flipped, or copies of several moments."""


class Rewound(StoreError):
    """The store has another past than the one that was remembered, as after a restore."""


class Conflict(StoreError):
    """A compare-and-set lost: somebody else changed the definition first."""
