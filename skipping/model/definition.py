"""The definition of an index (its table, its columns and their index types) and its state.

All values are immutable. Stores keep them as JSON (`to_json`, `from_json`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
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
from skipping.parser.condition import parse_condition
from skipping.parser.errors import mask_controls

__all__ = [
    "COMPOSITE",
    "EXPRESSION",
    "FORMAT",
    "Definition",
    "Expression",
    "IndexId",
    "IndexedColumn",
    "Revision",
    "State",
    "Status",
    "TableId",
    "Versioned",
    "composite_identity",
]

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 86_400.0
"""Seconds until a refresh retries unreadable files automatically: at first, and at most."""

FORMAT = 4
"""Version of the stored JSON. A definition with any other version is refused."""

EXPRESSION = "expr:"
"""The prefix of an expression's identity (`ExpressionText.java`)."""

COMPOSITE = "tuple:"
"""The prefix of a multi-column identity (`IndexClient.java`); those of its columns follow."""

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
    def has_log(self) -> bool:
        """Whether a log has the table's columns; without one, each reader may name them."""
        return self.format != "parquet"


@dataclass(frozen=True, slots=True)
class Expression:
    """The inputs to analyze an expression again, which only builds need.

    `sql` is its text, `zone` and `ansi` are the session's settings during its analysis, and `reads`
    are the names of its columns with their identities.
    """

    sql: str
    zone: str
    ansi: bool
    reads: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One column with one index type. Its `number` is unique in the index and never used again.

    `identity` is the column's identity in the format (physical name or field id), which survives a
    rename; `type` is its Spark type when it was sketched. A column that is dropped and added again,
    or widened into another domain, gets a new number, so that the two are never confused. An
    `expression` has its text as name and Spark's canonical form as identity. A multi-column index
    has `parts`: the names of its columns with their identities.
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
        """The identities of a multi-column index, in order; else empty."""
        return tuple(identity for _, identity in self.parts)

    @property
    def of(self) -> frozenset[str]:
        """The identities of the indexed columns, without order."""
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
        """Return why its index type does not take its column type; None if it does.

        An index type that does not exist is not a misfit: building it raises an error.
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
    """The definition of an index on a table, under the table's catalog name or path.

    `numbers` is the highest number of a removed column. Queries use an index only if it is
    `enabled`. `fault` says why this release cannot use the stored definition: then it has no
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
    fault: str | None = field(default=None, compare=False)

    @property
    def next_number(self) -> int:
        """The number of the next column."""
        return 1 + max((self.numbers, *(column.number for column in self.columns)))

    def to_json(self) -> str:
        """Return the JSON that stores keep."""
        data = {name: value for name, value in asdict(self).items() if name in _STORED}
        return json.dumps({**data, "format": FORMAT}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Definition:
        """Read what `to_json` wrote; raise StoreError for another format, or an invalid definition.

        Other programs can write to the store, so nothing is taken from CREATE's checks: size, form
        and types are checked again, and the condition is parsed as CREATE parses it.
        """
        data = _parse_object(text)
        try:
            found = data["format"]
            if type(found) is not int or found != FORMAT:
                name = f"{data.get('name')!s:.200}"
                upgrade = "upgrade, or " if type(found) is int and found > FORMAT else ""
                raise StoreError(
                    f"the definition of the index on {name} has format {found!s:.20}, this release "
                    f"reads format {FORMAT}: {upgrade}run DROP SKIPPING INDEX ON {name}, then "
                    "CREATE SKIPPING INDEX again"
                )
            definition = cls(
                **{
                    **{name: data[name] for name in _STORED & data.keys()},
                    "table": TableId(**data["table"]),
                    "options": _parse_pairs(data["options"]),
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
                f"the store holds a definition that cannot be read: {first_line(error)}"
            ) from error
        return definition

    @classmethod
    def read(cls, text: str, index: IndexId) -> Definition:
        """Read the stored definition of an index; return one with a `fault` instead of raising.

        So an invalid or newer definition does not affect other indexes.
        """
        # Most of a thousand are unchanged; parsing them again is most of the time of a listing.
        return (_read if len(text) <= _REMEMBERED else _read.__wrapped__)(text, index)

    @classmethod
    def unreadable(cls, index: IndexId, fault: str, text: str = "{}") -> Definition:
        """Return a definition with a fault, and the name and table of the text if it has them."""
        index = index if _is_name(index) else mask_controls(index)[:100] or "?"
        name, table, dropped = f"(unreadable) {index}", TableId("unreadable", index, ""), False
        with suppress(StoreError):
            data = _parse_object(text)
            dropped = data.get("dropped") is True
            if _is_name(data.get("name")):
                name = data["name"]
            given = data.get("table")
            parts = ("format", "id", "root")
            if isinstance(given, dict) and all(_is_name(given.get(part)) for part in parts):
                table = TableId(*(given[part] for part in parts))
        return cls(
            index, table, name, (), dropped=dropped, enabled=False, fault=mask_controls(fault)
        )

    def require_sound(self) -> None:
        """Raise DefinitionError or StatementError for values that a store must not contain."""
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
                raise DefinitionError(f"column {column.name!r:.100} does not match its expression")
            if column.expression is not None:
                expression = column.expression
                texts += [expression.sql, expression.zone, *chain(*expression.reads)]
                if type(expression.ansi) is not bool or not expression.reads:
                    raise DefinitionError(f"expression {column.name!r:.100} reads no column")
            texts += chain(*column.parts)
            says = column.parts or str(column.identity).startswith(COMPOSITE)
            if says and not _is_composite(column):
                raise DefinitionError(f"column {column.name!r:.100} does not match its parts")
        if not all(map(_is_name, texts)) or not all(
            part == "" or _is_name(part) for part in asdict(self.table).values()
        ):
            raise DefinitionError(
                f"a name in it is empty, or has control characters or more than {_LONGEST_NAME:,}"
            )
        if len(self.columns) > _MOST_COLUMNS:
            raise DefinitionError(f"an index has at most {_MOST_COLUMNS:,} columns")
        if len({column.number for column in self.columns}) < len(self.columns):
            raise DefinitionError("two columns have the same number")
        if type(self.dropped) is not bool or type(self.enabled) is not bool:
            raise DefinitionError("a flag is neither true nor false")
        if type(self.numbers) is not int or not 0 <= self.numbers < 1 << 31:
            raise DefinitionError(f"{self.numbers!r:.100} is not a number of columns")
        if self.where is not None:
            parse_condition(self.where)


@dataclass(frozen=True, slots=True)
class State:
    """The state of an index.

    `covered` is the newest table version whose files are all indexed, for the columns of the
    definition at `revision`; `at` is the time of that refresh in seconds of the wall clock, for
    display. `left` counts files of a version in progress that a refresh of limited size left for
    the next. `unread` counts files that could not be read; `error` names one of them. Streams read
    them again after a pause that doubles with each failed attempt (`retries`).
    """

    status: Status = "creating"
    covered: int | None = None
    error: str | None = None
    revision: Revision | None = None
    at: float | None = None
    left: int = 0
    unread: int = 0
    retries: int = 0

    def is_retry_due(self, now: float) -> bool:
        """Return whether it is time to read unreadable files again."""
        pause = min(FIRST_PAUSE * 2.0 ** min(self.retries, 30), LONGEST_PAUSE)
        return self.unread > 0 and now >= (self.at or 0) + pause

    def to_json(self) -> str:
        """Return the JSON that stores keep."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> State:
        """Read the JSON of `to_json`, and ignore fields of newer releases.

        Raises StoreError for anything that is not a state.
        """
        data = _parse_object(text)
        state = replace(cls(), **{k: data[k] for k in cls.__slots__ if k in data})
        numbers = (state.covered, state.revision, state.left)
        if (
            state.status not in get_args(Status)
            or not all(number is None or type(number) is int for number in numbers)
            or not (state.error is None or isinstance(state.error, str))
            or not (state.at is None or isinstance(state.at, int | float))
        ):
            raise StoreError("the store holds a state that cannot be read")
        return replace(state, error=None if state.error is None else mask_controls(state.error))


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_T]):
    """A value, and its revision, which a change must name."""

    value: _T
    revision: Revision


_LONGEST_TEXT = 1 << 20
"""The most characters of a definition or state; ours have a few hundred for each column."""

_LONGEST_NAME = 4_096
"""The most characters of a name, a path or a type."""

_MOST_COLUMNS = 2_000

_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

_STORED = {field.name for field in fields(Definition)} - {"fault"}


def _parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object; raise StoreError for anything else, at any size or depth."""
    if len(text) > _LONGEST_TEXT:
        raise StoreError(f"the store has {len(text):,} characters in the place of a definition")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"the store's document is not JSON: {first_line(error)}") from None
    if not isinstance(data, dict):
        raise StoreError(f"the store has a {type(data).__name__} in the place of a definition")
    return data


def _parse_pairs(given: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """Parse names with scalar values; raise TypeError or ValueError."""
    pairs = tuple((name, value) for name, value in given)
    for name, value in pairs:
        if not (_is_name(name) and type(value) in (bool, int, float, str)):
            raise TypeError(f"{name!r:.100} is not a parameter")
    return pairs


def _parse_expression(given: Any) -> Expression | None:
    """Parse a stored expression; raise TypeError or ValueError."""
    if given is None:
        return None
    return Expression(**{**given, "reads": tuple((name, by) for name, by in given["reads"])})


def composite_identity(identities: Sequence[str]) -> str:
    """Return the identity of a multi-column index on columns with these identities."""
    return COMPOSITE + json.dumps(list(identities))


def _is_composite(column: IndexedColumn) -> bool:
    """Return whether a multi-column index has two or more different columns, each with a type."""
    identities = column.part_identities
    return len(set(identities)) == len(part_types(column.type)) == len(
        identities
    ) > 1 and column.identity == composite_identity(identities)


def _is_name(value: object) -> bool:
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
        fault = f"the store has a definition of {definition.index} in its place"
    except StoreError as error:
        fault = str(error)
    return Definition.unreadable(index, fault, text)
