"""Build statements from the grammar's trees: names, constants, and checks beyond the grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from lark import Token, Tree

from providers.base import Param
from providers.errors import StatementError
from skipping.parser import literals
from skipping.parser.condition import parse_condition
from skipping.parser.errors import point_at
from skipping.parser.lexer import one_line
from skipping.parser.literals import join_name
from skipping.parser.statements import (
    Action,
    AddColumns,
    Alter,
    Analyze,
    ColumnDrop,
    ColumnSpec,
    Create,
    Describe,
    DescribeFiles,
    Disable,
    Drop,
    DropColumns,
    DropKind,
    Enable,
    Name,
    RecoverJob,
    Refresh,
    SetOptions,
    Show,
    ShowCounters,
    ShowHistory,
    ShowStreams,
    Statement,
    Vacuum,
)

_Key = TypeVar("_Key")

_PLAIN: Mapping[str, type[Refresh | Analyze | Vacuum]] = {
    "refresh": Refresh,
    "analyze": Analyze,
    "vacuum": Vacuum,
}
_KINDS = {"BLOOMFILTER": "BLOOM_FILTER", "DATASKIPPING": "MIN_MAX"}
"""Index types by Databricks' words for them."""
_BLOOM = {"fpp": "fpp", "numitems": "num_items"}
"""Parameters of BLOOM_FILTER by Databricks' options for them, in lower case: case is ignored."""


