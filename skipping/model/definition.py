"""Define the definition of an index (its table, its columns and their index types) and its state.

All values are immutable. Stores contain them as JSON (`to_json`, `from_json`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

from providers.base import Column, Param, SkippingProvider
from providers.errors import DefinitionError, SkippingError, StoreError, first_line
from providers.registry import find
from providers.tuples import domain_of_type, part_types
from providers.values import Domain
from skipping.model.decision import MOST_DECISIONS, Decision
from skipping.parser.condition import parse_condition
from skipping.parser.errors import mask_controls

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 86_400.0
"""Seconds until unreadable files are read again automatically: the first pause, and the longest."""

FORMAT = 4
"""Version of the stored JSON. A definition with any other version cannot be used."""

EXPRESSION = "expr:"
"""The prefix of an expression's identity (`ExpressionText.java`)."""

COMPOSITE = "tuple:"
"""The prefix of a multi-column index's identity (`IndexClient.java`); its columns' follow."""

IndexId: TypeAlias = str
"""A UUID that is never used again, so a query of a dropped index finds nothing."""

Revision: TypeAlias = int
Status: TypeAlias = Literal["creating", "active", "refreshing", "failed"]
_T = TypeVar("_T")

_REMEMBERED = 1 << 14  # characters of a definition whose parsed form is cached


@dataclass(frozen=True, slots=True)
class TableId:
    """The identity of a table: its format, the format's own id, and the root location.

    Both id and root are needed: copies of a Delta folder have the same id, and CREATE OR REPLACE
    keeps the root but changes the id.
    """

    format: str
    id: str
    root: str

    @property
    def is_sound(self) -> bool:
        """Whether a stored definition can have it: not with long parts or control characters."""
        return all(part == "" or is_name(part) for part in (self.format, self.id, self.root))

    @property
    def has_log(self) -> bool:
        """Whether a log defines the table's columns; without one, a reader may pass any schema."""
        return self.format != "parquet"


