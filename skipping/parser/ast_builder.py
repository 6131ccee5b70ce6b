"""Build statements from parse trees, and check what the grammar cannot express."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from lark import Token, Tree

from providers.base import Param
from skipping.parser import literals, statements
from skipping.parser.condition import read_condition
from skipping.parser.grammar import read_token, start_of, subtrees, tokens_of
from skipping.parser.lexer import TextError, one_line
from skipping.parser.literals import join_name
from skipping.parser.statements import Action, ColumnDrop, ColumnSpec, Name, Statement

_Key = TypeVar("_Key")

_KINDS = {"BLOOMFILTER": "BLOOM_FILTER", "DATASKIPPING": "MIN_MAX"}
"""Databricks' names of index types, and ours."""
_ANALYZE_OPTIONS = {"budget": "a percentage of the data such as '5%'", "details": "true or false"}
_BLOOM = {"fpp": "fpp", "numitems": "num_items"}
"""Databricks' options of a Bloom filter in lower case, and our parameters; case is ignored."""


class StatementReader:
    """Builds the statement of one text; raises TextError at the position of the wrong word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._marks: dict[str, int] = {}

    def statement(self, tree: Tree[Token]) -> Statement:
        """Return the statement for a tree of the grammar rule `start`."""
        (node,) = subtrees(tree)
        parts = {str(part.data): part for part in subtrees(node)}
        marks = MappingProxyType(self._marks)
        if node.data == "recover":
            job = next(t for t in tokens_of(node) if t.type == "JOB_NAME")
            self._marks["job"] = start_of(job)
            return statements.RecoverJob(read_token(literals.unquote, job), marks=marks)
        if node.data.startswith("show"):
            return self._show(node.data, parts)
        table = self._read_name(parts["table"])
        match node.data:
            case "create":
                columns = self._columns(parts["columns"]) if "columns" in parts else ()
                where = self._where(parts["where"]) if "where" in parts else None
                options = self._options(parts.get("options"))
                return statements.Create(
                    table,
                    columns,
                    "if_not_exists" in parts,
                    where,
                    options,
                    automatic="automatic" in parts,
                    marks=marks,
                )
            case "create_kind" | "drop_kind":
                return self._databricks_statement(tokens_of(node), table, parts)
            case "refresh":
                return statements.Refresh(table, dry_run="dry_run" in parts, marks=marks)
            case "analyze":
                return self._analyze(table, parts.get("options"))
            case "alter":
                return statements.Alter(table, self._action(subtrees(node)[-1]), marks=marks)
            case "describe":
                return statements.Describe(table, "extended" in parts, marks=marks)
            case "describe_files":
                return statements.DescribeFiles(table, self._where(parts["where"]), marks=marks)
            case "drop":
                return statements.Drop(table, "if_exists" in parts, marks=marks)
        return statements.Vacuum(table, marks=marks)

    def _show(self, rule: str, parts: Mapping[str, Tree[Token]]) -> Statement:
        marks = MappingProxyType(self._marks)
        named = self._read_name(parts["table"]) if "table" in parts else None
        match rule:
            case "show":
                scope = self._read_name(parts["scope"]) if "scope" in parts else None
                return statements.Show(scope, "extended" in parts, marks=marks)
            case "show_streams":
                return statements.ShowStreams(marks=marks)
            case "show_counters":
                return statements.ShowCounters(marks=marks)
            case "show_history":
                return statements.ShowHistory(named, marks=marks)
            case "show_decisions":
                return statements.ShowDecisions(named, marks=marks)
        if "by_column" in parts:
            return statements.ShowSavings(named, "column", marks=marks)
        return statements.ShowSavings(named, "day" if "by_day" in parts else None, marks=marks)

    def _analyze(self, table: Name, node: Tree[Token] | None) -> statements.Analyze:
        """Return ANALYZE with its options, which decide about the columns of the result."""
        given = self._options(node)
        for name, value in given.items():
            takes = _ANALYZE_OPTIONS.get(name)
            if takes is None:
                options = ", ".join(_ANALYZE_OPTIONS)
                message = f"unknown option {name}: ANALYZE SKIPPING INDEX takes {options}"
                raise TextError(self._marks[f"with.{name}"], message)
            is_valid = isinstance(value, bool) if name == "details" else _parse_percent(value) > 0
            if not is_valid:
                message = f"the option {name} takes {takes}, not {value!r}"
                raise TextError(self._marks[f"with.{name}"], message)
        budget = _parse_percent(given["budget"]) if "budget" in given else None
        details = given.get("details") is True
        return statements.Analyze(
            table, budget, details=details, marks=MappingProxyType(self._marks)
        )

    def _action(self, node: Tree[Token]) -> Action:
        match node.data:
            case "add":
                return statements.AddColumns(self._columns(subtrees(node)[0]))
            case "remove":
                return statements.DropColumns(_read_drops(node))
            case "options":
                return statements.SetOptions(self._options(node))
            case "enable":
                return statements.Enable()
        return statements.Disable()

    def _databricks_statement(
        self, words: Sequence[Token], table: Name, parts: Mapping[str, Tree[Token]]
    ) -> statements.Create | statements.DropKind:
        """Return Databricks' CREATE or DROP statement for one index type."""
        marks = MappingProxyType(self._marks)
        kind = _KINDS[words[1].upper()]
        if words[0].type == "DROP":
            paths = subtrees(parts["kind_drops"]) if "kind_drops" in parts else ()
            drops = tuple(ColumnDrop(_path(path), kind, start_of(path)) for path in paths)
            return statements.DropKind(table, kind, drops, "if_exists" in parts, marks=marks)
        columns = subtrees(parts["kind_columns"]) if "kind_columns" in parts else ()
        if kind == "BLOOM_FILTER" and not columns:
            raise TextError(
                start_of(words[1]), "a Bloom filter needs FOR COLUMNS (...) after the table"
            )
        shared = _kind_options(kind, parts.get("kind_options"))
        specs: dict[Name, ColumnSpec] = {}
        for column in columns:
            path, *own = subtrees(column)
            named = {**shared, **_kind_options(kind, own[0] if own else None)}
            name, start = _path(path), start_of(path)
            _require_new(specs, name, join_name(name), start)
            specs[name] = ColumnSpec(name, kind, (), MappingProxyType(named), start, start)
        made = tuple(specs.values())
        return statements.Create(table, made, "if_not_exists" in parts, extends=True, marks=marks)

    def _columns(self, node: Tree[Token]) -> tuple[ColumnSpec, ...]:
        specs: dict[tuple[tuple[Name, ...], str], ColumnSpec] = {}
        for column in subtrees(node):
            path, *rest = subtrees(column)
            word = tokens_of(column)[0]
            kind = str(word).upper()
            parts, is_expression, composite = _item(path)
            spec = ColumnSpec(
                parts,
                kind,
                *_params(rest),
                start_of(path),
                start_of(word),
                is_expression=is_expression,
                composite=composite,
            )
            # Spark's case sensitivity is unknown here: `a` and `A` are compared when resolved.
            key = (spec.composite or (spec.parts,), kind)
            _require_new(specs, key, f"{spec.name} {kind}", spec.position)
            specs[key] = spec
        return tuple(specs.values())

    def _options(self, node: Tree[Token] | None) -> Mapping[str, Param]:
        options: dict[str, Param] = {}
        for option in subtrees(node) if node else ():
            (key,) = subtrees(option)
            name = ".".join(map(_word, _words(key)))
            _require_new(options, name, f"the option {name}", start_of(key))
            self._marks[f"with.{name}"] = start_of(key)
            options[name] = _value(tokens_of(option)[-1])
        return MappingProxyType(options)

    def _where(self, node: Tree[Token]) -> str:
        meta = subtrees(node)[0].meta
        self._marks["where"] = meta.start_pos
        where = self._text[meta.start_pos : meta.end_pos]
        try:
            read_condition(where)
        except TextError as error:
            raise TextError(meta.start_pos + error.position, str(error)) from None
        return where

    def _read_name(self, node: Tree[Token]) -> Name:
        self._marks[str(node.data)] = start_of(node)
        first, *rest = tokens_of(node)
        if first.type == "IDENTIFIER":
            (name,) = (token for token in rest if token.type == "STRING")
            return tuple(literals.split_parts(_word(name)))
        return _path(node)


