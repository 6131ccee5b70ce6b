"""Translate the text of a condition to a predicate: `"user = 'u1' AND day > '2024-01-31'"`.

Values are those that Spark compares the column with: it casts text to the type of a date or time
column, and reads times without a zone in the session's zone. A condition that depends on more is
Unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from providers.predicate import (
    OPPOSITE,
    And,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Leaf,
    Or,
    Predicate,
    StartsWith,
    negate,
)
from providers.predicate import Unknown as Unanswerable
from skipping.parser import condition as tree
from skipping.parser.condition import (
    Condition,
    Constant,
    Operand,
    Strings,
    parse_condition,
    require_same_strings,
)
from skipping.parser.literals import join_name
from skipping.tables import Columns, TableColumn
from skipping.tables.where import column_first

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})"
    r"(?:[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?(?:(Z)|([+-]\d{2}):(\d{2}))?)?",
    re.ASCII,
)
_FURTHEST = timedelta(hours=18)
"""The largest offset from UTC that Java accepts."""


def as_predicate(
    given: object, columns: Columns, *, zone: str | None = None, strings: Strings | None = None
) -> Predicate:
    """Return a predicate unchanged, or translate SQL text on the columns of a table.

    The text has the syntax of WHERE in CREATE SKIPPING INDEX. `zone` is the session's time zone, or
    None without a session. `strings` says how the session's Spark reads string literals. Raises
    StatementError for text that this Spark would read differently, or that is invalid;
    DefinitionError for an unknown column; TypeError for another type.
    """
    if isinstance(given, str):
        if strings is not None:
            require_same_strings(given, strings)
        return _Translation(columns, _zone(zone)).predicate(parse_condition(given), negated=False)
    if isinstance(given, And | Or | Leaf | Unanswerable):
        return given
    raise TypeError(
        "a predicate is SQL text such as \"user = 'u1'\", or made of Compare, In, IsNull, "
        f"StartsWith, EndsWith, Contains, And and Or of providers, not {type(given).__name__}"
    )


class _UnclearError(Exception):
    pass


def _zone(name: str | None) -> tzinfo | None:
    try:
        return None if name is None else ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # a zone that only Java has, such as GMT+8
        return None


class _Translation:
    def __init__(self, columns: Columns, zone: tzinfo | None) -> None:
        self._columns = columns
        self._zone = zone

    def predicate(self, node: Condition, *, negated: bool) -> Predicate:
        """Translate, moving negations to the leaves: null satisfies neither form of a leaf."""
        try:
            return self._predicate(node, negated)
        except _UnclearError as why:
            return Unanswerable(str(why))

    def _predicate(self, node: Condition, negated: bool) -> Predicate:
        match node:
            case tree.Negation(inner):
                return self.predicate(inner, negated=not negated)
            case tree.Both(inners) | tree.Either(inners):
                below = tuple(self.predicate(each, negated=negated) for each in inners)
                return And(below) if isinstance(node, tree.Both) is not negated else Or(below)
            case tree.Comparison():
                return self._comparison(node, negated)
            case tree.TupleMembership():
                return self._tuples(node, negated)
        operand, refuses = node.operand, node.negated is not negated
        if not isinstance(operand, tree.ColumnName):
            return Unanswerable("a test of a constant")
        column = self._columns.resolve(join_name(operand.parts))
        match node:
            case tree.NullTest():
                return IsNull(column.name, negated=refuses)
            case tree.Like(_, pattern, escape):
                if column.type != "string":
                    return Unanswerable(f"{column.name} LIKE, which is not text")
                return _like(column.name, pattern, escape, refuses)
            case tree.Membership(_, values):
                return self._among(column, values, refuses)
            case tree.Between(_, low, high):
                return self._between(column, low, high, refuses)

    def _comparison(self, node: tree.Comparison, negated: bool) -> Predicate:
        node = column_first(node)
        left, op, right = node.left, node.op, node.right
        if not isinstance(left, tree.ColumnName) or not isinstance(right, Constant):
            return Unanswerable("a comparison other than of a column with a constant")
        column = self._columns.resolve(join_name(left.parts))
        value = self._value(right, column)
        if op != "<=>":
            return Compare(column.name, OPPOSITE[op] if negated else op, value)
        if value is None:
            return IsNull(column.name, negated=negated)
        if negated:
            return Or((Compare(column.name, "!=", value), IsNull(column.name)))
        return Compare(column.name, "=", value)

    def _between(
        self, column: TableColumn, low: Operand, high: Operand, refuses: bool
    ) -> Predicate:
        if not isinstance(low, Constant) or not isinstance(high, Constant):
            return Unanswerable(f"{column.name} BETWEEN other columns")
        name, least, most = column.name, self._value(low, column), self._value(high, column)
        if refuses:
            return Or((Compare(name, "<", least), Compare(name, ">", most)))
        return And((Compare(name, ">=", least), Compare(name, "<=", most)))

    def _among(self, column: TableColumn, values: Sequence[Operand], refuses: bool) -> Predicate:
        constants = [value for value in values if isinstance(value, Constant)]
        if len(constants) < len(values):
            return Unanswerable(f"{column.name} IN other columns")
        # Without ANSI, Spark compares a list with text as text: right for dates, not for times.
        keys: Any = [
            self._value(c, column)
            if c.type is not None or (column.type == "date" and _is_date(c.value))
            else self._require_no_number(c, column)
            for c in constants
        ]
        return In(column.name, keys, refuses)

    def _tuples(self, node: tree.TupleMembership, negated: bool) -> Predicate:
        """Translate an IN of tuples; its negation is Unknown, because it is true for nulls."""
        if node.negated is not negated:
            return Unanswerable("NOT IN of tuples")
        rows: list[list[Predicate]] = [[] for _ in node.rows]
        for operand, given in zip(node.operands, zip(*node.rows, strict=True), strict=True):
            if not isinstance(operand, tree.ColumnName):
                return Unanswerable("a tuple with a constant")
            column = self._columns.resolve(join_name(operand.parts))
            if not _have_one_type(given, column):
                return Unanswerable(f"{column.name} in tuples with values of several types")
            listed: Any = self._among(column, given, False)
            for row, value in zip(rows, listed.values, strict=True):
                row.append(Compare(column.name, "=", value))
        return Or(tuple(And(tuple(row)) for row in rows))

    def _require_no_number(self, constant: Constant, column: TableColumn) -> Any:
        """Return the value; raise for a number, which would be read as days or microseconds."""
        if _has_time(column.type) and not isinstance(constant.value, str | None):
            raise _UnclearError(
                f"{column.name} compared with a number, which is not a {column.type}"
            )
        return constant.value

    def _value(self, constant: Constant, column: TableColumn) -> Any:
        value, type = constant.value, constant.type
        if not isinstance(value, str) or (type is None and not _has_time(column.type)):
            return self._require_no_number(constant, column)
        moment = _moment(value)
        if moment is None:
            if type is None:
                return value
            raise _UnclearError(
                f"{column.name} compared with {type} '{value}', which is incomplete"
            )
        if type == "date" or (type is None and column.type == "date"):
            return self._midnight(moment.date()) if column.type == "timestamp" else moment.date()
        return self._as_column(moment, type, column)

    def _midnight(self, day: date) -> date:
        """Return the start of a day in the session's zone, or the day without a session."""
        if self._zone is None:
            return day
        return datetime(day.year, day.month, day.day, tzinfo=self._zone)

    def _as_column(self, moment: datetime, literal: str | None, column: TableColumn) -> Any:
        """Convert a time to the column's type: an instant, or local time in the session's zone."""
        if column.type == "timestamp":
            if moment.tzinfo is None or literal == "timestamp_ntz":
                return moment.replace(tzinfo=self._zone)
            return moment
        if literal in (None, "timestamp_ntz"):
            # A cast to a time without a zone ignores the zone of the text.
            return moment.replace(tzinfo=None)
        if column.type == "date":
            return self._beside_days(moment, column.name)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=self._zone)

    def _beside_days(self, moment: datetime, name: str) -> datetime:
        """Return the instant to compare days with; a day is compared as its first moment."""
        if self._zone is not None:
            local = moment if moment.tzinfo is None else moment.astimezone(self._zone)
            first = datetime(local.year, local.month, local.day, tzinfo=self._zone)
            if first.astimezone(timezone.utc).astimezone(self._zone) != first:
                raise _UnclearError(f"{name} compared with a day that begins after midnight")
        return moment


