"""Update an index to its table. CREATE, REFRESH and every background job call `refresh`.

The files to index are those of a table version that have no entry. If the table's log lists what
changed since the last refresh, only these files are checked. Otherwise, all files are compared with
all entries.
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

from providers.errors import StoreError, first_line
from skipping.indexing.column_sync import current_columns, explain_uncomputable, sync_columns
from skipping.indexing.parquet_reader import SETTLED, Unreadable, read_columns
from skipping.indexing.sketch import Build, Work, is_unread
from skipping.model.definition import Definition, IndexedColumn, State, Status, Versioned
from skipping.progress import progress
from skipping.stores import IDENTITY, IndexStore, find_identities
from skipping.tables import Columns, Table, TableColumn

_CHUNK = 1 << 16
"""Number of files whose partition values become Python objects at a time."""

_CACHED_PARTITIONS = 1 << 10


@dataclass(frozen=True, slots=True)
class MissingSketches:
    """Files, and the columns of the index for which they have no sketch."""

    files: pa.Table
    columns: tuple[IndexedColumn, ...]


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """The sketches that an index lacks to cover a version of its table.

    `columns` are those of the index that the table has now. If `retry`, files that could not be
    read earlier are tried again. `gap` says why an expression cannot be computed here. Plans with
    equal inputs are equal, even if `missing` differs.
    """

    definition: Versioned[Definition]
    columns: tuple[tuple[IndexedColumn, TableColumn], ...]
    state: State
    version: int
    retry: bool
    gap: str | None
    missing: tuple[MissingSketches, ...] = field(default=(), compare=False)

    @property
    def compares_all(self) -> bool:
        """Whether all files have to be compared with all entries."""
        definition = self.definition
        same = self.state.revision == definition.revision and definition.value.where is None
        return self.state.covered is None or not same

    def list_files(self) -> pa.Table:
        """Return path and size of all files to index."""
        files = (each.files.select(["path", "size"]) for each in self.missing)
        return pa.concat_tables([IDENTITY.empty_table().select(["path", "size"]), *files])

    def take_first(self, limit: int | None) -> tuple[Sequence[MissingSketches], int]:
        """Return the first `limit` files, and how many are left."""
        total = sum(len(each.files) for each in self.missing)
        if limit is None or total <= limit:
            return self.missing, 0
        first, remaining = [], limit
        for each in self.missing:
            first.append(replace(each, files=each.files.slice(0, remaining)))
            remaining -= len(first[-1].files)
        return _drop_empty(first), total - limit


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """The result of a refresh: how many files it tried, could not read, and left for later.

    `reason` is the reason for one of the `unread` files.
    """

    plan: RefreshPlan
    tried: int
    unread: int
    reason: str
    left: int

    def to_state(self) -> State:
        """Return the state of the index after this refresh."""
        plan, before = self.plan, self.plan.state
        if self.left and self.unread < self.tried:
            # The refresh that does the rest counts the unread files again.
            unread = before.unread + self.unread
            return replace(_begin(before), left=self.left, unread=unread)
        # If no file could be read, the rest is not tried, and waits, too.
        unread = self.unread + self.left
        if not plan.retry and not plan.compares_all:
            unread += before.unread
        return State(
            "active",
            plan.version,
            self.reason if self.unread else before.error if unread else plan.gap,
            # Once the gap can be computed, all files have to be compared with all entries.
            None if plan.gap else plan.definition.revision,
            time.time(),
            unread=unread,
            retries=before.retries + plan.retry if unread else 0,
            adapted=before.adapted,
            missed=before.missed,
        )


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
    plan: RefreshPlan | None = None,
) -> State:
    """Index all files of the table's newest version; return the new state of the index.

    Args:
        build: Sketches files.
        store: Where the index is stored.
        table: The table to index.
        definition: The definition of the index.
        providers: Further index types that the session has.
        token: The token of the index's lease, if the caller holds it.
        limit: The maximum number of files; the next refresh does the rest (`State.left`).
        until: The version to cover instead of the newest, if the table's versions are ordered.
        retry: Whether to try files again that could not be read earlier. If false, they are
            tried only when they are due (`State.is_retry_due`).
        plan: A plan made earlier, which is used if nothing has changed since.

    Raises any error after it marked the index as failed. A failed index still serves queries,
    because its entries stay valid. Concurrent refreshes are safe.

    """
    index = definition.value.index
    before = store.state(index)
    store.report(index, _begin(before), token=token)
    try:
        columns = table.columns()
        definition = sync_columns(store, definition, columns, providers)
        plan = plan_refresh(
            store,
            table,
            definition,
            before,
            columns,
            providers=providers,
            until=until,
            retry=retry,
            earlier=plan,
        )
        state = _build(build, store, table, plan, providers, token, limit).to_state()
        store.report(index, state, token=token)
    except BaseException as error:  # an interrupt, too
        with suppress(StoreError):  # the first error is the one to raise
            failed = replace(before, status="failed", error=first_line(error))
            store.report(index, failed, token=token)
        raise
    return state


def _begin(state: State) -> State:
    status: Status = "creating" if state.covered is None else "refreshing"
    return replace(state, status=status, error=None)


def plan_refresh(
    store: IndexStore,
    table: Table,
    definition: Versioned[Definition],
    state: State,
    columns: Columns,
    *,
    providers: Sequence[str],
    until: int | None,
    retry: bool,
    earlier: RefreshPlan | None = None,
) -> RefreshPlan:
    """Find the sketches that an index lacks; return `earlier` if its inputs are the same.

    `columns` are the table's. The other arguments are those of `refresh`.
    """
    plan = RefreshPlan(
        definition,
        tuple(current_columns(definition.value, columns, providers)),
        state,
        _target_version(table, state, until),
        state.unread > 0 and (retry or state.is_retry_due(time.time())),
        explain_uncomputable(definition.value, columns),
    )
    if earlier == plan:
        return earlier
    return replace(plan, missing=tuple(_find_missing(store, table, plan)))


def _target_version(table: Table, state: State, until: int | None) -> int:
    newest = table.version()
    if until is None or not table.has_log:
        return newest
    return min(newest, max(until, state.covered or 0))  # never older than the covered version


def _find_missing(store: IndexStore, table: Table, plan: RefreshPlan) -> list[MissingSketches]:
    if not plan.columns:
        return []
    files = None
    if not plan.compares_all and not plan.retry:
        assert plan.state.covered is not None
        files = table.changes(plan.state.covered, plan.version)
    if files is None:
        return _compare_all(store, table, plan)
    files = _filter_parquet(files)
    if not len(files):
        return []
    ordinals = store.ordinals(plan.definition.value.index, files)
    return _drop_empty([_as_new(files.filter(pc.is_null(ordinals)), plan)])


def _compare_all(store: IndexStore, table: Table, plan: RefreshPlan) -> list[MissingSketches]:
    definition, columns = plan.definition.value, [indexed for indexed, _ in plan.columns]
    files = _filter_parquet(table.files(plan.version, where=definition.where))
    flags = [f"{indexed.sketch}_known" for indexed in columns]
    entries = store.catalogue(definition.index, fields=flags).files
    if not len(entries):
        return _drop_empty([_as_new(files, plan)])
    missing = [_as_new(files.filter(find_identities(files, entries).is_null()), plan)]
    for indexed, flag in zip(columns, flags, strict=True):
        lacking = entries.select(IDENTITY.names).filter(entries[flag].is_null())
        # In random order: otherwise, unreadable files come first each time and use up the limit.
        lacking = lacking.take(np.random.permutation(len(lacking)))
        if len(lacking):
            lacking = lacking.filter(find_identities(lacking, files).is_valid())
        missing.append(MissingSketches(lacking, (indexed,)))
    return _drop_empty(missing)


def _as_new(files: pa.Table, plan: RefreshPlan) -> MissingSketches:
    return MissingSketches(without_ordinals(files), tuple(indexed for indexed, _ in plan.columns))


def _filter_parquet(files: pa.Table) -> pa.Table:
    """Drop files of other formats: they get no entry, so queries read them."""
    is_parquet = pc.equal(files["format"], "parquet")
    return files if pc.all(is_parquet).as_py() else files.filter(is_parquet)


def _drop_empty(missing: Sequence[MissingSketches]) -> list[MissingSketches]:
    return [each for each in missing if len(each.files)]


def without_ordinals(files: pa.Table) -> pa.Table:
    """Return a table's files as IDENTITY columns; the ordinals are null."""
    # Many files have the same partition values.
    to_json = lru_cache(_CACHED_PARTITIONS)(lambda pairs: json.dumps(dict(pairs)))
    batches = files.select(["partition"]).to_batches(max_chunksize=_CHUNK)
    partition = [
        pa.array([to_json(tuple(p or ())) for p in batch.column(0).to_pylist()], pa.string())
        for batch in batches
    ]
    return pa.table(
        [
            pa.nulls(len(files), pa.int64()),
            *(files[name] for name in ("path", "size", "stamp")),
            pa.chunked_array(partition, pa.string()),
        ],
        schema=IDENTITY,
    )


