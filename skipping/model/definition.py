"""What an index is: of which table, which columns with which kinds, and how it stands.

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
"""Seconds until files that could not be read are tried again without being told to."""

FORMAT = 4
"""Version of the stored JSON. A definition with any other version is refused."""

EXPRESSION = "expr:"
"""What the identity of an expression begins with (`ExpressionText.java`)."""

COMPOSITE = "tuple:"
"""What the identity of a composite begins with (`IndexClient.java`); then those of its columns."""

IndexId: TypeAlias = str
"""The incarnation: a UUID never used again, so whoever asks a dropped index finds nothing."""

Revision: TypeAlias = int
Status: TypeAlias = Literal["creating", "active", "refreshing", "failed"]
_T = TypeVar("_T")

_REMEMBERED = 1 << 14  # characters of a definition that is read once only


@dataclass(frozen=True, slots=True)
class TableId:
    """One incarnation of a table: format, the format's own id, and the root location.

    Both id and root are needed: copies of a Delta folder share the id, CREATE OR REPLACE keeps the
    root and changes the id.
    """

    format: str
    id: str
    root: str

    @property
    def has_log(self) -> bool:
        """Whether a log says what the table's columns are; if not, whoever reads it may say so."""
        return self.format != "parquet"


@dataclass(frozen=True, slots=True)
class Expression:
    """What it takes to analyse an expression again, which is never done for a query.

    `sql` is its text as given, `zone` and `ansi` are the session's settings it was analysed under,
    `reads` the names that columns have in it, with their identities.
    """

    sql: str
    zone: str
    ansi: bool
    reads: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One column with one kind; `number` is unique within the index and never used again.

    `identity` is the column's identity in the format (physical name or field id), which outlives a
    rename; `type` is the Spark type it was sketched under. A column that was dropped and made
    again, or widened into another domain, gets a new number: the two are never mixed up. Of an
    `expression` the name is its text, and the identity what Spark makes of that. A composite has
    `parts`: the names of its columns with their identities.
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
        """Those of the columns of a composite, in its order; else none."""
        return tuple(identity for _, identity in self.parts)

    @property
    def of(self) -> frozenset[str]:
        """What it is an index of, with the kind: of a composite its columns, in any order."""
        return frozenset(self.part_identities or (self.identity,))

    @property
    def sketch(self) -> str:
        """What tests and stores call it."""
        return f"s{self.number}"

    @property
    def domain(self) -> Domain:
        """What its values are compared in; raises DefinitionError for a type that has none."""
        domain = domain_of_type(self.type)
        if domain is None:
            raise DefinitionError(f"column {self.name} of type {self.type} cannot be indexed")
        return domain

    def misfit(self, extra: Sequence[str] = ()) -> str | None:
        """Return why its index type does not take its column type; None if it does.

        An index type that is not there is no misfit: whoever builds it raises that.
        """
        with suppress(DefinitionError):
            find(self.kind, extra)
            try:
                self.provider(extra)
            except DefinitionError as error:
                return first_line(error)
        return None

    def provider(self, extra: Sequence[str] = ()) -> SkippingProvider:
        """Its kind, ready to use; raises DefinitionError for a kind that is not there."""
        column = Column(self.name, self.domain, self.partition)
        return find(self.kind, extra).of((column,), dict(self.params))


