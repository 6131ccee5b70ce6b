"""The condition of WHERE in the language of an engine: one walk of its tree for all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from providers.errors import DefinitionError
from providers.predicate import FLIPPED
from skipping.parser.condition import (
    Between,
    Both,
    Compared,
    Comparison,
    Condition,
    Constant,
    Either,
    Like,
    Membership,
    Negation,
    NullTest,
    Operand,
    TupleMembership,
    parse_condition,
)

__all__ = ["WhereRenderer", "column_first"]

T = TypeVar("T")


def column_first(node: Comparison) -> Comparison:
    """Exchange the sides of a comparison of a constant with a column."""
    if not isinstance(node.left, Constant) or isinstance(node.right, Constant):
        return node
    op = node.op if node.op == "<=>" else FLIPPED[node.op]
    return Comparison(node.right, op, node.left)


class WhereRenderer(ABC, Generic[T]):
    """Renders conditions; an engine implements the tests, and refuses what it cannot express."""

    def render_text(self, text: str) -> T:
        """Render a condition's text.

        Raises StatementError for text that is no condition, DefinitionError for what the engine
        cannot express.
        """
        return self.render(parse_condition(text))

    def render(self, node: Condition) -> T:
        """Render a condition."""
        match node:
            case Both(legs):
                return self.both([self.render(leg) for leg in legs])
            case Either(legs):
                return self.either([self.render(leg) for leg in legs])
            case Negation(leg):
                return self.negate(self.render(leg))
            case Comparison():
                ordered = column_first(node)
                return self.compare(ordered.left, ordered.op, ordered.right)
            case Membership(operand, values):
                found = self.is_in(operand, values)
            case Between(operand, low, high):
                bounds = [self.compare(operand, ">=", low), self.compare(operand, "<=", high)]
                found = self.both(bounds)
            case NullTest(operand):
                found = self.is_null(operand)
            case Like(operand, pattern, escape):
                found = self.like(operand, pattern, escape)
            case TupleMembership():
                found = self.other(node)
        return self.negate(found) if node.negated else found

    @abstractmethod
    def both(self, operands: Sequence[T]) -> T:
        """Join by AND."""

    @abstractmethod
    def either(self, operands: Sequence[T]) -> T:
        """Join by OR."""

    @abstractmethod
    def negate(self, operand: T) -> T:
        """Negate."""

    @abstractmethod
    def compare(self, left: Operand, op: Compared, right: Operand) -> T:
        """Render `left op right`."""

    @abstractmethod
    def is_in(self, operand: Operand, values: Sequence[Operand]) -> T:
        """Render `operand IN (values)`."""

    @abstractmethod
    def is_null(self, operand: Operand) -> T:
        """Render `operand IS NULL`."""

    @abstractmethod
    def like(self, operand: Operand, pattern: str, escape: str) -> T:
        """Render `operand LIKE pattern ESCAPE escape`."""

    def other(self, node: TupleMembership) -> T:
        """Render a test that only Spark knows."""
        raise DefinitionError("without Spark WHERE takes no IN of tuples")
