"""The interface of an index kind: what it keeps of a file, how it collects it, what it answers.

A kind is one class in one file. It never reads files, talks to a store, or sees And, Or and Not;
it turns the distinct values of one file into a few fields and one leaf of a predicate into tests
of those fields. All values it meets are normalised (`providers.values`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

import pyarrow as pa

from providers.index_predicate import IndexPredicate
from providers.predicate import Leaf
from providers.values import Domain

__all__ = ["Collector", "Column", "Field", "Layout", "Param", "SkippingProvider"]

Param: TypeAlias = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column to be indexed: display name, domain, and whether it is a partition column."""

    name: str
    domain: Domain
    partition: bool = False


class Layout(Enum):
    """How a store keeps a field: one value a file, a set of values a file, or opaque bytes."""

    SCALAR = "scalar"
    TERMS = "terms"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a sketch; `type` is int64, string or binary, for TERMS that of one term.

    BYTES are binary. A sketch may have `part`s, named by a letter, of which each is known or not by
    itself; tests of one name it as their `sketch`.
    """

    name: str
    type: pa.DataType
    layout: Layout = Layout.SCALAR
    part: str = ""

    @property
    def column(self) -> str:
        """What it is called after the number of the sketch, as in `s3_low` and `s3o_low`."""
        return f"{self.part}_{self.name}"


class Collector(Protocol):
    """Gathers one column of one file."""

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Take the distinct, null-free, normalised values of a part of the file.

        Of a kind with `only_extremes`, the least and the greatest of them will do; of a part with
        more than the kind's `most`, any that are more, with these two. Parts may repeat each
        other's values.
        `nulls` counts the part's null rows.
        """

    def finish(self) -> Mapping[str, Any] | None:
        """The fields' values by name (a TERMS field as an Arrow array); None means unknown.

        Those of a part by `o_low`; a part without a value is not known, nor is the sketch itself.
        A column of only nulls is known and has no values: its fields may be None, not the answer.
        """


class SkippingProvider(Protocol):
    """One index kind with its columns and parameters; immutable and picklable."""

    kind: ClassVar[str]

    only_extremes: ClassVar[bool]
    """Whether its collector needs no more of a part than its least and greatest value."""

    @property
    def most(self) -> int | None:
        """How many distinct values of a file it can use at all; with more the file is unknown."""

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> SkippingProvider:
        """Build it, or raise DefinitionError for a type or parameter it cannot be sound on.

        Positional parameters of a statement arrive under the names in `signature`.
        """

    @classmethod
    def signature(cls, given: Sequence[Param] = ()) -> tuple[str, ...]:
        """Names of the parameters in the order in which a statement may give them.

        `given` are the values that it gives without names: a kind may take several orders.
        """

    def fields(self) -> tuple[Field, ...]:
        """What is kept for one file, beside whether anything is known at all."""

    def collector(self) -> Collector:
        """A new collector, for one file."""

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Tests that hold for every file with a row satisfying `leaf`; None is no opinion.

        The leaf's values are normalised and of the column's domain (`providers.predicate.fits`).
        """

    def survival(self, leaf: Leaf) -> float:
        """Share of the files without a match that the tests of `leaf` are expected to keep.

        From 0 to 1, as far as it follows from the leaf alone. Past a half they are not asked.
        A kind may have a method `sharper(leaf, most)`: the parameters, as a statement names them,
        with which the share is at most `most`, or None. Explain shows them.
        """
