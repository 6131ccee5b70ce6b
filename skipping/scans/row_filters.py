"""Filter rows beyond a scan's own filter: by join keys, and by expressions of engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from providers.errors import DefinitionError
from providers.keys import Keys, plain_values
from providers.predicate import In, Predicate, Unknown
from providers.values import arrow_type, domain_of, encode
from skipping.filters.arrow import translate
from skipping.filters.polars import is_elementwise, translate_polars
from skipping.lookup.query import IndexQuery
from skipping.parser.literals import join_name, split_parts
from skipping.tables import Columns, TableColumn


@dataclass(frozen=True)
class RowTest:
    """A test of rows, and a predicate that holds for each row that passes.

    `mask` returns for each row of a table whether it passes; null means no. It reads the top-level
    `columns` of the table.
    """

    columns: tuple[str, ...]
    predicate: Predicate
    mask: Callable[[pa.Table], pa.Array | pa.ChunkedArray] = field(repr=False)


@dataclass(frozen=True)
class KeyTest(RowTest):
    """A test that the value of the column `name` is a join key."""

    name: str
    keys: Keys = field(repr=False)


def row_tests(
    row_filter: Any, keys: Mapping[str, Any] | None, columns: Columns, schema: pa.Schema
) -> tuple[Any, tuple[RowTest, ...]]:
    """Split a filter: return what the format's scan evaluates, and row tests for the rest.

    Expressions of Arrow and Polars, and keys (`providers.keys`), become tests. Raises
    DefinitionError for an unknown column or one whose type cannot be compared, TypeError for keys
    that cannot be compared with their column.
    """
    tests = tuple(
        _key_test(columns.resolve(name), given, schema) for name, given in (keys or {}).items()
    )
    if isinstance(row_filter, pc.Expression):
        return "", (_expression_test(row_filter, columns, schema), *tests)
    library = type(row_filter).__module__.partition(".")[0]
    if library == "polars":
        return "", (_polars_test(row_filter, columns, schema), *tests)
    return row_filter, tests


def top_level(columns: Columns, schema: pa.Schema) -> dict[str, TableColumn]:
    """Return the non-struct columns by their names in the rows, with the rows' types."""
    named = ((f, columns.get(join_name([f.name]))) for f in schema)
    return {f.name: replace(column, read_as=f.type) for f, column in named if column is not None}


def _check_names(names: Iterable[str], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            raise DefinitionError(f"no column {name}: there are {', '.join(schema.names)}")


def _expression_test(expression: pc.Expression, columns: Columns, schema: pa.Schema) -> RowTest:
    found = translate(expression, top_level(columns, schema))
    names = schema.names if found.columns is None else sorted(found.columns)
    _check_names(names, schema)
    # Read in the table's order, not in the scan's: `pc.field(0)` is the table's first column.
    read = tuple(name for name in schema.names if name in names) or tuple(schema.names[:1])

    def mask(table: pa.Table) -> pa.Array:
        return acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(table.select(read))),
                acero.Declaration("project", acero.ProjectNodeOptions([expression], ["passes"])),
            ]
        ).to_table(use_threads=False)["passes"]

    return RowTest(read, found.predicate, mask)


def _polars_test(expression: Any, columns: Columns, schema: pa.Schema) -> RowTest:
    import polars as pl

    if not isinstance(expression, pl.Expr):
        raise TypeError(f"the filter is a {type(expression).__name__} of Polars: give a pl.Expr")
    if not is_elementwise(expression):
        raise TypeError(
            "the expression reads more than one row, or may do so: use "
            "index.scan().to_polars().filter(...)"
        )
    names = tuple(dict.fromkeys(expression.meta.root_names()))
    _check_names(names, schema)

    def mask(table: pa.Table) -> pa.Array:
        found = pl.DataFrame(table.select(names or schema.names[:1])).select(passes=expression)
        passes = found["passes"].to_arrow()
        return passes if len(passes) == len(table) else pa.repeat(passes[0], len(table))

    predicate = translate_polars(expression, top_level(columns, schema))
    return RowTest(names or tuple(schema.names[:1]), predicate, mask)


def _key_test(column: TableColumn, given: Any, schema: pa.Schema) -> RowTest:
    rows = leaf_values(schema.empty_table(), column.name).type
    if domain_of(rows) is None:
        raise DefinitionError(column.refusal or f"{column.name} is {column.type}")
    keys = Keys.of(column.name, given, rows)
    indexed = None if column.refusal is not None else arrow_type(column.type)

    def mask(table: pa.Table) -> pa.Array:
        return pa.array(keys.positions(encode(leaf_values(table, column.name))) >= 0)

    top = split_parts(column.name)[0]
    predicate: Predicate = In(column.name, keys.given)
    if indexed is None or domain_of(indexed) != domain_of(rows):
        predicate = Unknown(f"{column.name} is {rows}")
    return KeyTest((top,), predicate, mask, column.name, keys)


def leaf_values(table: pa.Table, name: str) -> pa.Array:
    """Return a leaf column by its dotted name; null if an enclosing struct is. UUIDs are bytes."""
    top, *below = split_parts(name)
    # Chunk by chunk: the values of several dictionaries may not fit one.
    values = plain_values(table[top]).combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # more text than one array holds
        raise DefinitionError(f"{top} has more than 2 GiB of text in one batch")
    return plain_values(pc.struct_field(values, below)) if below else values


def apply_tests(tests: Iterable[RowTest], table: pa.Table) -> pa.Table:
    """Return the rows that pass every test."""
    for test in tests:
        table = table.filter(test.mask(table))
    return table


def find_prunable(index: IndexQuery, tests: Sequence[RowTest], columns: Columns) -> set[Any]:
    """Return the files in which at least one test passes no row. Errors of the index propagate."""
    gone: set[Any] = set()
    for test in tests:
        gone |= index.find_prunable(test.predicate, columns)
    return gone
