"""The errors of this project, as one tree. Builds and statements raise them; queries never do.

SkippingError
├── StatementError     the text of a statement is wrong; the message points at the word
├── DefinitionError    a column, type or parameter that an index does not support
│   └── NoIndex        a table without an index, where one is needed
├── SettingError       an unknown setting, or a wrong value
├── SessionError       a Spark session that does not support the hooks
├── WrongAnswer        a query with another result without its indexes (verify)
├── TableError         a table that does not exist or cannot be read
└── StoreError         a store that is unreachable, locked, corrupt, too new or forbidden
    ├── NoStore        no store: nothing was created yet, or it was deleted
    ├── Damaged        not the bytes that were written: flipped bits, an inconsistent copy
    ├── Rewound        an older state than before, as after a restore
    └── Conflict       another process changed the definition first; read it again
"""

from __future__ import annotations


def first_line(error: object) -> str:
    r"""Return the text of an error without a Java stack trace; without a text, its type.

    >>> first_line(ValueError("no such file\n  at java.io")), first_line(TimeoutError())
    ('no such file', 'TimeoutError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


class SkippingError(Exception):
    """The root of all errors of this project. The message says what to do."""


class StatementError(SkippingError):
    """The text of a statement is wrong; the message shows the text with a mark under the word.

    If there is a mark, `problem` is the message without the text, and `position` the word's offset.
    """

    def __init__(self, message: str, *, problem: str = "", position: int | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.position = position


class DefinitionError(SkippingError):
    """A column, index type or parameter that an index does not support.

    If known, `position` (in the statement) or `about` (a name in it) locates the wrong word.
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
    """An unknown setting, or a wrong value."""


class SessionError(SkippingError):
    """A Spark session that does not support the hooks."""


class WrongAnswer(SkippingError):
    """A query returned other rows with its indexes than without; the message has the difference."""


class TableError(SkippingError):
    """A table that does not exist, or cannot be read."""


class StoreError(SkippingError):
    """A store that is unreachable, locked, corrupt, of a newer release, or forbidden."""


class NoStore(StoreError):
    """There is no store: nothing was created yet, or it was deleted."""


class Damaged(StoreError):
    """The store's bytes differ from those written: flipped bits, or an inconsistent copy."""


class Rewound(StoreError):
    """The store has an older state than before, as after a restore."""


class Conflict(StoreError):
    """A compare-and-set failed: another process changed the definition first."""