class StatementReader:
    """Builds the statement of one text. Raises StatementError that points into the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._marks: dict[str, int] = {}

    def statement(self, tree: Tree[Token]) -> Statement:
        """Return the statement of a tree of the grammar's `start`."""
        (node,) = _parts(tree)
        parts = {str(part.data): part for part in _parts(node)}
        marks = MappingProxyType(self._marks)
        if node.data == "recover":
            job = next(t for t in _tokens(node) if t.type == "JOB_NAME")
            self._mark("job", job)
            return RecoverJob(self._name(job), marks=marks)
        if node.data == "show":
            scope = self._read_name(parts["scope"]) if "scope" in parts else None
            return Show(scope, "extended" in parts, marks=marks)
        if node.data == "show_streams":
            return ShowStreams(marks=marks)
        if node.data == "show_counters":
            return ShowCounters(marks=marks)
        if node.data == "show_history":
            named = self._read_name(parts["table"]) if "table" in parts else None
            return ShowHistory(named, marks=marks)
        table = self._read_name(parts["table"])
        match node.data:
            case "create":
                columns = self._columns(parts["columns"])
                where = self._where(parts.get("where"))
                options = self._options(parts.get("options"))
                return Create(table, columns, "if_not_exists" in parts, where, options, marks=marks)
            case "create_kind" | "drop_kind":
                return self._about_kind(_tokens(node), table, parts)
            case "alter":
                return Alter(table, self._action(_parts(node)[-1]), marks=marks)
            case "describe":
                return Describe(table, "extended" in parts, marks=marks)
            case "describe_files":
                where = self._where(parts["where"])
                assert where is not None, "the grammar wants one"
                return DescribeFiles(table, where, marks=marks)
            case "drop":
                return Drop(table, "if_exists" in parts, marks=marks)
        return _PLAIN[node.data](table, marks=marks)

    def _action(self, node: Tree[Token]) -> Action:
        match node.data:
            case "add":
                return AddColumns(self._columns(_parts(node)[0]))
            case "remove":
                return DropColumns(self._read_drops(node))
            case "options":
                return SetOptions(self._options(node))
            case "enable":
                return Enable()
        return Disable()

    def _about_kind(
        self, words: Sequence[Token], table: Name, parts: Mapping[str, Tree[Token]]
    ) -> Create | DropKind:
        """Return Databricks' CREATE or DROP of one index type."""
        marks = MappingProxyType(self._marks)
        kind = _KINDS[words[1].upper()]
        if words[0].type == "DROP":
            paths = _parts(parts["kind_drops"]) if "kind_drops" in parts else ()
            drops = tuple(ColumnDrop(self._path(path), kind, _start(path)) for path in paths)
            return DropKind(table, kind, drops, "if_exists" in parts, marks=marks)
        columns = _parts(parts["kind_columns"]) if "kind_columns" in parts else ()
        if kind == "BLOOM_FILTER" and not columns:
            raise self._wrong(words[1], "a bloom filter needs FOR COLUMNS (...) after the table")
        shared = self._kind_options(kind, parts.get("kind_options"))
        specs: dict[Name, ColumnSpec] = {}
        for column in columns:
            path, *own = _parts(column)
            named = {**shared, **self._kind_options(kind, own[0] if own else None)}
            name, start = self._path(path), _start(path)
            self._once(specs, name, join_name(name), start)
            specs[name] = ColumnSpec(name, kind, (), MappingProxyType(named), start, start)
        made = tuple(specs.values())
        return Create(table, made, "if_not_exists" in parts, extends=True, marks=marks)

    def _kind_options(self, kind: str, node: Tree[Token] | None) -> dict[str, Param]:
        options: dict[str, Param] = {}
        for option in _parts(node) if node else ():
            (key,) = _parts(option)
            token = _tokens(key)[0]
            name = self._string(token) if token.type == "STRING" else self._name(token)
            if kind != "BLOOM_FILTER" or name.lower() not in _BLOOM or len(_tokens(key)) > 1:
                takes = "fpp and numItems" if kind == "BLOOM_FILTER" else "none"
                raise self._wrong(token, f"no option {name} of {kind} here: it takes {takes}")
            self._once(options, _BLOOM[name.lower()], f"the option {name}", _start(key))
            options[_BLOOM[name.lower()]] = self._value(_tokens(option)[-1])
        return options

    def _columns(self, node: Tree[Token]) -> tuple[ColumnSpec, ...]:
        specs: dict[tuple[tuple[Name, ...], str], ColumnSpec] = {}
        for column in _parts(node):
            path, *rest = _parts(column)
            word = _tokens(column)[0]
            kind = str(word).upper()
            places = (_start(path), word.start_pos or 0)
            parts, is_expression, composite = self._item(path)
            spec = ColumnSpec(
                parts,
                kind,
                *self._params(rest),
                *places,
                is_expression=is_expression,
                composite=composite,
            )
            # Spark's case sensitivity is unknown here: `a` and `A` are compared when resolved.
            key = (spec.composite or (spec.parts,), kind)
            self._once(specs, key, f"{spec.name} {kind}", spec.position)
            specs[key] = spec
        return tuple(specs.values())

    def _read_drops(self, node: Tree[Token]) -> tuple[ColumnDrop, ...]:
        drops: dict[tuple[tuple[Name, ...], str | None], ColumnDrop] = {}
        for column in _parts(node):
            (path,) = _parts(column)
            kind = next((str(token).upper() for token in _tokens(column)), None)
            parts, is_expression, composite = self._item(path)
            drop = ColumnDrop(
                parts, kind, _start(path), is_expression=is_expression, composite=composite
            )
            key = (drop.composite or (drop.parts,), kind)
            self._once(drops, key, f"{drop.name} {kind or ''}", drop.position)
            drops[key] = drop
        return tuple(drops.values())

    def _params(
        self, nodes: Sequence[Tree[Token]]
    ) -> tuple[tuple[Param, ...], Mapping[str, Param]]:
        positional: list[Param] = []
        named: dict[str, Param] = {}
        for param in (param for node in nodes for param in _parts(node)):
            tokens = _tokens(param)
            value = self._value(tokens[-1])
            if param.data == "named":
                name = self._name(tokens[0])
                self._once(named, name, f"the parameter {name}", _start(param))
                named[name] = value
            elif named:
                raise self._wrong(tokens[0], "values without a name come before the named ones")
            else:
                positional.append(value)
        return tuple(positional), MappingProxyType(named)

    def _options(self, node: Tree[Token] | None) -> Mapping[str, Param]:
        options: dict[str, Param] = {}
        for option in _parts(node) if node else ():
            (key,) = _parts(option)
            tokens = [token for token in _tokens(key) if token.type != "DOT"]
            if tokens[0].type == "STRING":
                name = self._string(tokens[0])
            else:
                name = ".".join(self._name(token) for token in tokens)
            self._once(options, name, f"the option {name}", _start(key))
            self._mark(f"with.{name}", tokens[0])
            options[name] = self._value(_tokens(option)[-1])
        return MappingProxyType(options)

    def _where(self, node: Tree[Token] | None) -> str | None:
        if node is None:
            return None
        meta = _parts(node)[0].meta
        self._marks["where"] = meta.start_pos
        where = self._text[meta.start_pos : meta.end_pos]
        parse_condition(where, within=self._text, position=meta.start_pos)
        return where

    def _read_name(self, node: Tree[Token]) -> Name:
        self._marks[str(node.data)] = _start(node)
        first, *rest = _tokens(node)
        if first.type == "IDENTIFIER":
            (name,) = (token for token in rest if token.type == "STRING")
            return tuple(literals.split_parts(self._string(name)))
        return self._path(node)

    def _item(self, item: Tree[Token]) -> tuple[Name, bool, tuple[Name, ...]]:
        """Return the parts of a column, whether it is an expression, and a composite's columns.

        An expression is one part, as written. A composite has no parts.
        """
        if item.data == "composite":
            return (), False, tuple(self._path(path) for path in _parts(item))
        if item.data == "path":
            return self._path(item), False, ()
        return (one_line(_tokens(item)[0]),), True, ()

    def _path(self, node: Tree[Token]) -> Name:
        return tuple(self._name(token) for token in _tokens(node) if token.type != "DOT")

    def _name(self, token: Token) -> str:
        try:
            return literals.unquote(token)
        except ValueError as error:
            raise self._wrong(token, str(error)) from None

    def _value(self, token: Token) -> Param:
        if token.type in ("TRUE", "FALSE"):
            return token.type == "TRUE"
        if token.type == "STRING":
            return self._string(token)
        try:
            return literals.parse_number(token)
        except ValueError as error:
            raise self._wrong(token, str(error)) from None

    def _string(self, token: Token) -> str:
        try:
            return literals.parse_string(token)
        except ValueError as error:
            raise self._wrong(token, str(error)) from None

    def _mark(self, what: str, token: Token) -> None:
        self._marks[what] = token.start_pos or 0

    def _once(self, seen: Mapping[_Key, object], key: _Key, what: str, position: int) -> None:
        if key in seen:
            raise point_at(self._text, position, f"{what.strip()} is given twice: leave one out")

    def _wrong(self, token: Token, message: str) -> StatementError:
        return point_at(self._text, token.start_pos or 0, message)


def _parts(node: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in node.children if isinstance(child, Tree)]


def _tokens(node: Tree[Token]) -> list[Token]:
    return [child for child in node.children if isinstance(child, Token)]


def _start(node: Tree[Token]) -> int:
    return int(node.meta.start_pos)
