"""Where indexes are kept: the interface of a store, and what may be asked of it.

A store keeps definitions, states and one entry a file. It knows no index kind and no table format.
It says which files are *pruned*, never which survive: an entry it lost is a file that is read.

Entries travel as Arrow tables, one row a file:

======================  ================  ========================================================
column                  type              meaning
======================  ================  ========================================================
``ordinal``             int64             the file's number in this index, from `reserve`
``path``                string            the file's identity, with
``size``                int64             bytes in the table's log, and
``stamp``               int64             what else the format has: record count, time; or null
``partition``           string            the partition values as JSON, for people
``s3_known``            bool              of sketch 3: false = looked at and unknown, null = not
                                          looked at yet
``s3_low``, ...         int64, string,    its SCALAR fields, and as lists its TERMS fields
                        binary, list
``s3_filter``, ...      large_binary      its BYTES fields: what no store compares or sorts by
======================  ================  ========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.index_predicate import Test
from skipping.model.definition import Definition, IndexId, Revision, State, Versioned
from skipping.model.lease import Lease

__all__ = [
    "IDENTITY",
    "Catalogue",
    "Generation",
    "Identity",
    "IndexStore",
    "Told",
    "find_identities",
    "identities",
]

Generation: TypeAlias = int
"""Grows with the changes of an index's entries; equal ones mean equal entries (`generations`)."""

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
"""What tells a file apart: path, size and stamp."""


def identities(files: pa.Table) -> Iterator[Identity]:
    """That of each file."""
    return zip(*(files[name].to_pylist() for name in ("path", "size", "stamp")), strict=True)


def find_identities(files: pa.Table, among: pa.Table) -> pa.Array:
    """Where each file is among those: int32, null where it is not. Of millions in a second or so.

    >>> some = pa.table({"path": ["a", "b"], "size": [1, 2], "stamp": pa.array([None, 3])})
    >>> find_identities(some.slice(1), some).to_pylist()
    [1]
    """
    found = pc.index_in(_to_keys(files), value_set=_to_keys(among).combine_chunks())
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _to_keys(files: pa.Table) -> pa.ChunkedArray:
    """Identities as texts, which are equal where those are: a number has no space."""
    size, stamp, path = (files[name].cast(pa.large_string()) for name in ("size", "stamp", "path"))
    space = pa.scalar(" ", pa.large_string())
    return pc.binary_join_element_wise(size, pc.fill_null(stamp, "-"), path, space)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The entries of an index, or how they changed since a generation.

    `below` is one more than the greatest ordinal of these files, or more: whoever asks about files
    of this catalogue names it, so that a file which came later is unknown to the answer. `files`
    has the IDENTITY columns and the fields asked for; `removed` the ordinals gone since (empty if
    all).
    While it is read (not `whole`) it has some of the entries, in any order; the others are unknown.
    """

    generation: Generation
    below: int
    files: pa.Table
    removed: pa.Array
    whole: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes that the files take."""
        return int(self.files.nbytes)

    def after(self, change: Catalogue) -> Catalogue:
        """A catalogue of all entries brought up to date by what changed since its generation."""
        if change.generation == self.generation:
            return self
        ordinals = change.files["ordinal"].combine_chunks()
        gone = pa.concat_arrays([change.removed.cast(pa.int64()), ordinals])
        known = pc.is_in(self.files["ordinal"], value_set=gone)
        # Mostly files came and none changed: then nothing is copied.
        stay = self.files.filter(pc.invert(known)) if pc.any(known).as_py() else self.files
        files = pa.concat_tables([stay, change.files], promote_options="default")
        below = max(self.below, change.below)
        return Catalogue(change.generation, below, files, pa.array([], pa.int64()))


Told: TypeAlias = Callable[[Callable[[], Catalogue]], object]
"""Takes what makes a catalogue, not `whole`, of all that was read until then."""


class IndexStore(Protocol):
    """What a store does. Every method raises StoreError when it cannot do it.

    Safe to use from several threads and several processes.
    """

    @property
    def location(self) -> str:
        """Where it is, for people; without secrets."""

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        """Every definition, dropped ones too until they are erased.

        Raises StoreError after `timeout` seconds; None: the store's own patience.
        """

    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        """That of an index, dropped or not; None if it was erased, or never was here.

        Costs the same however many there are. Raises StoreError as `definitions` does.
        """

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        """Write a definition if its revision still is `expect` (None: it is new).

        Raises Conflict if it is not, and for a second live index of one table (`TableId`). What a
        dropped index had, or a column that was taken out, may be gone then: neither comes back.
        """

    def state(self, index: IndexId) -> State:
        """How it stands."""

    def report(self, index: IndexId, state: State, *, token: int | None = None) -> None:
        """Say how it stands. The last one to say so is right.

        Raises Conflict for the token of an owner that keeps the index no more.
        """

    def lease(self, index: IndexId, *, timeout: float | None = None) -> Lease:
        """Who keeps it up to date. `timeout` as in `definitions`."""

    def hold(
        self, index: IndexId, lease: Lease, *, expect: Lease, timeout: float | None = None
    ) -> None:
        """Write a lease if it still is `expect`; raises Conflict if not.

        After a StoreError nobody knows whether it was written. `timeout` as in `definitions`.
        """

    def reserve(self, index: IndexId, n: int) -> range:
        """`n` ordinals that nobody else gets, now or ever."""

    def write(
        self,
        index: IndexId,
        entries: pa.Table,
        *,
        revision: Revision,
        token: int | None = None,
    ) -> None:
        """Add entries and sketches, all or nothing; an entry, once created, keeps its ordinal.

        A row whose identity (path, size, stamp) is new is created under its ordinal. A row with the
        ordinal *and* identity of an entry adds the sketches which that entry has not (`known` null
        there); a sketch that is there never changes. A row whose identity is there under another
        ordinal lost a race and is passed over. Raises Conflict if the definition's revision is not
        `revision`, or the index was dropped: what was sketched may mean something else by now; and
        for the token of an owner that keeps the index no more.
        """

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        """Forget entries. Their ordinals are not used again."""

    def erase(self, index: IndexId) -> None:
        """Forget a dropped index altogether. Its id is not used again."""

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        told: Told | None = None,
    ) -> Catalogue:
        """The entries, or those that changed after generation `since`; raises StoreError if erased.

        `fields` names SCALAR fields and `known` flags in their full spelling, as `s3_low`,
        `s3_known`; one that no entry has is a column of nulls. Raises StoreError after `timeout`
        seconds (None: the store's own patience), and Rewound if `since` is no generation that came
        before the present one, or so many before that this is forgotten.
        While all entries are read, a store may tell `told` what it has of them by then, with which
        questions are answered that cannot wait.
        """

    def size(self, index: IndexId) -> int | None:
        """Bytes that its entries take in the store, about; None where the store does not tell."""

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        """All entries with all their sketches, as `write` takes them, a part at a time.

        Lists are sets here: an empty one may come back as null, and none is in order.
        """

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        """Of each of these files (path, size, stamp) the ordinal of its entry, or null.

        The cost is that of these files, however many entries there are.
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
        """For each test the ordinals under `below` that it prunes: known, evaluated, fails.

        Raises StoreError after `timeout` seconds, and Rewound as `catalogue` does if it would not
        follow on from `generation`, that of the catalogue by which who asks numbers the files.
        A test it cannot answer prunes nothing.
        """
