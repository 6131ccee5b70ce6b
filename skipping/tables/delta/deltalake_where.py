"""The condition of WHERE as delta-rs evaluates it: made of its tree, in the SQL of DataFusion."""

from __future__ import annotations

import re

from providers.errors import DefinitionError
from providers.values import successor
from skipping.parser.condition import (
    Between,
    Both,
    Comparison,
    Condition,
    Constant,
    Either,
    Like,
    Membership,
    Negation,
    NullTest,
    Operand,
    parse_condition,
)
from skipping.parser.literals import join_name, split_parts
from skipping.tables import Columns

__all__ = ["delta_rs_condition"]


def delta_rs_condition(text: str, columns: Columns) -> str:
    """What a condition's text says, in the SQL that chooses files in delta-rs.

    Raises StatementError for what WHERE does not take, DefinitionError for a column that is not
    there, and for a LIKE that asks for more than a prefix.
    """
    return _Spelling(columns).condition(parse_condition(text))


class _Spelling:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def condition(self, node: Condition) -> str:
        match node:
            case Both(legs):
                return f"({' AND '.join(map(self.condition, legs))})"
            case Either(legs):
                return f"({' OR '.join(map(self.condition, legs))})"
            case Negation(leg):
                return f"NOT ({self.condition(leg)})"
            case Comparison(left, "<=>", right):
                op, left_sql, right_sql = "IS NOT DISTINCT FROM", *map(self.operand, (left, right))
                return f"{left_sql} {op} {right_sql}"
            case Comparison(left, op, right):
                return f"{self.operand(left)} {op} {self.operand(right)}"
            case Membership(operand, values, negated):
                found = f"{self.operand(operand)} IN ({', '.join(map(self.operand, values))})"
            case Between(operand, low, high, negated):
                inner = self.operand(operand)
                found = f"({inner} >= {self.operand(low)} AND {inner} <= {self.operand(high)})"
            case NullTest(operand, negated):
                found = f"{self.operand(operand)} IS NULL"
            case Like(operand, pattern, _, negated) if re.fullmatch(r"[^%_\\]+%", pattern):
                # delta-rs knows no LIKE.
                inner, prefix = self.operand(operand), pattern[:-1]
                found = f"{inner} >= {_constant(prefix)}"
                if (after := successor(prefix)) is not None:
                    found = f"({found} AND {inner} < {_constant(after)})"
            case _:
                raise DefinitionError("without Spark WHERE takes LIKE only with 'prefix%'")
        return f"NOT ({found})" if negated else found

    def operand(self, operand: Operand) -> str:
        """A column by its own name: delta-rs looks at its case, Spark does not."""
        if isinstance(operand, Constant):
            return _typed(operand)
        name = self._columns.resolve(join_name(operand.parts)).name
        return ".".join('"' + part.replace('"', '""') + '"' for part in split_parts(name))


def _typed(constant: Constant) -> str:
    text = _constant(constant.value)
    if constant.type is None:
        return text
    return f"{'DATE' if constant.type == 'date' else 'TIMESTAMP'} {text}"


def _constant(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return str(value).upper()
    return str(value)
