"""What an index is: of which table, which columns with which kinds, and how it stands.

All values are immutable. Stores keep them as JSON (`to_json`, `from_json`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from providers.errors import DefinitionError, StoreError
from providers.provider import Column, Param, SkippingProvider
from providers.registry import find
from providers.values import Domain, arrow_type, domain_of

__all__ = [
    "FORMAT",
    "Definition",
    "IndexId",
    "IndexedColumn",
    "Revision",
    "State",
    "Status",
    "TableId",
    "Versioned",
]

FIRST_PAUSE, LONGEST_PAUSE = 60.0, 86_400.0
"""Seconds until files that could not be read are tried again without being told to."""

FORMAT = 1
"""Version of what is stored. A newer one is refused: it may mean what this release cannot know."""

IndexId: TypeAlias = str
"""The incarnation: a UUID never used again, so whoever asks a dropped index finds nothing."""

Revision: TypeAlias = int
Status: TypeAlias = Literal["creating", "active", "refreshing", "failed"]
_T = TypeVar("_T")


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
    def logged(self) -> bool:
        """Whether a log says what the table's columns are; if not, whoever reads it may say so."""
        return self.format != "parquet"


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One column with one kind; `number` is unique within the index and never used again.

    `identity` is the column's identity in the format (physical name or field id), which outlives a
    rename; `type` is the Spark type it was sketched under. A column that was dropped and made
    again, or widened into another domain, gets a new number: the two are never mixed up.
    """

    number: int
    name: str
    identity: str
    type: str
    kind: str
    params: tuple[tuple[str, Param], ...] = ()
    partition: bool = False

    @property
    def sketch(self) -> str:
        """What tests and stores call it."""
        return f"s{self.number}"

    @property
    def domain(self) -> Domain:
        """What its values are compared in; raises DefinitionError for a type that has none."""
        arrow = arrow_type(self.type)
        domain = domain_of(arrow) if arrow is not None else None
        if domain is None:
            raise DefinitionError(f"column {self.name} of type {self.type} cannot be indexed")
        return domain

    def provider(self, extra: Sequence[str] = ()) -> SkippingProvider:
        """Its kind, ready to use; raises DefinitionError for a kind that is not there."""
        column = Column(self.name, self.domain, self.partition)
        return find(self.kind, extra).of((column,), dict(self.params))


@dataclass(frozen=True, slots=True)
class Definition:
    """An index of one incarnation of a table, under the table's catalog name or path.

    `numbers` is the greatest number that a column which was taken out had; `enabled` false: queries
    do not ask it.
    """

    index: IndexId
    table: TableId
    name: str
    columns: tuple[IndexedColumn, ...]
    where: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    dropped: bool = False
    format: int = FORMAT
    enabled: bool = True
    numbers: int = 0

    @property
    def next_number(self) -> int:
        """The next column's."""
        return 1 + max((self.numbers, *(column.number for column in self.columns)))

    def to_json(self) -> str:
        """As stores keep it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Definition:
        """Raises StoreError for what a newer release wrote, and for what is no definition."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data["format"] > FORMAT:
                raise StoreError(
                    f"the index of {data.get('name')} is of format {data['format']}, this release "
                    f"reads up to {FORMAT}: upgrade, or drop and create the index here"
                )
            columns = tuple(
                IndexedColumn(**{**c, "params": tuple((k, v) for k, v in c["params"])})
                for c in data.pop("columns")
            )
            return cls(
                **{
                    **data,
                    "table": TableId(**data["table"]),
                    "options": tuple((k, v) for k, v in data["options"]),
                    "columns": columns,
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"the store holds a definition that cannot be read: {error}"
            ) from error


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

    def retries_by(self, now: float) -> bool:
        """Whether files that could not be read are to be tried again by then."""
        pause = min(FIRST_PAUSE * 2.0 ** min(self.retries, 30), LONGEST_PAUSE)
        return self.unread > 0 and now >= (self.at or 0) + pause

    def to_json(self) -> str:
        """As stores keep it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> State:
        """The opposite of `to_json`; fields of newer releases are passed over."""
        data = json.loads(text)
        return replace(cls(), **{k: data[k] for k in cls.__slots__ if k in data})


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_T]):
    """A value with the revision to name when changing it."""

    value: _T
    revision: Revision