def _parse_percent(value: Param) -> float:
    """Return `'5%'` as 0.05; 0 for anything else."""
    try:
        return literals.parse_percent(value) if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0


def _kind_options(kind: str, node: Tree[Token] | None) -> dict[str, Param]:
    options: dict[str, Param] = {}
    for option in subtrees(node) if node else ():
        (key,) = subtrees(option)
        first, *rest = tokens_of(key)
        name = _word(first)
        if kind != "BLOOM_FILTER" or name.lower() not in _BLOOM or rest:
            takes = "fpp and numItems" if kind == "BLOOM_FILTER" else "no options"
            raise TextError(start_of(first), f"unknown option {name}: {kind} takes {takes}")
        _require_new(options, _BLOOM[name.lower()], f"the option {name}", start_of(key))
        options[_BLOOM[name.lower()]] = _value(tokens_of(option)[-1])
    return options


def _read_drops(node: Tree[Token]) -> tuple[ColumnDrop, ...]:
    drops: dict[tuple[tuple[Name, ...], str | None], ColumnDrop] = {}
    for column in subtrees(node):
        (path,) = subtrees(column)
        kind = next((str(token).upper() for token in tokens_of(column)), None)
        parts, is_expression, composite = _item(path)
        start = start_of(path)
        drop = ColumnDrop(parts, kind, start, is_expression=is_expression, composite=composite)
        key = (drop.composite or (drop.parts,), kind)
        _require_new(drops, key, f"{drop.name} {kind or ''}", start)
        drops[key] = drop
    return tuple(drops.values())


