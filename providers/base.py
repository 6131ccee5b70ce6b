"""The interface of an index type: what it stores for a file, and which files it can prune.

An index type is one class in one file. It never reads files, calls a store, or sees And, Or and
Not. It turns the distinct values of one file into a few fields, and one leaf of a predicate into
tests of these fields. All its values are normalised (`providers.values`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

import pyarrow as pa

from providers.errors import DefinitionError
from providers.index_predicate import IndexPredicate
from providers.predicate import Leaf
from providers.values import Domain

Param: TypeAlias = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column to index: display name, domain, and whether it is a partition column."""

    name: str
    domain: Domain
    partition: bool = False


class Layout(Enum):
    """The storage of a field: one value per file, a set of values per file, or opaque bytes."""

    SCALAR = "scalar"
    TERMS = "terms"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a sketch. `type` is int64, string or binary; for TERMS, the type of one term.

    BYTES are binary. A sketch may consist of `part`s, each named by a letter and each known or
    unknown independently. A test of a part has its letter in `sketch`.
    """

    name: str
    type: pa.DataType
    layout: Layout = Layout.SCALAR
    part: str = ""

    @property
    def column(self) -> str:
        """The name after the sketch's number: `_low` in `s3_low`, `o_low` in `s3o_low`."""
        return f"{self.part}_{self.name}"


class Collector(Protocol):
    """Collects one column of one file."""

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Add a part of the file: its distinct, null-free, normalised values, and its null count.

        If `only_extremes`, `distinct` may have only the min and max. If a part has more than `most`
        values, `distinct` may lack some, but has more than `most`, with the min and max. Parts may
        repeat values.
        """

    def finish(self) -> Mapping[str, Any] | None:
        """Return the fields' values by name (TERMS as an Arrow array); None if the file is unknown.

        The fields of a part are named like `o_low`. A part is unknown if none of its fields is in
        the result. The fields without a part count as one part. A column of only nulls is known:
        its fields may be None, but not the result.
        """


class SkippingProvider(Protocol):
    """An index type with its columns and parameters; immutable and picklable."""

    kind: ClassVar[str]

    only_extremes: ClassVar[bool]
    """Whether the collector needs only the min and max of each part of a file."""

    @property
    def most(self) -> int | None:
        """The maximum of distinct values of a file; one with more is unknown. None: no maximum."""

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> SkippingProvider:
        """Create it for columns; raise DefinitionError for an unsupported type or parameter.

        Positional parameters of a statement arrive under the names in `signature`.
        """

    @classmethod
    def signature(cls, given: Sequence[Param] = ()) -> tuple[str, ...]:
        """Return the parameters' names, in the order of a statement that gives only values.

        `given` are the statement's values, because an index type may accept several orders.
        """

    def fields(self) -> tuple[Field, ...]:
        """Return what is stored for one file, in addition to the flag `known`."""

    def collector(self) -> Collector:
        """Return a new collector, for one file."""

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Return tests that hold for every file with a matching row; None if there is no such test.

        The leaf's values are normalised values of the column's domain (`providers.predicate.fits`).
        """

    def survival(self, leaf: Leaf) -> float:
        """Return the expected fraction of non-matching files that the tests of `leaf` do not prune.

        It is from 0 to 1, and estimated from the leaf alone. Tests above 0.5 are not used. An index
        type may have a method `sharper(leaf, most)`, which returns the parameters of a statement
        that limit the fraction to `most`, or None. Explain shows them.
        """


class BaseProvider:
    """The parameters that an index type takes, and tests without false positives of their own."""

    __slots__ = ()

    kind: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ()
    """The names of the parameters, in the order of a statement without names."""

    @classmethod
    def signature(cls, given: Sequence[Param] = ()) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return cls.takes

    @classmethod
    def refuse_others(cls, params: Mapping[str, Param]) -> None:
        """Raise DefinitionError for a parameter that is not in `takes`."""
        if unknown := sorted(set(params) - set(cls.takes)):
            takes = ", ".join(cls.takes) or "no parameter"
            raise DefinitionError(f"{cls.kind} takes {takes}, not {', '.join(unknown)}")

    def survival(self, leaf: Leaf) -> float:
        """Return 0: the tests are exact, or their false positives depend on the clustering."""
        return 0.0
