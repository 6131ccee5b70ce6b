"""Create, find, change and drop definitions, and carry them over to a replaced table."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from itertools import chain

from providers.base import Param
from providers.errors import Conflict, DefinitionError, NoIndex, NoStore
from providers.registry import find
from skipping.config.options import IndexOptions
from skipping.indexing.column_sync import find_by_name, move_to
from skipping.model.decision import Decision
from skipping.model.definition import (
    COMPOSITE,
    EXPRESSION,
    Definition,
    IndexedColumn,
    IndexId,
    Versioned,
)
from skipping.model.identifiers import shown_name, sql_name
from skipping.parser.literals import join_name, split_parts
from skipping.parser.statements import ColumnDrop, ColumnSpec
from skipping.stores import IndexStore
from skipping.stores.open import missing_folder
from skipping.tables import Columns, Table, TableColumn
from skipping.tables.composites import combine

log = logging.getLogger("skipping")


def define_index(
    store: IndexStore,
    table: Table,
    specs: Sequence[ColumnSpec],
    *,
    providers: Sequence[str],
    where: str | None = None,
    options: IndexOptions | None = None,
    timeout: float | None = None,
) -> Versioned[Definition]:
    """Store the definition of a new index, without entries.

    Raises DefinitionError if it is invalid, and Conflict if the table has an index.
    """
    columns = table.columns()
    indexed = number_columns(specs, columns, providers)
    _require_answerable(table, where)
    if (old := find_live_index(store, table, timeout=timeout)) is not None:
        _require_readable(old.value)
        # Also if the table was replaced since: REFRESH carries its index over.
        raise Conflict(
            f"{shown_name(table.name)} already has an index: if_not_exists=True keeps it, "
            "and SkippingIndex.on(...) opens it for add, refresh or drop"
        )
    pairs = () if options is None else options.pairs()
    if dict(pairs).get("index_settings") and not getattr(store, "has_index_settings", False):
        raise DefinitionError(
            f"index_settings requires a store in OpenSearch; this store is {store.location}",
            about="with.index_settings",
        )
    definition = Definition(str(uuid.uuid4()), table.id, table.name, indexed, where, pairs)
    definition.require_sound()
    if folder := missing_folder(store):
        log.warning("creating the missing folder of the index store: folder=%s", folder)
    revision = store.define(definition, expect=None)
    warn_of_own_pruning(indexed, columns)
    return Versioned(definition, revision)


def find_index(
    store: IndexStore, table: Table, *, likely: IndexId | None = None, timeout: float | None = None
) -> Versioned[Definition]:
    """Return the result of `find_live_index`, or raise NoIndex with the statement to run."""
    found = find_live_index(store, table, likely=likely, timeout=timeout)
    if found is not None:
        _require_readable(found.value)
        return found
    name, moved = shown_name(table.name), None
    with suppress(NoStore):
        moved = _find_moved_index(store, table, timeout=timeout)
    todo = f"CREATE SKIPPING INDEX ON {name} (column TYPE)"
    if moved is not None:
        todo = (
            f"{shown_name(moved.name)} has one; this table is that one, renamed or copied "
            f"from {moved.table.root}. If it was renamed: {_moved_hint(moved, name)}"
        )
    raise NoIndex(f"{name} has no skipping index in {store.location}: {todo}", about="table")


def number_columns(
    specs: Sequence[ColumnSpec], columns: Columns, providers: Sequence[str], *, first: int = 1
) -> tuple[IndexedColumn, ...]:
    """Return the columns of a definition, numbered from `first` on.

    Raises DefinitionError for a column that cannot be indexed.
    """
    made: list[IndexedColumn] = []
    for number, spec in enumerate(specs, start=first):
        with _at(spec.position):
            column = resolve_column(spec, columns)
            if column.index_refusal is not None:
                raise DefinitionError(column.index_refusal)
            if not column.reads and column.identity.startswith((EXPRESSION, COMPOSITE)):
                begins = f"{EXPRESSION} or {COMPOSITE}"
                raise DefinitionError(f"a column whose name begins with {begins} cannot be indexed")
        with _at(spec.kind_position):
            indexed = _make_column(number, spec, column, providers)
            if any((m.of, m.kind) == (indexed.of, indexed.kind) for m in made):
                raise DefinitionError(f"{indexed.name} {indexed.kind} is given twice")
            made.append(indexed)
    return tuple(made)


def resolve_column(given: ColumnSpec | ColumnDrop, columns: Columns) -> TableColumn:
    """Return the column, expression or columns of a statement; raise DefinitionError for others."""
    if given.is_expression:
        return columns.compute(given.name)
    if given.composite:
        return combine([columns.resolve(join_name(name)) for name in given.composite])
    return columns.resolve(given.name)


def warn_of_own_pruning(indexed: Sequence[IndexedColumn], columns: Columns) -> None:
    """Log a warning for each column by which the table itself prunes files."""
    there = {column.identity: column for column in columns.values()}
    identities = (
        identity
        for i in indexed
        if i.kind
        != "PARTITION"  # it requires a partition column: the warning would say nothing new
        for identity in ([read for _, read in i.expression.reads] if i.expression else [i.identity])
    )
    for identity in dict.fromkeys(identities):
        column = there.get(identity)
        if column is None:
            continue
        if column.partition:
            log.warning("%s is a partition column: the table itself skips files by it", column.name)
        for made in column.partitioning.transforms:
            log.warning(
                "the table is partitioned by %s: it already skips files for some conditions on "
                "%s. An index also skips files within a partition. ANALYZE measures how many",
                made,
                column.name,
            )


def _require_answerable(table: Table, where: str | None) -> None:
    try:
        if where is not None:
            table.files(where=where)
    except DefinitionError as error:
        error.about = "where"
        raise


def find_live_index(
    store: IndexStore, table: Table, *, likely: IndexId | None = None, timeout: float | None = None
) -> Versioned[Definition] | None:
    """Return the live index of a table, or else of an earlier table with its name.

    `likely` is an index id to try first. Other indexes are listed only if the table has none.
    Raises StoreError, at the latest after `timeout` seconds.
    """
    until = None if timeout is None else time.monotonic() + timeout
    try:
        there = None if likely is None else store.definition(likely, timeout=timeout)
        if there is not None and there.value.table == table.id and _is_sound(there.value):
            return there
        timeout = None if until is None else max(0.0, until - time.monotonic())
        if (now := store.live_definition(table.id, timeout=timeout)) is not None:
            return now
        timeout = None if until is None else max(0.0, until - time.monotonic())
        live = [d for d in store.definitions(timeout=timeout) if not d.value.dropped]
    except NoStore:
        return None
    id = table.id
    sound = [d for d in live if d.value.table.format == id.format and _is_sound(d.value)]
    before = (d for d in sound if d.value.name == table.name)
    faulty = (d for d in live if d.value.fault and table.name == d.value.name)
    return next(chain(before, faulty), None)


def _find_moved_index(
    store: IndexStore, table: Table, *, timeout: float | None = None
) -> Definition | None:
    """Return the index that a table had at another root, before it was renamed or copied.

    Spark moves the files of a managed Delta table that is renamed, but the table keeps its id.
    """
    id = table.id
    live = (d.value for d in store.definitions(timeout=timeout) if _is_sound(d.value))
    return next(
        (d for d in live if id.id and (d.table.format, d.table.id) == (id.format, id.id)), None
    )


def orphan_hint(definition: Definition) -> str:
    """Return what to do about an index if no table has its table's name."""
    return (
        f"If the table was renamed: {_moved_hint(definition, '<its new name>')}. If it is gone: "
        f"DROP SKIPPING INDEX ON {shown_name(definition.name)}"
    )