def _have_one_type(given: Sequence[Operand], column: TableColumn) -> bool:
    """Return whether all values have one type; if so, Spark compares as outside a tuple."""
    constants = [value for value in given if isinstance(value, Constant)]
    types = {(type(value.value), value.type) for value in constants}
    if len(constants) < len(given) or len(types) > 1 or constants[0].value is None:
        return False
    if isinstance(constants[0].value, str) and constants[0].type is None:
        is_date = column.type == "date" and all(_is_date(value.value) for value in constants)
        return column.type == "string" or is_date
    return True


def _moment(text: str) -> datetime | None:
    """Parse a day, or a time with or without a zone; None for incomplete text."""
    found = _TIME.fullmatch(text.strip(" \t\n\r\v\f"))
    if found is None:
        return None
    day, time, fraction, is_utc, hours, minutes = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day} {time or '00:00:00'}")
    except ValueError:  # the 30th of February, or 25 o'clock
        return None
    moment = moment.replace(microsecond=int((fraction or "").ljust(6, "0")))
    if is_utc:
        return moment.replace(tzinfo=timezone.utc)
    if hours is None:
        return moment
    sign = -1 if hours[0] == "-" else 1
    offset = timedelta(hours=int(hours), minutes=sign * int(minutes))
    if int(minutes) > 59 or abs(offset) > _FURTHEST:
        return None
    return moment.replace(tzinfo=timezone(offset))


