"""Render the condition of WHERE in the language of an engine, by one traversal for all engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from providers.errors import DefinitionError
from providers.predicate import FLIPPED
from skipping.parser import condition as tree
from skipping.parser.condition import Condition, Constant, Operand, parse_condition

T = TypeVar("T")


def column_first(node: tree.Comparison) -> tree.Comparison:
    """Exchange the sides of a comparison of a constant with a column."""
    if not isinstance(node.left, Constant) or isinstance(node.right, Constant):
        return node
    op = node.op if node.op == "<=>" else FLIPPED[node.op]
    return tree.Comparison(node.right, op, node.left)


def _refuse_tuples(operands: Sequence[Operand], rows: Sequence[Sequence[Operand]]) -> NoReturn:
    raise DefinitionError("without Spark, WHERE does not support IN with tuples")


@dataclass(frozen=True, slots=True)
class WhereRenderer(Generic[T]):
    """Renders conditions with an engine's functions, which raise for what it cannot express.

    `compare` is for `left op right`, `is_in` for `operand IN (values)`, `is_null` for IS NULL,
    `like` for `operand LIKE pattern ESCAPE escape`, and `in_tuples` for `(operands) IN (rows)`.
    """

    all_of: Callable[[Sequence[T]], T]
    any_of: Callable[[Sequence[T]], T]
    negate: Callable[[T], T]
    compare: Callable[[Operand, tree.Compared, Operand], T]
    is_in: Callable[[Operand, Sequence[Operand]], T]
    is_null: Callable[[Operand], T]
    like: Callable[[Operand, str, str], T]
    in_tuples: Callable[[Sequence[Operand], Sequence[Sequence[Operand]]], T] = _refuse_tuples

    def render(self, text: str) -> T:
        """Render a condition's text.

        Raises StatementError for invalid text, DefinitionError for what the engine cannot express.
        """
        return self._render(parse_condition(text))

    def _render(self, node: Condition) -> T:
        match node:
            case tree.Both(operands):
                return self.all_of([self._render(each) for each in operands])
            case tree.Either(operands):
                return self.any_of([self._render(each) for each in operands])
            case tree.Negation(operand):
                return self.negate(self._render(operand))
            case tree.Comparison():
                ordered = column_first(node)
                return self.compare(ordered.left, ordered.op, ordered.right)
            case tree.Membership(operand, values):
                made = self.is_in(operand, values)
            case tree.Between(operand, low, high):
                bounds = self.compare(operand, ">=", low), self.compare(operand, "<=", high)
                made = self.all_of(bounds)
            case tree.NullTest(operand):
                made = self.is_null(operand)
            case tree.Like(operand, pattern, escape):
                made = self.like(operand, pattern, escape)
            case tree.TupleMembership(operands, rows):
                made = self.in_tuples(operands, rows)
        return self.negate(made) if node.negated else made