def _moved_hint(definition: Definition, new: str) -> str:
    listed = ", ".join(_column_sql(column) for column in definition.columns)
    columns = "AUTO" if definition.is_automatic else f"({listed})"
    old = shown_name(definition.name)
    return f"CREATE SKIPPING INDEX ON {new} {columns}, then DROP SKIPPING INDEX ON {old}"


def _column_sql(column: IndexedColumn) -> str:
    if column.expression is not None:
        name = column.expression.sql
    else:
        names = [part for part, _ in column.parts] or [column.name]
        name = ", ".join(sql_name(split_parts(each)) for each in names)
        name = f"({name})" if column.parts else name
    params = ", ".join(f"{key} = {_literal(value)}" for key, value in column.params)
    return f"{name} {column.kind}({params})" if params else f"{name} {column.kind}"


def _literal(value: Param) -> str:
    if isinstance(value, str):
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    return str(value).lower()


def _is_sound(definition: Definition) -> bool:
    return not definition.dropped and definition.fault is None


def _require_readable(definition: Definition) -> None:
    """Raise DefinitionError if the stored definition is invalid."""
    if definition.fault is not None:
        raise DefinitionError(
            f"the skipping index of {definition.name} cannot be used: {definition.fault}. "
            "DROP it, and CREATE it again",
            about="table",
        )


