"""The interface of a store.

A store holds definitions, states and one entry for each file. It knows no index type and no table
format. It returns the files that are *pruned*, never those that remain: if it loses an entry, the
file is read.

Entries are Arrow tables with one row for each file:

======================  ================  ========================================================
column                  type              meaning
======================  ================  ========================================================
``ordinal``             int64             the file's number in this index, from `reserve`
``path``                string            the file's identity, with
``size``                int64             bytes in the table's log, and
``stamp``               int64             record count or time, depending on the format; or null
``partition``           string            the partition values as JSON, for people
``s3_known``            bool              for sketch 3: false = read but unknown, null = not read
                                          yet
``s3_low``, ...         int64, string,    its SCALAR fields, and as lists its TERMS fields
                        binary, list
``s3_filter``, ...      large_binary      its BYTES fields, which no store compares or sorts
======================  ================  ========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import NoStore
from providers.index_predicate import Test
from skipping.model.definition import Definition, IndexId, Revision, State, TableId, Versioned
from skipping.model.lease import Lease
from skipping.model.workload import MOST_RECORDS, WorkloadRecord

Generation: TypeAlias = int
"""Grows with each change of an index's entries. Equal generations have equal entries (`epochs`)."""

IDENTITY = pa.schema(
    [
        ("ordinal", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("stamp", pa.int64()),
        ("partition", pa.string()),
    ]
)
"""The columns every entry has."""


Identity: TypeAlias = tuple[str, int, int | None]
"""Path, size and stamp, which together identify a file."""


def identities(files: pa.Table) -> Iterator[Identity]:
    """Return the identity of each file."""
    return zip(*(files[name].to_pylist() for name in ("path", "size", "stamp")), strict=True)


def find_identities(files: pa.Table, among: pa.Table) -> pa.Array:
    """Return for each file its row number in `among` (int32), or null.

    A million files take about half a second.

    >>> some = pa.table({"path": ["a", "b"], "size": [1, 2], "stamp": pa.array([None, 3])})
    >>> find_identities(some.slice(1), some).to_pylist()
    [1]
    """
    found = pc.index_in(identity_keys(files), value_set=identity_keys(among).combine_chunks())
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def identity_keys(files: pa.Table) -> pa.ChunkedArray:
    """Return each file's identity as one text. Texts are equal only for equal identities."""
    size, stamp, path = (files[name].cast(pa.large_string()) for name in ("size", "stamp", "path"))
    space = pa.scalar(" ", pa.large_string())
    return pc.binary_join_element_wise(size, pc.fill_null(stamp, "-"), path, space)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The entries of an index, or their changes since a generation.

    `below` is greater than each ordinal. A caller passes it on when it looks up these files, so
    that the store ignores files that were added later. `files` has the IDENTITY columns and the
    requested fields; `removed` has the ordinals removed since the generation. While a store still
    reads, a partial result (not `whole`) has some of the entries, in any order.
    """

    generation: Generation
    below: int
    files: pa.Table
    removed: pa.Array
    whole: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of `files` in memory."""
        return int(self.files.nbytes)

    def after(self, change: Catalogue) -> Catalogue:
        """Return these entries with the changes since their generation applied."""
        if change.generation == self.generation:
            return self
        ordinals = change.files["ordinal"].combine_chunks()
        gone = pa.concat_arrays([change.removed.cast(pa.int64()), ordinals])
        known = pc.is_in(self.files["ordinal"], value_set=gone)
        # Usually files were only added: then nothing is copied.
        stay = self.files.filter(pc.invert(known)) if pc.any(known).as_py() else self.files
        files = pa.concat_tables([stay, change.files], promote_options="default")
        below = max(self.below, change.below)
        return Catalogue(change.generation, below, files, pa.array([], pa.int64()))


OnProgress: TypeAlias = Callable[[Callable[[], Catalogue]], object]
"""Receives a function that returns the entries read so far, as a partial result."""


class IndexStore(Protocol):
    """The methods of a store. Each raises StoreError when it fails.

    Several threads and processes can use a store at once.
    """

    @property
    def location(self) -> str:
        """The address of the store, without secrets."""

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        """Return every definition, dropped ones included until they are erased.

        Raises StoreError after `timeout` seconds; None stands for the store's default.
        """

    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        """Return the definition of an index, dropped or not; None if it does not exist.

        The cost does not depend on the number of indexes. Raises StoreError as `definitions` does.
        """

    def live_definition(
        self, table: TableId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        """Return the definition of the live index of a table; None if it has no valid one.

        The cost does not depend on the number of indexes. Raises StoreError as `definitions` does.
        """

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        """Write a definition if its revision still is `expect` (None: the index is new).

        Raises Conflict if it is not, and for a second live index on one table (`TableId`). The
        store may delete the entries of a dropped index, and the sketches of a removed column.
        """

    def state(self, index: IndexId) -> State:
        """Return the state that was reported last."""

    def report(self, index: IndexId, state: State, *, token: int | None = None) -> None:
        """Write the state. The last report wins.

        Raises Conflict for the token of an owner that no longer holds the lease.
        """

    def lease(self, index: IndexId, *, timeout: float | None = None) -> Lease:
        """Return the lease of the index. `timeout` as in `definitions`."""

    def hold(
        self, index: IndexId, lease: Lease, *, expect: Lease, timeout: float | None = None
    ) -> None:
        """Write a lease if it still is `expect`; raise Conflict if not.

        After a StoreError the lease may or may not be written. `timeout` as in `definitions`.
        """

    def reserve(self, index: IndexId, n: int) -> range:
        """Reserve `n` ordinals. No other call ever gets one of them."""

    def write(
        self, index: IndexId, entries: pa.Table, *, revision: Revision, token: int | None = None
    ) -> None:
        """Add entries and sketches, all or nothing. An entry keeps its ordinal.

        A row with a new identity (path, size, stamp) becomes an entry under its ordinal. A row with
        the ordinal *and* identity of an entry adds the sketches that the entry does not have
        (`known` is null); a stored sketch never changes. A row whose identity has another ordinal
        lost a race and is ignored. Raises Conflict if the definition's revision is not `revision`
        or the index was dropped, because the sketches may then mean something else; and for the
        token of an owner that no longer holds the lease.
        """

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        """Remove entries. Their ordinals are not used again."""

    def erase(self, index: IndexId) -> None:
        """Delete a dropped index. Its id is not used again."""

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Catalogue:
        """Return the entries, or those that changed after generation `since`.

        `fields` names SCALAR fields and `known` flags by their full names, such as `s3_low` and
        `s3_known`; a field without values is a column of nulls. Raises StoreError after `timeout`
        seconds (None: the store's default) and for an erased index, and Rewound if `since` is not
        among the generations that the store remembers.
        While a store reads all entries, it may call `on_progress` with those read so far, for
        callers that cannot wait for the rest.
        """

    def size(self, index: IndexId) -> int | None:
        """Return roughly the bytes of its entries in the store; None if unknown."""

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        """Yield all entries with all their sketches, in tables that `write` accepts.

        Lists are sets here: an empty list may come back as null, and the order is lost.
        """

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        """Return the ordinal of each file (path, size and stamp as in FILES), or null.

        The cost depends only on the number of these files.
        """

    def find_prunable(
        self,
        index: IndexId,
        tests: Sequence[Test],
        *,
        below: int,
        timeout: float,
        generation: Generation | None = None,
    ) -> Sequence[BitMap]:
        """Return for each test the ordinals under `below` whose sketch is known and fails the test.

        `generation` is that of the entries from which the caller has the ordinals. Raises
        StoreError after `timeout` seconds, and Rewound if the store does not remember the
        generation. A test that the store cannot evaluate prunes nothing. So may one that takes too
        long, if the store has evaluated others by then.
        """

    def record_workload(
        self, record: WorkloadRecord, *, oldest: date, timeout: float | None = None
    ) -> None:
        """Write what a driver counted on a day; replace its earlier record of that day.

        The store may delete the records that `list_old_keys` returns. Raises NoStore before the
        first index is created, and StoreError without write permission and after `timeout` seconds.
        """

    def workload(
        self,
        *,
        since: date,
        until: date,
        most: int = MOST_RECORDS,
        timeout: float | None = None,
    ) -> Sequence[WorkloadRecord]:
        """Return the records of these days, at most the newest `most`.

        Records that no release writes are left out. Raises StoreError as `record_workload` does.
        """


def list_definitions(
    store: IndexStore, *, timeout: float | None = None
) -> Sequence[Versioned[Definition]]:
    """Return every definition in a store; empty if nothing was created yet."""
    try:
        return store.definitions(timeout=timeout)
    except NoStore:
        return ()
