"""Bring an index up to its table: the one function that CREATE, REFRESH and every job call.

The truth is a difference of states: the files that live at a version, less the files that have
entries. The log only makes finding it cheap; where it has a gap, the states are compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import DefinitionError, StoreError, first_line
from providers.tuples import domain_of_type
from skipping.indexing.parquet_reader import SETTLED, Unreadable, read_columns
from skipping.indexing.sketch import Build, Work, is_unread
from skipping.model.definition import Definition, IndexedColumn, State, Status, Versioned
from skipping.progress import progress
from skipping.stores import IDENTITY, IndexStore, find_identities
from skipping.tables import Columns, Table, TableColumn
from skipping.tables.composites import by_identity, by_name

__all__ = [
    "Missing",
    "Pending",
    "current_columns",
    "find_gaps",
    "find_pending",
    "list_files",
    "refresh",
    "uncomputed",
    "unnumbered",
]

_FILES = 1 << 16  # whose partitions are Python's objects at a time
_SPELLED = 1 << 10  # partitions whose texts are remembered


def refresh(
    build: Build,
    store: IndexStore,
    table: Table,
    definition: Versioned[Definition],
    *,
    providers: Sequence[str] = (),
    token: int | None = None,
    limit: int | None = None,
    until: int | None = None,
    retry: bool = True,
    known: Pending | None = None,
) -> State:
    """Index every file of the version that is newest as this begins; returns when that is so.

    With `limit` no more than so many files: the rest is `State.left` for the next time. With
    `until`, the version to get to is that, where versions count up. `token` is that of the index's
    lease, if the caller has it. Files that could not be read before are tried again, without
    `retry` only when they are due (`State.is_retry_due`). `known` is what was found to do a moment
    ago, and is done if nothing has changed since. Raises what goes wrong, after the index was
    marked as failed: it is still asked, because what it knows stays true. Another refresher at work
    at the same time does no harm.
    """
    index = definition.value.index
    before = store.state(index)
    begun: Status = "refreshing" if before.covered is not None else "creating"
    store.report(index, replace(before, status=begun, error=None), token=token)
    try:
        definition = _brought_up(store, definition, table.columns(), providers)
        pending = find_pending(
            store,
            table,
            definition,
            before,
            providers=providers,
            until=until,
            retry=retry,
            known=known,
        )
        version, retry = pending.version, pending.retry
        some, left = _limited(pending.todo, limit)
        lost, why = _build(build, store, table, definition, some, providers, token)
        tried = sum(len(each.files) for each in some)
        gap = uncomputed(definition.value, table.columns())
        if left and lost < tried:
            still = before.unread + lost  # counted anew by the last step
            state = replace(before, status=begun, error=None, left=left, unread=still)
        else:
            # Where none of those tried could be read, neither may the rest: they wait as well.
            still = lost + left + (0 if retry or _compares(before, definition) else before.unread)
            state = State(
                "active",
                version,
                why if lost else before.error if still else gap,
                # Whoever computes what is missing has to compare all files with all entries.
                None if gap else definition.revision,
                time.time(),
                unread=still,
                retries=before.retries + retry if still else 0,
            )
        store.report(index, state, token=token)
    except BaseException as error:  # an interrupt, too
        with suppress(StoreError):  # what went wrong first is what to say
            failed = replace(before, status="failed", error=first_line(error))
            store.report(index, failed, token=token)
        raise
    return state


def _target_version(table: Table, state: State, until: int | None) -> int:
    """The version to get to: the newest, or `until`, but none before what is covered."""
    newest = table.version()
    if until is None or not table.has_log:
        return newest
    return min(newest, max(until, state.covered or 0))


def current_columns(
    definition: Definition, columns: Columns, providers: Sequence[str] = ()
) -> list[tuple[IndexedColumn, TableColumn]]:
    """The columns of an index as they stand in the table today.

    Left out are columns that are gone, and those that were indexed under another type; what is
    known under it still answers queries of versions that had it. So are expressions that cannot be
    computed here, or are by now others than the definition says (`uncomputed`), and columns that
    their index type does not take, which an earlier release could add. `find_gaps` says why.
    """
    there = {column.identity: column for column in columns.values()}

    def now(indexed: IndexedColumn) -> TableColumn | None:
        if indexed.expression is not None:
            return _computed(indexed, columns)[0]
        return by_identity(indexed, columns) if indexed.parts else there.get(indexed.identity)

    pairs = [(i, now(i)) for i in definition.columns]
    fitting = [(i, column) for i, column in pairs if column and _fits(i, column)]
    return [(i, column) for i, column in fitting if i.misfit(providers) is None]


def uncomputed(definition: Definition, columns: Columns) -> str | None:
    """Why one of the expressions in an index is not computed here; None if all are."""
    reasons = (_computed(i, columns)[1] for i in definition.columns if i.expression)
    return next((reason for reason in reasons if reason), None)


def _computed(indexed: IndexedColumn, columns: Columns) -> tuple[TableColumn | None, str | None]:
    """The column that an expression is now, or why it is none.

    What a store holds may be another expression than the one whose identity queries ask for.
    """
    try:
        column = columns.compute(indexed.name, indexed.expression)
    except DefinitionError as error:
        return None, first_line(error)
    if column.identity != indexed.identity or column.type != indexed.type:
        return None, f"{indexed.name} is not what it was at CREATE: DROP it and ADD it again"
    return replace(column, name=indexed.name), None


def _fits(indexed: IndexedColumn, column: TableColumn) -> bool:
    return column.refusal is None and domain_of_type(column.type) == indexed.domain


def find_gaps(
    definition: Definition, columns: Columns, providers: Sequence[str] = ()
) -> dict[int, str]:
    """Return why files that come now get no sketch, by the number of a column that has none.

    Expressions are not among them: Spark may compute them where this process cannot.
    """
    current = current_columns(definition, columns, providers)
    numbers = {i.number for i, _ in current}
    followed = {(i.name, i.kind, i.params) for i, _ in current}
    return {
        i.number: _gap(i, columns, providers)
        for i in definition.columns
        if i.expression is None
        and i.number not in numbers
        and (i.name, i.kind, i.params) not in followed
    }


def _gap(indexed: IndexedColumn, columns: Columns, providers: Sequence[str]) -> str:
    column = _column_of_name(indexed, columns)
    if column is None:
        return "the table no longer has the column"
    if column.refusal is not None:
        return column.refusal
    return _follow(indexed, column).misfit(providers) or f"the column is {column.type}: refresh"


def _column_of_name(indexed: IndexedColumn, columns: Columns) -> TableColumn | None:
    return by_name(indexed, columns) if indexed.parts else columns.get(indexed.name)


def _follow(indexed: IndexedColumn, column: TableColumn) -> IndexedColumn:
    """The same index type on the column that has the name now."""
    return replace(
        indexed,
        identity=column.identity,
        type=column.type,
        partition=column.partition,
        parts=column.parts,
    )


def _brought_up(
    store: IndexStore,
    definition: Versioned[Definition],
    columns: Columns,
    providers: Sequence[str],
) -> Versioned[Definition]:
    """The definition with its columns as the table has them today.

    A column that was widened into another domain, or dropped and made again under its name, is
    numbered anew; what is known under the old number still answers queries of older versions. Where
    the index type does not take the new column type (NGRAM of an INT), new files are unknown.
    """
    old = definition.value
    today = {
        i.number: replace(i, name=c.name, type=c.type, parts=c.parts)
        for i, c in current_columns(old, columns, providers)
    }
    renamed = tuple(today.get(i.number, i) for i in old.columns)
    followed = {(i.name, i.kind, i.params) for i in today.values()}
    added: list[IndexedColumn] = []
    for indexed in renamed:
        column = _column_of_name(indexed, columns)
        wanted = (indexed.name, indexed.kind, indexed.params)
        if wanted not in followed and column is not None and column.refusal is None:
            made = replace(_follow(indexed, column), number=old.next_number + len(added))
            if made.misfit(providers) is None:
                followed.add(wanted)
                added.append(made)
    new = replace(old, columns=(*renamed, *added))
    if new == old:
        return definition
    return Versioned(new, store.define(new, expect=definition.revision))


@dataclass(frozen=True, slots=True)
class Missing:
    """Files and the sketches they lack."""

    files: pa.Table
    lacking: tuple[IndexedColumn, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """What is to be built for a definition and a state to get to a version.

    Of `columns`, those that the table has today (`current_columns`). `retry`: with what could not
    be read before.
    """

    definition: Versioned[Definition]
    columns: tuple[IndexedColumn, ...]
    state: State
    version: int
    retry: bool
    todo: tuple[Missing, ...] = field(default=(), compare=False)


def find_pending(
    store: IndexStore,
    table: Table,
    definition: Versioned[Definition],
    state: State,
    *,
    providers: Sequence[str],
    until: int | None,
    retry: bool,
    known: Pending | None = None,
) -> Pending:
    """What is to be built; `known`, what was found before, if that is about the same."""
    version = _target_version(table, state, until)
    retry = state.unread > 0 and (retry or state.is_retry_due(time.time()))
    columns = tuple(i for i, _ in current_columns(definition.value, table.columns(), providers))
    wanted = Pending(definition, columns, state, version, retry)
    if known == wanted:
        return known
    return replace(wanted, todo=tuple(_missing(store, table, wanted)))


def _missing(store: IndexStore, table: Table, wanted: Pending) -> list[Missing]:
    """What is to be built: whole entries for new files, single sketches for known ones.

    Where the log tells what came since the version that is covered, the cost is that of what came;
    else, and where there is something to be tried again, the files of the version are compared with
    all entries.
    """
    definition, state, version = wanted.definition, wanted.state, wanted.version
    if not wanted.columns:
        return []
    files = None
    if not _compares(state, definition) and not wanted.retry:
        assert state.covered is not None
        files = table.changes(state.covered, version)
    if files is None:
        return _compared(store, table, definition.value, version, wanted.columns)
    files = _readable(files)
    if not len(files):
        return []
    known = store.ordinals(definition.value.index, files)
    return _worth([Missing(unnumbered(files.filter(pc.is_null(known))), wanted.columns)])


def _compares(state: State, definition: Versioned[Definition]) -> bool:
    """Whether all files have to be compared with all entries."""
    same = state.revision == definition.revision and definition.value.where is None
    return state.covered is None or not same


def list_files(todo: Sequence[Missing]) -> pa.Table:
    """The files of all of it: path and size."""
    files = (each.files.select(["path", "size"]) for each in todo)
    return pa.concat_tables([IDENTITY.empty_table().select(["path", "size"]), *files])


def _compared(
    store: IndexStore,
    table: Table,
    definition: Definition,
    version: int,
    columns: tuple[IndexedColumn, ...],
) -> list[Missing]:
    files = _readable(table.files(version, where=definition.where))
    catalogue = store.catalogue(definition.index, fields=[f"{i.sketch}_known" for i in columns])
    entries = catalogue.files
    if not len(entries):
        return _worth([Missing(unnumbered(files), columns)])
    new = files.filter(find_identities(files, entries).is_null())
    todo = [Missing(unnumbered(new), columns)]
    for indexed in columns:
        lacks = entries[f"{indexed.sketch}_known"].is_null()
        lacking = entries.select(IDENTITY.names).filter(lacks)
        # In any order: of those that cannot be read the same ones must not always come first.
        lacking = lacking.take(np.random.permutation(len(lacking)))
        if len(lacking):
            lacking = lacking.filter(find_identities(lacking, files).is_valid())
        todo.append(Missing(lacking, (indexed,)))
    return _worth(todo)


def _readable(files: pa.Table) -> pa.Table:
    """Those that can be sketched; the others have no entry, so that they are unknown, and read."""
    readable = pc.equal(files["format"], "parquet")
    return files if pc.all(readable).as_py() else files.filter(readable)


def _worth(todo: Sequence[Missing]) -> list[Missing]:
    return [each for each in todo if len(each.files)]


def unnumbered(files: pa.Table) -> pa.Table:
    """Files without an entry, as IDENTITY columns with null ordinals."""
    spelled = lru_cache(_SPELLED)(lambda pairs: json.dumps(dict(pairs)))  # many files have the same
    batches = files.select(["partition"]).to_batches(max_chunksize=_FILES)
    partition = pa.chunked_array(
        [
            pa.array(
                [spelled(tuple(pairs or ())) for pairs in some.column(0).to_pylist()], pa.string()
            )
            for some in batches
        ],
        pa.string(),
    )
    return pa.table(
        [
            pa.nulls(len(files), pa.int64()),
            *(files[name] for name in ("path", "size", "stamp")),
            partition,
        ],
        schema=IDENTITY,
    )


def _limited(todo: Sequence[Missing], limit: int | None) -> tuple[list[Missing], int]:
    """The first `limit` files, and how many are left."""
    total = sum(len(each.files) for each in todo)
    if limit is None or total <= limit:
        return list(todo), 0
    some, room = [], limit
    for each in todo:
        some.append(replace(each, files=each.files.slice(0, room)))
        room -= len(some[-1].files)
    return _worth(some), total - limit


def _build(
    build: Build,
    store: IndexStore,
    table: Table,
    definition: Versioned[Definition],
    todo: Sequence[Missing],
    providers: Sequence[str],
    token: int | None,
) -> tuple[int, str]:
    """Build it; how many files could not be read, and why one of them could not."""
    failed, why = 0, ""
    index = definition.value.index
    current = current_columns(definition.value, table.columns(), providers)
    by_number = {i.number: column for i, column in current}
    total = sum(len(each.files) for each in todo)
    if total and not table.has_log:
        _settle([each.files for each in todo])
    # A stream builds with a token, whenever it likes: nobody waits.
    is_stream = token is not None
    with progress(total, "files", f"index {table.name}", is_background=is_stream) as bar:
        for each in todo:
            work = [Work(i, by_number[i.number], i.provider(providers)) for i in each.lacking]
            # One batch that is written stays, whatever becomes of those after it.
            for entries in build(_numbered(store, index, each.files), work):
                kept = _without_unknown_parts(entries, work)
                store.write(index, kept, revision=definition.revision, token=token)
                bar.update(len(entries))
                lost = entries.filter(is_unread(entries, work))
                if len(lost):
                    why = why or _why(lost.slice(0, 1).to_pylist()[0], work, build)
                    failed += len(lost)
    files = "file" if failed == 1 else "files"
    return failed, f"{failed:,} {files} could not be read, to be tried again: {why}"


def _without_unknown_parts(entries: pa.Table, work: Sequence[Work]) -> pa.Table:
    """Without the columns of those parts of a sketch that no file has: mostly there are none."""
    for each in work:
        for part in {stored.part for stored in each.provider.fields()} - {""}:
            sketch = f"{each.indexed.sketch}{part}_"
            if entries[f"{sketch}known"].null_count == len(entries):
                gone = [name for name in entries.schema.names if name.startswith(sketch)]
                entries = entries.drop_columns(gone)
    return entries


def _why(file: Mapping[str, Any], work: Sequence[Work], build: Build) -> str:
    """Why a file could not be read, as far as it can be seen from here."""
    column = work[0].column
    try:
        parts = read_columns(file["path"], [column], size=file["size"], locate=build.locate)
        reason = next((part.reason for part in parts if isinstance(part, Unreadable)), "")
    except Exception as error:
        reason = str(error)
    return f"{file['path']}{': ' if reason else ''}{reason}"


def _settle(files: Sequence[pa.Table]) -> None:
    """Wait a moment for files that were written just now; the build passes over what is younger."""
    youngest = max(pc.max(each["stamp"]).as_py() for each in files) / 1_000
    time.sleep(min(max(youngest + SETTLED + 0.05 - time.time(), 0), SETTLED))


def _numbered(store: IndexStore, index: str, files: pa.Table) -> pa.Table:
    if not files["ordinal"].null_count:
        return files
    ordinals = store.reserve(index, len(files))
    return files.set_column(0, IDENTITY.field(0), pa.array(ordinals, pa.int64()))