def _build(
    build: Build,
    store: IndexStore,
    table: Table,
    plan: RefreshPlan,
    providers: Sequence[str],
    token: int | None,
    limit: int | None,
) -> RefreshResult:
    missing, left = plan.take_first(limit)
    total = sum(len(each.files) for each in missing)
    if total and not table.has_log:
        _wait_for_mtime([each.files for each in missing])
    failed, reason = 0, ""
    definition = plan.definition
    by_number = {indexed.number: column for indexed, column in plan.columns}
    # Only streams hold a lease, and nobody waits for them.
    is_stream = token is not None
    with progress(total, "files", f"index {table.name}", is_background=is_stream) as bar:
        for each in missing:
            work = [Work(i, by_number[i.number], i.provider(providers)) for i in each.columns]
            # Each batch is stored at once, and stays if a later one fails.
            for entries in build(_assign_ordinals(store, definition.value.index, each.files), work):
                store.write(
                    definition.value.index,
                    _drop_unknown_parts(entries, work),
                    revision=definition.revision,
                    token=token,
                )
                bar.update(len(entries))
                unread = entries.filter(is_unread(entries, work))
                if len(unread):
                    first = unread.slice(0, 1).to_pylist()[0]
                    reason = reason or _explain_unread(first, work, build)
                    failed += len(unread)
    files = "file" if failed == 1 else "files"
    reason = f"{failed:,} {files} could not be read, and will be tried again: {reason}"
    return RefreshResult(plan, total, failed, reason, left)