def _params(nodes: Sequence[Tree[Token]]) -> tuple[tuple[Param, ...], Mapping[str, Param]]:
    positional: list[Param] = []
    named: dict[str, Param] = {}
    for param in (param for node in nodes for param in subtrees(node)):
        tokens = tokens_of(param)
        value = _value(tokens[-1])
        if param.data == "named":
            name = _word(tokens[0])
            _require_new(named, name, f"the parameter {name}", start_of(param))
            named[name] = value
        elif named:
            raise TextError(start_of(tokens[0]), "put values without a name before the named ones")
        else:
            positional.append(value)
    return tuple(positional), MappingProxyType(named)


def _item(item: Tree[Token]) -> tuple[Name, bool, tuple[Name, ...]]:
    """Return (the parts of the name, whether it is an expression, the columns of a composite).

    An expression has one part: its text. A composite has no parts.
    """
    if item.data == "composite":
        return (), False, tuple(map(_path, subtrees(item)))
    if item.data == "path":
        return _path(item), False, ()
    return (one_line(tokens_of(item)[0]),), True, ()


def _path(node: Tree[Token]) -> Name:
    return tuple(map(_word, _words(node)))


def _words(node: Tree[Token]) -> list[Token]:
    return [token for token in tokens_of(node) if token.type != "DOT"]


def _word(token: Token) -> str:
    is_text = token.type == "STRING"
    return read_token(literals.parse_string if is_text else literals.unquote, token)


def _value(token: Token) -> Param:
    if token.type in ("TRUE", "FALSE"):
        return token.type == "TRUE"
    if token.type == "STRING":
        return _word(token)
    return read_token(literals.parse_number, token)


def _require_new(seen: Mapping[_Key, object], key: _Key, what: str, position: int) -> None:
    if key in seen:
        raise TextError(position, f"{what.strip()} is given twice: remove one")