def reload_definition(store: IndexStore, old: Versioned[Definition]) -> Versioned[Definition]:
    """Return the stored definition; raise DefinitionError if it was erased."""
    found = store.definition(old.value.index)
    if found is None:
        raise dropped_error(old.value)
    _require_readable(found.value)
    return found


def dropped_error(definition: Definition) -> DefinitionError:
    """Return the error for an index that was dropped."""
    name = definition.name
    return DefinitionError(f"the skipping index of {name} was dropped meanwhile", about="table")


def alter_definition(
    store: IndexStore, old: Versioned[Definition], change: Callable[[Definition], Definition]
) -> Versioned[Definition]:
    """Change the stored definition; raise DefinitionError if it was dropped."""
    while True:
        old = reload_definition(store, old)
        if old.value.dropped:
            raise dropped_error(old.value)
        new = change(old.value)
        if new == old.value:
            return old
        with suppress(Conflict):  # another process changed it meanwhile
            return Versioned(new, store.define(new, expect=old.revision))


def carry_over(
    store: IndexStore, old: Versioned[Definition], table: Table, providers: Sequence[str] = ()
) -> Versioned[Definition]:
    """Define the index for the table that replaced the old one, and drop the old definition."""
    new = _adapt_definition(old.value, table, providers)
    try:
        carried = Versioned(new, store.define(new, expect=None))
    except Conflict:  # another process did
        found = find_live_index(store, table)
        if found is None or found.value.table != table.id:
            raise
        carried = found
    with suppress(Conflict):  # as above
        store.define(replace(old.value, dropped=True), expect=old.revision)
    return carried


def _adapt_definition(old: Definition, table: Table, providers: Sequence[str]) -> Definition:
    """Return the definition for the table that replaced the old one; columns match by name.

    A column keeps its old type, and is unknown, if the index type does not support its new type.
    Raises DefinitionError if the table has none of the columns.
    """
    columns = table.columns()
    carried: list[IndexedColumn] = []
    added, today = old.automatic_columns, datetime.now(timezone.utc).date()
    decisions: list[Decision] = []
    for i in {(i.name, i.kind, i.params): i for i in old.columns}.values():
        column = _find_same_name(i, columns)
        if column is None or column.index_refusal is not None:
            continue
        made = replace(move_to(i, column), number=len(carried) + 1, expression=column.expression)
        if decision := added.get((i.identity, i.kind)):
            # Nothing is known about queries on the new table: the days begin again.
            decisions.append(replace(decision, identity=made.identity, day=today))
        carried.append(replace(made, type=i.type) if made.misfit(providers) else made)
    if not carried and not old.is_automatic:
        raise DefinitionError(
            f"{old.name} was replaced and no longer has any of the indexed columns: "
            "drop its skipping index and create another"
        )
    return replace(
        old,
        index=str(uuid.uuid4()),
        table=table.id,
        columns=tuple(carried),
        numbers=0,
        decisions=tuple(decisions),
    )


def _find_same_name(indexed: IndexedColumn, columns: Columns) -> TableColumn | None:
    if indexed.expression is None:
        return find_by_name(indexed, columns)
    try:
        # A stored expression must pass the checks of CREATE, with the settings of this session.
        return columns.compute(indexed.expression.sql)
    except DefinitionError:
        return None


@contextmanager
def _at(position: int) -> Iterator[None]:
    """Add to a DefinitionError the position of the wrong word in the text."""
    try:
        yield
    except DefinitionError as error:
        error.position = position
        raise