def _drop_unknown_parts(entries: pa.Table, work: Sequence[Work]) -> pa.Table:
    for each in work:
        for part in {stored.part for stored in each.provider.fields()} - {""}:
            sketch = f"{each.indexed.sketch}{part}_"
            if entries[f"{sketch}known"].null_count == len(entries):
                unknown = [name for name in entries.schema.names if name.startswith(sketch)]
                entries = entries.drop_columns(unknown)
    return entries


def _explain_unread(file: Mapping[str, Any], work: Sequence[Work], build: Build) -> str:
    column = work[0].column
    try:
        parts = read_columns(file["path"], [column], size=file["size"], locate=build.locate)
        reason = next((part.reason for part in parts if isinstance(part, Unreadable)), "")
    except Exception as error:
        reason = str(error)
    return f"{file['path']}{': ' if reason else ''}{reason}"


def _wait_for_mtime(files: Sequence[pa.Table]) -> None:
    """Wait until the youngest file is old enough, because the build leaves younger ones unread."""
    youngest = max(pc.max(each["stamp"]).as_py() for each in files) / 1_000
    time.sleep(min(max(youngest + SETTLED + 0.05 - time.time(), 0), SETTLED))


def _assign_ordinals(store: IndexStore, index: str, files: pa.Table) -> pa.Table:
    if not files["ordinal"].null_count:
        return files
    ordinals = store.reserve(index, len(files))
    return files.set_column(0, IDENTITY.field(0), pa.array(ordinals, pa.int64()))
