"""Texts and what they mean, in statements.txt, errors.txt and flint.sql; and any text at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from providers.errors import StatementError
from skipping.config.options import OPTIONS
from skipping.parser.errors import point_at
from skipping.parser.lexer import first_line, is_ours
from skipping.parser.parse import parse
from skipping.parser.statements import (
    Alter,
    Create,
    Describe,
    RecoverJob,
    Refresh,
    SetOptions,
    Show,
    ShowDecisions,
)

HERE = Path(__file__).parent


def _pairs(name: str) -> list[tuple[str, str]]:
    blocks = (HERE / name).read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    texts = [b for b in blocks if not all(line.startswith("# ") for line in b.split("\n"))]
    assert len(texts) % 2 == 0, f"{name}: a statement without its answer"
    return list(zip(texts[::2], texts[1::2], strict=True))


def _rendered(value: object) -> str:
    if is_dataclass(value):
        shown = [
            f"{f.name}={_rendered(getattr(value, f.name))}"
            for f in fields(value)
            if f.repr and getattr(value, f.name) != _default(f)
        ]
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, Mapping):
        return repr(dict(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(_rendered, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def _default(f: object) -> object:
    if f.default_factory is not MISSING:
        return f.default_factory()
    return f.default


@pytest.mark.parametrize(("text", "meaning"), _pairs("statements.txt"))
def test_statement(text, meaning):
    assert _rendered(parse(text)) == meaning


@pytest.mark.parametrize(("text", "message"), _pairs("errors.txt"))
def test_error(text, message):
    with pytest.raises(StatementError) as error:
        parse(text)
    assert str(error.value) == message


def _flint() -> list[str]:
    return [text for text in (HERE / "flint.sql").read_text().split(";\n") if text.strip()]


@pytest.mark.parametrize("text", _flint())
def test_flint_statement(text):
    statement = parse(text)
    assert statement is not None
    options = {}
    if isinstance(statement, Create):
        options = statement.options
    elif isinstance(statement, Alter) and isinstance(statement.action, SetOptions):
        options = statement.action.options
    assert set(options) <= {option.name for option in OPTIONS}


def test_flint_escapes_are_sparks():
    (text,) = (text for text in _flint() if "id_expression" in text)
    assert parse(text).options["id_expression"] == "sha1(concat_ws('\0', day, status))"


def test_marks_point_into_the_text():
    text = "CREATE SKIPPING INDEX ON /* here */ c.t (a.`b c` MIN_MAX) WHERE x > 1 WITH ('k' 1)"
    statement = parse(text)
    assert {what: text[at:] for what, at in statement.marks.items()} == {
        "table": "c.t (a.`b c` MIN_MAX) WHERE x > 1 WITH ('k' 1)",
        "where": "x > 1 WITH ('k' 1)",
        "with.k": "'k' 1)",
    }
    (column,) = statement.columns
    assert text[column.position :].startswith("a.`b c` MIN_MAX")
    assert column.name == "a.b c"
    assert parse("RECOVER INDEX JOB j").marks == {"job": 18}
    assert parse("SHOW SKIPPING INDEXES IN c").marks == {"scope": 25}


def test_parse_reads_a_text_once():
    text = "CREATE SKIPPING INDEX ON t (a MIN_MAX) -- once"
    assert parse(text) is parse(text)


@pytest.mark.parametrize("params", ["", "(4)"])
@pytest.mark.parametrize(
    "expression", ["-a", "lower(a)", "a + b", "concat(a, /* , */ ')')", "`a b`[1]", "'x'"]
)
def test_parse_finds_the_end_of_an_expression(expression, params):
    text = f"CREATE SKIPPING INDEX ON t (x MIN_MAX, {expression} VALUE_LIST{params}, y MIN_MAX)"
    _, column, _ = parse(text).columns
    assert (column.is_expression, column.kind) == (True, "VALUE_LIST")
    assert text[column.position :].startswith(expression)


def test_statements_are_values():
    text = "CREATE SKIPPING INDEX ON t (a B(x = 1)) WITH (k = 1)"
    assert parse(text) == parse(f"-- elsewhere\n{text}")
    assert hash(parse(text)) == hash(parse(f"-- elsewhere\n{text}"))
    with pytest.raises(TypeError):
        parse(text).options["k"] = 2


def test_schemas_are_known_before_a_statement_runs():
    assert Create.schema == RecoverJob.schema == Refresh(("t",)).schema == ""
    assert Refresh(("t",), dry_run=True).schema == ShowDecisions.schema
    assert Describe(("t",)).schema.startswith("indexed_col_name string, data_type string, skip_t")
    assert Describe(("t",), extended=True).schema == "item string, value string"
    plain = [column.split()[0] for column in Show().schema.split(", ")]
    extended = [column.split()[0] for column in Show(extended=True).schema.split(", ")]
    # The order and names of Flint, so that what reads its answers reads ours.
    flint = ["flint_index_name", "kind", "database", "`table`", "index_name"]
    flint += ["auto_refresh", "status"]
    assert plain[:7] == flint
    assert extended[:8] == [*flint, "error"]
    assert set(plain) <= set(extended)
    assert plain[7:] == ["catalog", "orphan", "index"]


def test_a_deep_condition_is_no_recursion():
    depth = 4_000
    condition = "(" * depth + "a = 1" + ")" * depth
    assert parse(f"CREATE SKIPPING INDEX ON t (a MIN_MAX) WHERE {condition}").where == condition
    with pytest.raises(StatementError, match="more than 50 levels deep"):
        parse(f"CREATE SKIPPING INDEX ON t (a MIN_MAX) WHERE {'NOT ' * 2_000}a = 1")


def test_only_ascii_spells_keywords():
    assert not is_ours("CREATE S\u212aIPPING INDEX ON t (a MIN_MAX)")
    with pytest.raises(StatementError):
        parse("CREATE SKIPPING INDEX ON t (a MIN_MAX) WH\u0415RE a")


def test_pointing_at_the_end_and_beyond():
    assert str(point_at("ab", 2, "m")).endswith("  ab\n    ^")
    assert str(point_at("ab", 99, "m")) == str(point_at("ab", 2, "m"))
    assert str(point_at("", 0, "m")) == "m\nline 1, column 1\n  \n  ^"
    assert str(point_at("a\r\nb c\r\nd", 5, "m")) == "m\nline 2, column 3\n  b c\n    ^"


HEADS = (
    "CREATE SKIPPING INDEX ON t (a MIN_MAX) WHERE ",
    "CREATE SKIPPING INDEX ON t (a MIN_MAX) WITH (",
    "CREATE SKIPPING INDEX ON t (",
    "CREATE SKIPPING INDEX ON ",
    "ALTER SKIPPING INDEX ON t ",
    "SHOW FLINT INDEXES ",
    "RECOVER INDEX JOB ",
    "DESC SKIPPING INDEX on ",
    "",
)
_WORDS = r"""
    a b.c `x``y` ` ' '' " ( ) , ; = => -- /* */ /*+ \ r'\' 5 -5 .5 1e9 1e999 5x true WITH with(
    WHERE IN ON IF NOT EXISTS ADD DROP é '\uD800' {} $ MIN_MAX EXTENDED SKIPPING INDEX
"""
WORDS = st.sampled_from([*_WORDS.split(), "\n", "\t", "\u2003", "\x00"])
# Half of the fuzz is made of the grammar's own pieces, which random characters seldom make.
TEXTS = st.builds(
    lambda head, parts, glue: head + glue.join(parts),
    st.sampled_from(HEADS),
    st.lists(WORDS | st.text(max_size=5), max_size=12),
    st.sampled_from(["", " "]),
)


@given(TEXTS)
def test_no_text_raises_anything_else(text):
    try:
        statement = parse(text)
    except StatementError:
        statement = "wrong"
    assert (statement is not None) == is_ours(text)


def test_a_statement_has_an_end() -> None:
    with pytest.raises(StatementError, match="at most 65,536 characters, not 65,560"):
        parse("DROP SKIPPING INDEX ON t" + ";" * 65_536)


@pytest.mark.parametrize(
    "head", ["EXPLAIN SKIPPING", "EXPLAIN SKIPPING DRY RUN", "verify skipping"]
)
def test_parse_refuses_a_query_that_is_too_long(head: str) -> None:
    query = f"{head} SELECT 1 -- "
    assert parse(query.ljust(1 << 20)) is not None
    with pytest.raises(StatementError, match="at most 1,048,576 characters"):
        parse(query.ljust((1 << 20) + 1))


@given(
    st.sampled_from(["SELECT ", "CREATE ", "create index ", "INSERT INTO ", "(", "DESC TABLE "]),
    st.text(),
)
def test_what_is_sparks_passes(head, text):
    assert parse(head + "x" + text) is None
    assert parse(f"{head}x CREATE SKIPPING INDEX ON t (a MIN_MAX)") is None


NAMES = st.lists(st.text(min_size=1), min_size=1, max_size=4).map(tuple)


def _quoted(name: tuple[str, ...]) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in name)


@given(NAMES, NAMES)
@example(("t",), ("\0",))
def test_names_in_backticks_come_back(table, column):
    create = parse(f"CREATE SKIPPING INDEX ON {_quoted(table)} ({_quoted(column)} MIN_MAX)")
    assert create.table == table
    assert create.columns[0].parts == column
    if all(part.isidentifier() and part.isascii() for part in column):
        assert create.columns[0].name == ".".join(column)


@given(st.text())
def test_strings_come_back(value):
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    doubled = value.replace("\\", "\\\\").replace('"', '""')
    options = parse(f"ALTER SKIPPING INDEX ON t WITH (a = '{escaped}', b \"{doubled}\")").action
    assert options.options == {"a": value, "b": value}


@given(
    st.recursive(
        st.sampled_from(
            [
                *(
                    "a > 1",
                    "`with (` IS NULL",
                    "s = ')'",
                    '"(" <> s',
                    "/* ) */ b = 1",
                    "with_x = 2",
                ),
                *("x -- (\n= 3", "with IN (1, 2)", "s NOT LIKE ')%'"),
            ]
        ),
        lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda c: f"({' OR '.join(c)})"),
        max_leaves=20,
    ),
    st.sampled_from(["", " WITH (build = true)", "\nwith(build false) ;", " -- end"]),
)
def test_conditions_stay_as_written(condition, rest):
    create = parse(f"CREATE SKIPPING INDEX ON t (a MIN_MAX) WHERE a = 1 AND {condition}{rest}")
    assert create.where == f"a = 1 AND {condition}"
    assert ("build" in create.options) == ("build" in rest)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT *\n  FROM t -- of k\n WHERE k = 'a''b'", "SELECT * FROM t WHERE k = ?"),
        ('/* { } */ select r\'\\\', "x\\"y", `k 1` from t1', "select ?, ?, `k 1` from t1"),
        ("SELECT 1, -2.5e3, x'1F', date'2024-01-01'", "SELECT ?, -?, x?, date?"),
        ("SELECT " + "a, " * 60, "SELECT " + ("a, " * 31) + "..."),
        ("SELECT 1.e5, 1.E7D, t1.e5", "SELECT ?, ?, t1.e5"),
        ("SELECT 'never closed", "SELECT"),
    ],
)
def test_first_line_hides_literals(text: str, shown: str) -> None:
    assert first_line(text, values=False) == shown


def test_first_line_shows_values() -> None:
    assert first_line("SELECT 'x',\n 2.5", values=True) == "SELECT 'x', 2.5"