@dataclass(frozen=True, slots=True)
class Expression:
    """What a build needs to analyze an indexed expression again.

    `sql` is its text. `zone` (time zone) and `ansi` (ANSI mode) are the settings of the session
    that analyzed it. `reads` are the (name, identity) pairs of its columns.
    """

    sql: str
    zone: str
    ansi: bool
    reads: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One column with one index type. Its `number` is unique in the index and never used again.

    `identity` identifies the column in its table (physical name in Delta, field id in Iceberg); it
    survives a rename. `type` is the column's Spark type when it was sketched. A column that is
    dropped and added again, or widened to a type with another domain, gets a new number, so its old
    sketches are not used for it. For an `expression`, `name` is its text and `identity` Spark's
    canonical form. A multi-column index has `parts`: the (name, identity) pairs of its columns.
    """

    number: int
    name: str
    identity: str
    type: str
    kind: str
    params: tuple[tuple[str, Param], ...] = ()
    partition: bool = False
    expression: Expression | None = None
    parts: tuple[tuple[str, str], ...] = ()

    @property
    def part_identities(self) -> tuple[str, ...]:
        """The identities of the columns of a multi-column index, in order; else empty."""
        return tuple(identity for _, identity in self.parts)

    @property
    def of(self) -> frozenset[str]:
        """The identities of all indexed columns: several for a multi-column index, else one."""
        return frozenset(self.part_identities or (self.identity,))

    @property
    def sketch(self) -> str:
        """The name of its sketch in tests and stores."""
        return f"s{self.number}"

    @property
    def domain(self) -> Domain:
        """The domain in which its values are compared; raises DefinitionError for other types."""
        domain = domain_of_type(self.type)
        if domain is None:
            raise DefinitionError(f"column {self.name} of type {self.type} cannot be indexed")
        return domain

    def misfit(self, extra: Sequence[str] = ()) -> str | None:
        """Return why its index type does not support its column type; None if it does.

        For an unknown index type, return None, too: the build raises an error for it. `extra` has
        the classes of index types in `spark.skipping.providers`.
        """
        with suppress(DefinitionError):
            find(self.kind, extra)
            try:
                self.provider(extra)
            except DefinitionError as error:
                return first_line(error)
        return None

    def provider(self, extra: Sequence[str] = ()) -> SkippingProvider:
        """Return its index type with its parameters; raise DefinitionError if it does not exist."""
        column = Column(self.name, self.domain, self.partition)
        return find(self.kind, extra).of((column,), dict(self.params))


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of an index on a table; `name` is the table's catalog name or path.

    `numbers` is the highest number of a removed column. Queries use an index only if it is
    `enabled`. An automatic index has its newest `decisions`, and those that added its columns.
    `fault` says why this release cannot use the stored definition. Such a definition has no
    columns, queries do not use it, and it can only be dropped.
    """

    index: IndexId
    table: TableId
    name: str
    columns: tuple[IndexedColumn, ...]
    where: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    dropped: bool = False
    enabled: bool = True
    numbers: int = 0
    decisions: tuple[Decision, ...] = ()
    fault: str | None = field(default=None, compare=False)

    @property
    def is_automatic(self) -> bool:
        """Whether the index chooses its columns."""
        return ("automatic", "true") in self.options

    @property
    def automatic_columns(self) -> Mapping[tuple[str, str], Decision]:
        """The decisions that added columns of an automatic index, by identity and index type.

        Users chose the other columns.
        """
        return self._added_columns if self.is_automatic else {}

    @property
    def _added_columns(self) -> Mapping[tuple[str, str], Decision]:
        there = {(column.identity, column.kind) for column in self.columns}
        added: dict[tuple[str, str], Decision] = {}
        for decision in self.decisions:
            key = decision.identity, decision.kind
            if decision.action == "add" and key in there:
                added[key] = decision
            else:
                added.pop(key, None)
        return added

    def keep_columns(self, columns: Sequence[IndexedColumn]) -> Definition:
        """Return the definition with fewer columns, without the decisions that added the others.

        So a user who adds one of those again has chosen it.
        """
        gone = self._added_columns.keys() - {(i.identity, i.kind) for i in columns}
        kept = (d for d in self.decisions if d.action == "drop" or (d.identity, d.kind) not in gone)
        number = self.next_number - 1
        return replace(self, columns=tuple(columns), numbers=number, decisions=tuple(kept))

    def decide(self, decisions: Sequence[Decision]) -> Definition:
        """Return the definition with further decisions, without the oldest about former columns."""
        merged = replace(self, decisions=(*self.decisions, *decisions))
        needed = set(merged._added_columns.values())
        others = [each for each in merged.decisions if each not in needed][-MOST_DECISIONS:]
        kept = tuple(each for each in merged.decisions if each in needed or each in others)
        return replace(merged, decisions=kept)

    @property
    def next_number(self) -> int:
        """The number for the next column that is added."""
        return 1 + max((self.numbers, *(column.number for column in self.columns)))

    def to_json(self) -> str:
        """Return the definition as JSON, for stores."""
        data = {name: value for name, value in asdict(self).items() if name in _STORED}
        data["decisions"] = [decision.describe() for decision in self.decisions]
        return json.dumps({**data, "format": FORMAT}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Definition:
        """Parse the JSON of `to_json`; raise StoreError for another format or invalid JSON.

        Other programs can write to the store, so the checks of CREATE are repeated: size, structure
        and types are checked, and the condition in `where` is parsed.
        """
        data = parse_object(text)
        try:
            format = data["format"]
            if type(format) is not int or format != FORMAT:
                name = f"{data.get('name')!s:.200}"
                upgrade = "upgrade, or " if type(format) is int and format > FORMAT else ""
                raise StoreError(
                    f"the definition of the index on {name} has format {format!s:.20}, but this "
                    f"release reads format {FORMAT}: {upgrade}run DROP SKIPPING INDEX ON {name}, "
                    "then CREATE SKIPPING INDEX again"
                )
            definition = cls(
                **{
                    **{name: data[name] for name in _STORED & data.keys()},
                    "table": TableId(**data["table"]),
                    "options": _parse_pairs(data["options"]),
                    "decisions": _parse_decisions(data.get("decisions", [])),
                    "columns": tuple(
                        IndexedColumn(
                            **{
                                **column,
                                "params": _parse_pairs(column["params"]),
                                "expression": _parse_expression(column["expression"]),
                                "parts": tuple((n, i) for n, i in column["parts"]),
                            }
                        )
                        for column in data["columns"]
                    ),
                }
            )
            definition.require_sound()
        except StoreError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError, SkippingError) as error:
            raise StoreError(
                f"the store contains an invalid definition: {first_line(error)}"
            ) from error
        return definition

    @classmethod
    def read(cls, text: str, index: IndexId) -> Definition:
        """Parse the stored definition of an index; if that fails, return one with a `fault`.

        So an invalid or newer definition does not affect other indexes.
        """
        # The cache avoids parsing unchanged definitions again: with a thousand indexes, that takes
        # most of the time of listing them.
        return (_read if len(text) <= _REMEMBERED else _read.__wrapped__)(text, index)

    @classmethod
    def unreadable(cls, index: IndexId, fault: str, text: str = "{}") -> Definition:
        """Return a definition with this fault; if `text` has a valid name and table, with them."""
        index = index if is_name(index) else mask_controls(index)[:100] or "?"
        name, table, dropped = f"(unreadable) {index}", TableId("unreadable", index, ""), False
        with suppress(StoreError):
            data = parse_object(text)
            dropped = data.get("dropped") is True
            if is_name(data.get("name")):
                name = data["name"]
            given = data.get("table")
            parts = ("format", "id", "root")
            if isinstance(given, dict) and all(is_name(given.get(part)) for part in parts):
                table = TableId(*(given[part] for part in parts))
        return cls(
            index, table, name, (), dropped=dropped, enabled=False, fault=mask_controls(fault)
        )

    def require_sound(self) -> None:
        """Raise DefinitionError or StatementError if a value is invalid or unsafe."""
        texts = [self.index, self.name]
        for column in self.columns:
            texts += [column.name, column.identity, column.type]
            numbered = type(column.number) is int and 0 < column.number < 1 << 31
            if not (numbered and type(column.partition) is bool and _is_kind(column.kind)):
                raise DefinitionError(
                    f"column {column.name!r:.100} has an invalid number or index type"
                )
            is_expression = str(column.identity).startswith(EXPRESSION)
            if is_expression != (column.expression is not None):
                raise DefinitionError(
                    f"column {column.name!r:.100}: its identity does not match its expression"
                )
            if column.expression is not None:
                expression = column.expression
                texts += [expression.sql, expression.zone, *chain(*expression.reads)]
                if type(expression.ansi) is not bool or not expression.reads:
                    raise DefinitionError(f"expression {column.name!r:.100} has no column")
            texts += chain(*column.parts)
            is_composite = column.parts or str(column.identity).startswith(COMPOSITE)
            if is_composite and not _is_composite(column):
                raise DefinitionError(
                    f"column {column.name!r:.100}: its identity or type does not match its parts"
                )
        if not all(map(is_name, texts)) or not self.table.is_sound:
            raise DefinitionError(
                "a name of the table, a column or an expression is empty, has control characters, "
                f"or has more than {_LONGEST_NAME:,} characters"
            )
        if len(self.columns) > _MOST_COLUMNS:
            raise DefinitionError(f"an index has at most {_MOST_COLUMNS:,} columns")
        if len({column.number for column in self.columns}) < len(self.columns):
            raise DefinitionError("two columns have the same number")
        if type(self.dropped) is not bool or type(self.enabled) is not bool:
            raise DefinitionError("the fields dropped and enabled must be true or false")
        if type(self.numbers) is not int or not 0 <= self.numbers < 1 << 31:
            raise DefinitionError(f"numbers is {self.numbers!r:.100}, not the number of a column")
        if self.where is not None:
            parse_condition(self.where)


