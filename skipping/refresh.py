"""Bring an index up to its table: the one function that CREATE, REFRESH and every job call.

The truth is a difference of states: the files that live at a version, less the files that have
entries. The log only makes finding it cheap; where it has a gap, the states are compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from providers.values import arrow_type, domain_of
from skipping.definition import Definition, IndexedColumn, State, Versioned
from skipping.reading import SETTLED
from skipping.sketching import Build, Work
from skipping.stores import IDENTITY, Catalogue, IndexStore, identities
from skipping.tables import Columns, Table, TableColumn

__all__ = ["current", "refresh"]


def refresh(
    build: Build,
    store: IndexStore,
    table: Table,
    definition: Versioned[Definition],
    *,
    providers: Sequence[str] = (),
) -> State:
    """Index every file of the version that is newest as this begins; returns when that is so.

    Raises what goes wrong, after the index was marked as failed: it is still asked, because what
    it knows stays true. Another refresher at work at the same time does no harm.
    """
    index = definition.value.index
    covered = store.state(index).covered
    store.report(index, State("refreshing" if covered is not None else "creating", covered))
    try:
        version = table.version()
        definition = _brought_up(store, definition, table.columns())
        missing = _missing(store, table, definition.value, version, covered)
        _build(build, store, table, definition, missing, providers)
    except Exception as error:
        store.report(index, State("failed", covered, str(error)))
        raise
    state = State("active", version)
    store.report(index, state)
    return state


def current(definition: Definition, columns: Columns) -> list[tuple[IndexedColumn, TableColumn]]:
    """The columns of an index as they stand in the table today.

    Left out are columns that are gone, and those that were indexed under another type; what is
    known under it still answers queries of versions that had it.
    """
    by_identity = {column.identity: column for column in columns.values()}
    pairs = [(i, by_identity.get(i.identity)) for i in definition.columns]
    return [(i, column) for i, column in pairs if column and _fits(i, column)]


def _fits(indexed: IndexedColumn, column: TableColumn) -> bool:
    arrow = arrow_type(column.type)
    return column.refusal is None and arrow is not None and domain_of(arrow) == indexed.domain


def _brought_up(
    store: IndexStore, definition: Versioned[Definition], columns: Columns
) -> Versioned[Definition]:
    """The definition with its columns as the table has them today.

    A column that was widened into another domain, or dropped and made again under its name, is
    numbered anew; what is known under the old number still answers queries of older versions.
    """
    old = definition.value
    today = {i.number: replace(i, name=c.name, type=c.type) for i, c in current(old, columns)}
    renamed = tuple(today.get(i.number, i) for i in old.columns)
    followed = {(i.name, i.kind, i.params) for i in today.values()}
    added: list[IndexedColumn] = []
    for indexed in renamed:
        column = columns.get(indexed.name)
        wanted = (indexed.name, indexed.kind, indexed.params)
        if wanted not in followed and column is not None and column.refusal is None:
            followed.add(wanted)
            added.append(
                replace(
                    indexed,
                    number=1 + max(i.number for i in (*renamed, *added)),
                    identity=column.identity,
                    type=column.type,
                    partition=column.partition,
                )
            )
    new = replace(old, columns=(*renamed, *added))
    if new == old:
        return definition
    return Versioned(new, store.define(new, expect=definition.revision))


@dataclass(frozen=True, slots=True)
class _Missing:
    """Files and the sketches they lack."""

    files: pa.Table
    lacking: tuple[IndexedColumn, ...]


def _missing(
    store: IndexStore, table: Table, definition: Definition, version: int, covered: int | None
) -> list[_Missing]:
    """What is to be built: whole entries for new files, single sketches for known ones."""
    columns = tuple(i for i, _ in current(definition, table.columns()))
    catalogue = store.catalogue(definition.index, fields=[f"{i.sketch}_known" for i in columns])
    entries = catalogue.files
    lacks = [(i, entries.filter(entries[f"{i.sketch}_known"].is_null())) for i in columns]
    files = None
    if covered is not None and definition.where is None and not any(len(f) for _, f in lacks):
        files = table.changes(covered, version)
    if files is None:
        files = table.files(version, where=definition.where)
    # Files of other formats have no entry: they are unknown, and read.
    files = files.filter(pc.equal(files["format"], "parquet"))
    missing = [_Missing(_without(files, catalogue), columns)]
    live = set(identities(files))
    for indexed, lacking in lacks:
        still_live = lacking.filter(pa.array([i in live for i in identities(lacking)], pa.bool_()))
        missing.append(_Missing(still_live.select(IDENTITY.names), (indexed,)))
    return [m for m in missing if len(m.files) and m.lacking]


def _without(files: pa.Table, catalogue: Catalogue) -> pa.Table:
    """The files that have no entry, as IDENTITY columns with null ordinals."""
    known = set(identities(catalogue.files))
    new = files.filter(pa.array([i not in known for i in identities(files)], pa.bool_()))
    partition = [json.dumps(dict(pairs or ())) for pairs in new["partition"].to_pylist()]
    return pa.table(
        [
            pa.nulls(len(new), pa.int64()),
            *(new[name] for name in ("path", "size", "stamp")),
            pa.array(partition, pa.string()),
        ],
        schema=IDENTITY,
    )


def _build(
    build: Build,
    store: IndexStore,
    table: Table,
    definition: Versioned[Definition],
    missing: Sequence[_Missing],
    providers: Sequence[str],
) -> None:
    index = definition.value.index
    by_number = {i.number: column for i, column in current(definition.value, table.columns())}
    total = sum(len(m.files) for m in missing)
    if total and not table.logged:
        _settle([m.files for m in missing])
    # disable=None shows the bar on a terminal only, and only where there is something to wait for.
    with tqdm(total=total, unit="file", desc=f"index {table.name}", disable=None) as bar:
        for each in missing:
            work = [Work(i, by_number[i.number], i.provider(providers)) for i in each.lacking]
            for entries in build(_numbered(store, index, each.files), work):
                store.write(index, entries, revision=definition.revision)
                bar.update(len(entries))


def _settle(files: Sequence[pa.Table]) -> None:
    """Wait a moment for files that were written just now; the build passes over what is younger."""
    youngest = max(pc.max(each["stamp"]).as_py() for each in files) / 1_000
    time.sleep(min(max(youngest + SETTLED + 0.05 - time.time(), 0), SETTLED))


def _numbered(store: IndexStore, index: str, files: pa.Table) -> pa.Table:
    if not files["ordinal"].null_count:
        return files
    ordinals = store.reserve(index, len(files))
    return files.set_column(0, IDENTITY.field(0), pa.array(ordinals, pa.int64()))