def _has_time(type: str) -> bool:
    return type in ("date", "timestamp", "timestamp_ntz")


def _is_date(value: object) -> bool:
    return isinstance(value, str) and _DATE.fullmatch(value) is not None


def _like(column: str, pattern: str, escape: str, refuses: bool) -> Predicate:
    """Translate LIKE exactly if the pattern is one text, with or without % at its ends.

    Any other pattern becomes its texts, joined with Unknown, so that rows are never filtered by
    them alone. Its negation is Unknown: a value that fails the pattern may contain all of its
    texts.
    """
    texts, signs = _split(pattern, escape)
    exact = _with_one_text(column, texts, signs)
    if exact is not None:
        return negate(exact) if refuses else exact
    first, *inner, last = texts
    operands: list[Predicate] = [StartsWith(column, first)] if first else []
    operands += [Contains(column, text) for text in inner if text]
    operands += [EndsWith(column, last)] if last else []
    if refuses or not operands:
        return Unanswerable(f"{column} {'NOT ' if refuses else ''}LIKE this pattern")
    return And((*operands, Unanswerable(f"the rest of a pattern of {column} LIKE")))


def _with_one_text(column: str, texts: Sequence[str], signs: Sequence[str]) -> Leaf | None:
    match texts, signs:
        case [text], []:
            return Compare(column, "=", text)
        case [prefix, ""], ["%"]:
            return StartsWith(column, prefix)
        case ["", suffix], ["%"]:
            return EndsWith(column, suffix)
        case ["", text, ""], ["%", "%"]:
            return Contains(column, text)
    return None


def _split(pattern: str, escape: str) -> tuple[list[str], list[str]]:
    texts = [""]
    signs: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            texts[-1] += pattern[at + 1 : at + 2]
            at += 2
            continue
        if pattern[at] == "%" and signs and signs[-1] == "%" and not texts[-1]:
            pass  # %% is %
        elif pattern[at] in "%_":
            signs.append(pattern[at])
            texts.append("")
        else:
            texts[-1] += pattern[at]
        at += 1
    return texts, signs