@dataclass(frozen=True, slots=True)
class State:
    """The state of an index.

    `covered` is the newest table version whose files are all indexed, for the columns of the
    definition at `revision`. `at` is the time of that refresh (Unix seconds), for display. `left`
    counts the files that remain to be indexed after a refresh with a limit. `unread` counts files
    that could not be read; `error` names one of them. Streams read them again after a pause that
    doubles with each failed attempt (`retries`). An automatic index was last adapted on the day
    `adapted` (ISO, in UTC), when `missed` recorded scans had conditions that pruned no file.
    """

    status: Status = "creating"
    covered: int | None = None
    error: str | None = None
    revision: Revision | None = None
    at: float | None = None
    left: int = 0
    unread: int = 0
    retries: int = 0
    adapted: str | None = None
    missed: int = 0

    def is_retry_due(self, now: float) -> bool:
        """Return whether unreadable files exist and the pause is over at `now` (Unix seconds)."""
        pause = min(FIRST_PAUSE * 2.0 ** min(self.retries, 30), LONGEST_PAUSE)
        return self.unread > 0 and now >= (self.at or 0) + pause

    def to_json(self) -> str:
        """Return the state as JSON, for stores."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> State:
        """Parse the JSON of `to_json`; ignore fields of newer releases.

        Raises StoreError if the text is not a valid state.
        """
        data = parse_object(text)
        state = replace(cls(), **{k: data[k] for k in cls.__slots__ if k in data})
        numbers = (state.covered, state.revision, state.left, state.missed)
        if (
            state.status not in get_args(Status)
            or not all(number is None or type(number) is int for number in numbers)
            or not all(
                text is None or isinstance(text, str) for text in (state.error, state.adapted)
            )
            or not (state.at is None or isinstance(state.at, int | float))
        ):
            raise StoreError("the store contains an invalid state")
        return replace(state, error=None if state.error is None else mask_controls(state.error))


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_T]):
    """A stored value and its revision; a write fails if the revision is not the current one."""

    value: _T
    revision: Revision


_LONGEST_TEXT = 1 << 20
"""Maximum number of characters of a definition or state; a column takes a few hundred."""

_LONGEST_NAME = 4_096
"""Maximum number of characters of a name, a path or a type."""

_MOST_COLUMNS = 2_000

_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

_STORED = {field.name for field in fields(Definition)} - {"fault"}


def parse_object(
    text: str, what: str = "definition or state", *, longest: int = _LONGEST_TEXT
) -> dict[str, Any]:
    """Parse a JSON object; raise StoreError for other text, or if it is too long or too deep."""
    if len(text) > longest:
        raise StoreError(f"a stored {what} is too long: {len(text):,} characters")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"a stored {what} is not JSON: {first_line(error)}") from None
    if not isinstance(data, dict):
        raise StoreError(f"a stored {what} is not a JSON object: {text!r:.100}")
    return data


def _parse_pairs(given: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """Parse (name, scalar value) pairs; raise TypeError or ValueError."""
    pairs = tuple((name, value) for name, value in given)
    for name, value in pairs:
        if not (is_name(name) and type(value) in (bool, int, float, str)):
            raise TypeError(f"{name!r:.100} is not a parameter")
    return pairs


def _parse_decisions(given: Sequence[Any]) -> tuple[Decision, ...]:
    """Parse stored decisions, without those that this release does not know; raise ValueError."""
    if not isinstance(given, list) or len(given) > MOST_DECISIONS + _MOST_COLUMNS:
        raise ValueError("the decisions are no list, or more than any release writes")
    found = []
    for each in given:
        # Without the decision that added it, a column counts as chosen by hand.
        with suppress(KeyError, TypeError, ValueError):
            found.append(Decision.parse(each))
    return tuple(found)


def _parse_expression(given: Any) -> Expression | None:
    """Parse a stored expression; raise TypeError or ValueError."""
    if given is None:
        return None
    return Expression(**{**given, "reads": tuple((name, by) for name, by in given["reads"])})


def composite_identity(identities: Sequence[str]) -> str:
    """Return the identity of a multi-column index, made from its columns' identities in order."""
    return COMPOSITE + json.dumps(list(identities))


def _is_composite(column: IndexedColumn) -> bool:
    """Return whether a column is a valid multi-column index.

    It has at least two columns, all different, each with a type, and the identity made of them.
    """
    identities = column.part_identities
    return len(set(identities)) == len(part_types(column.type)) == len(
        identities
    ) > 1 and column.identity == composite_identity(identities)


def is_name(value: object) -> bool:
    """Return whether a value can be a stored name: a text, not too long, no control characters."""
    return (
        isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and mask_controls(value) == value
    )


def _is_kind(value: object) -> bool:
    return isinstance(value, str) and _KIND.fullmatch(value) is not None


@lru_cache(maxsize=4096)
def _read(text: str, index: IndexId) -> Definition:
    try:
        definition = Definition.from_json(text)
        if definition.index == index:
            return definition
        fault = f"the stored definition belongs to another index: {definition.index}"
    except StoreError as error:
        fault = str(error)
    return Definition.unreadable(index, fault, text)