@dataclass(frozen=True, slots=True)
class Definition:
    """An index of one incarnation of a table, under the table's catalog name or path.

    `numbers` is the greatest number that a column which was taken out had; `enabled` false: queries
    do not ask it. `fault` says why what the store holds is no definition that this release can
    trust: then there are no columns, it is not asked, and all that can be done is to drop it.
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
        """The next column's."""
        return 1 + max((self.numbers, *(column.number for column in self.columns)))

    def to_json(self) -> str:
        """As stores keep it."""
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
        """What a store holds for an index; never raises, but gives one with a `fault`.

        So one definition that is foreign, newer or absurd is no matter of the others.
        """
        # Of a thousand most are as they were; to read each again is most of what listing takes.
        return (_read if len(text) <= _REMEMBERED else _read.__wrapped__)(text, index)

    @classmethod
    def unreadable(cls, index: IndexId, fault: str, text: str = "{}") -> Definition:
        """One with a fault, under the name and table that the text says, if that much is there."""
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
        """Raise DefinitionError or StatementError for what must not be, or get, into a store."""
        texts = [self.index, self.name]
        for column in self.columns:
            texts += [column.name, column.identity, column.type]
            numbered = type(column.number) is int and 0 < column.number < 1 << 31
            if not (numbered and type(column.partition) is bool and _is_kind(column.kind)):
                raise DefinitionError(f"column {column.name!r:.100} has no number or no kind")
            is_expression = str(column.identity).startswith(EXPRESSION)
            if is_expression != (column.expression is not None):
                raise DefinitionError(f"column {column.name!r:.100} is not the expression it says")
            if column.expression is not None:
                expression = column.expression
                texts += [expression.sql, expression.zone, *chain(*expression.reads)]
                if type(expression.ansi) is not bool or not expression.reads:
                    raise DefinitionError(f"{column.name!r:.100} reads nothing")
            texts += chain(*column.parts)
            says = column.parts or str(column.identity).startswith(COMPOSITE)
            if says and not _is_composite(column):
                raise DefinitionError(f"column {column.name!r:.100} is not the composite it says")
        if not all(map(_is_name, texts)) or not all(
            part == "" or _is_name(part) for part in asdict(self.table).values()
        ):
            raise DefinitionError(
                f"a name in it is empty, has control characters, or more than {_LONGEST_NAME:,}"
            )
        if len(self.columns) > _MOST_COLUMNS:
            raise DefinitionError(f"an index has at most {_MOST_COLUMNS:,} columns")
        if len({column.number for column in self.columns}) < len(self.columns):
            raise DefinitionError("two columns have one number")
        if type(self.dropped) is not bool or type(self.enabled) is not bool:
            raise DefinitionError("a flag is neither true nor false")
        if type(self.numbers) is not int or not 0 <= self.numbers < 1 << 31:
            raise DefinitionError(f"{self.numbers!r:.100} is not a number of columns")
        if self.where is not None:
            parse_condition(self.where)


@dataclass(frozen=True, slots=True)
class State:
    """How an index stands.

    `covered` is the newest table version all of whose files are indexed, by the columns that the
    definition had at `revision`; `at` when that was so, in seconds of the wall clock, for people.
    `left` are files of a version in work that a refresh of limited size has left for the next.
    `unread` are files that could not be read, of which `error` names one; they are tried again, by
    who follows the table after a pause that doubles with `retries`, the times that were in vain.
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
        """Whether files that could not be read are to be tried again by then."""
        pause = min(FIRST_PAUSE * 2.0 ** min(self.retries, 30), LONGEST_PAUSE)
        return self.unread > 0 and now >= (self.at or 0) + pause

    def to_json(self) -> str:
        """As stores keep it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> State:
        """The opposite of `to_json`; fields of newer releases are passed over.

        Raises StoreError for what is no state.
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
    """A value with the revision to name when changing it."""

    value: _T
    revision: Revision


_LONGEST_TEXT = 1 << 20
"""Characters of a definition or state; ours have some hundreds a column."""

_LONGEST_NAME = 4_096
"""Characters of a name, a path or a type."""

_MOST_COLUMNS = 2_000

_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

_STORED = {field.name for field in fields(Definition)} - {"fault"}


def _parse_object(text: str) -> dict[str, Any]:
    """A JSON object; raises StoreError for anything else, however large or deep."""
    if len(text) > _LONGEST_TEXT:
        raise StoreError(f"the store holds {len(text):,} characters where a definition should be")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"the store's document is not JSON: {first_line(error)}") from None
    if not isinstance(data, dict):
        raise StoreError(f"the store holds a {type(data).__name__} where a definition should be")
    return data


def _parse_pairs(given: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """Names with their values, which are scalars; raises TypeError or ValueError."""
    pairs = tuple((name, value) for name, value in given)
    for name, value in pairs:
        if not (_is_name(name) and type(value) in (bool, int, float, str)):
            raise TypeError(f"{name!r:.100} is not a parameter")
    return pairs


def _parse_expression(given: Any) -> Expression | None:
    """As it is stored; raises TypeError or ValueError."""
    if given is None:
        return None
    return Expression(**{**given, "reads": tuple((name, by) for name, by in given["reads"])})


def composite_identity(identities: Sequence[str]) -> str:
    """That of the composite of columns with these."""
    return COMPOSITE + json.dumps(list(identities))


def _is_composite(column: IndexedColumn) -> bool:
    """Whether it is one of two different columns or more, each with its type."""
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
        fault = f"the store holds a definition of {definition.index} in its place"
    except StoreError as error:
        fault = str(error)
    return Definition.unreadable(index, fault, text)