def _make_column(
    number: int, spec: ColumnSpec, column: TableColumn, providers: Sequence[str]
) -> IndexedColumn:
    kind = find(spec.kind, providers)
    names = kind.signature(spec.positional)
    if len(spec.positional) > len(names):
        takes = f"takes {', '.join(names)}" if names else "takes no parameter"
        raise DefinitionError(f"{kind.kind} {takes}, not {len(spec.positional)} values")
    params = dict(zip(names, spec.positional, strict=False))
    if twice := params.keys() & spec.named.keys():
        raise DefinitionError(f"{kind.kind}: {', '.join(sorted(twice))} is given twice")
    params.update(spec.named)
    indexed = IndexedColumn(
        number,
        column.name,
        column.identity,
        column.type,
        kind.kind,
        tuple(sorted(params.items())),
        column.partition,
        column.expression,
        column.parts,
    )
    indexed.provider(
        providers
    )  # raises for a parameter or type that the index type does not support
    return indexed


def add_columns(
    definition: Definition,
    specs: Sequence[ColumnSpec],
    columns: Columns,
    providers: Sequence[str],
    *,
    by_user: bool = True,
) -> Definition:
    """Add columns or index types; raise DefinitionError for duplicates and unsupported ones.

    If they are added `by_user`, a column that the index chose counts as the user's from now on.
    """
    new = number_columns(specs, columns, providers, first=definition.next_number)
    there = {(i.of, i.kind): i for i in definition.columns}
    automatic = definition.automatic_columns
    added = []
    for indexed, spec in zip(new, specs, strict=True):
        existing = there.get((indexed.of, indexed.kind))
        if existing is None:
            added.append(indexed)
        elif (
            by_user and (existing.identity, existing.kind) in automatic
        ):  # now a user has chosen it
            left = [i for i in definition.columns if i is not existing]
            definition = definition.keep_columns(left)
            added.append(existing if existing.params == indexed.params else indexed)
        else:
            raise DefinitionError(
                f"{indexed.name} {indexed.kind} is in the index already: DROP it first",
                position=spec.kind_position,
            )
    return replace(definition, columns=(*definition.columns, *added))


def drop_columns(
    definition: Definition, drops: Sequence[ColumnDrop], columns: Columns, providers: Sequence[str]
) -> Definition:
    """Remove columns or index types; raise DefinitionError for one that the index does not have.

    `drops` have the table's current column names; for a column that the table has dropped, the name
    in the index.
    """
    left = definition.columns
    for drop in drops:
        kind = None if drop.kind is None else find(drop.kind, providers).kind
        gone = [i for i in left if _is(i, drop, columns) and kind in (None, i.kind)]
        if not gone:
            what = drop.name if drop.kind is None else f"{drop.name} {drop.kind}"
            there = ", ".join(f"{i.name} {i.kind}" for i in left)
            raise DefinitionError(
                f"{what} is not in the index: there are {there}", position=drop.position
            )
        left = tuple(i for i in left if i not in gone)
    if not left and not definition.is_automatic:
        raise DefinitionError(
            "the index would have no columns: use DROP SKIPPING INDEX", about="table"
        )
    return definition.keep_columns(left)


def drop_kind(definition: Definition, kind: str) -> Definition:
    """Return the definition without an index type, on all columns."""
    return definition.keep_columns([i for i in definition.columns if i.kind != kind])


def set_options(definition: Definition, given: Mapping[str, Param]) -> Definition:
    """Change these options and keep the others; raise DefinitionError for an invalid one."""
    IndexOptions.of(given, alter=True)
    options = IndexOptions.of({**dict(definition.options), **given})
    return replace(definition, options=options.pairs())


def _is(indexed: IndexedColumn, drop: ColumnDrop, columns: Columns) -> bool:
    if drop.is_expression or indexed.expression is not None:
        return drop.is_expression and indexed.name == drop.name
    if bool(drop.composite) != bool(indexed.parts):
        return False
    if indexed.name.lower() == drop.name.lower():
        return True  # also an earlier column of this name, which was dropped and added again
    try:
        column = resolve_column(drop, columns)
    except DefinitionError:
        return False
    return indexed.of == frozenset(part.identity for part in column.reads or (column,))
