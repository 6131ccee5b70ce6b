"""Render the condition of WHERE for delta-rs, from its tree, in the SQL of DataFusion."""

from __future__ import annotations

import re

from providers.errors import DefinitionError
from providers.values import successor
from skipping.parser.condition import Compared, Constant, Operand
from skipping.parser.literals import join_name, split_parts
from skipping.tables import Columns
from skipping.tables.where import WhereRenderer


def delta_rs_condition(text: str, columns: Columns) -> str:
    """Render a condition's text as SQL by which delta-rs selects files.

    Raises StatementError for text that WHERE does not support, and DefinitionError for a column
    that the table does not have or a LIKE other than `'prefix%'`.
    """

    def spell(operand: Operand) -> str:
        if isinstance(operand, Constant):
            return _literal(operand)
        # Use the table's spelling: delta-rs is case-sensitive, Spark is not.
        name = columns.resolve(join_name(operand.parts)).name
        return ".".join('"' + part.replace('"', '""') + '"' for part in split_parts(name))

    def compare(left: Operand, op: Compared, right: Operand) -> str:
        return f"{spell(left)} {'IS NOT DISTINCT FROM' if op == '<=>' else op} {spell(right)}"

    def like(operand: Operand, pattern: str, escape: str) -> str:
        if not re.fullmatch(r"[^%_\\]+%", pattern):  # delta-rs has no LIKE, only ranges
            raise DefinitionError("without Spark, WHERE supports LIKE only with 'prefix%'")
        inner, prefix = spell(operand), pattern[:-1]
        found = f"{inner} >= {_constant(prefix)}"
        if (after := successor(prefix)) is not None:
            found = f"({found} AND {inner} < {_constant(after)})"
        return found

    renderer: WhereRenderer[str] = WhereRenderer(
        all_of=lambda operands: f"({' AND '.join(operands)})",
        any_of=lambda operands: f"({' OR '.join(operands)})",
        negate=lambda operand: f"NOT ({operand})",
        compare=compare,
        is_in=lambda operand, values: f"{spell(operand)} IN ({', '.join(map(spell, values))})",
        is_null=lambda operand: f"{spell(operand)} IS NULL",
        like=like,
    )
    return renderer.render(text)


def _literal(constant: Constant) -> str:
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
