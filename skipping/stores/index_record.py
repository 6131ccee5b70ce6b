"""The record of one index in a store, and the rules for every change to it.

A store reads a record, calls one of its `with_` methods, and writes the result only if the stored
record is still the one it read. The memory store holds a lock, SQLite a transaction; OpenSearch
names the sequence number of the document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

from providers.errors import Conflict, Rewound, StoreError
from skipping.model.definition import Definition, IndexId, Revision, State, TableId, Versioned
from skipping.model.lease import Lease
from skipping.stores import Generation
from skipping.stores.entries import ORDINALS

_R = TypeVar("_R", bound="IndexRecord")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRecord:
    """The record of an index in a store; each store adds fields to find the entries.

    `definition`, `state` and `lease` are JSON. An erased index has no definition; its record stays,
    so that its id is not used again. `next` is the first ordinal that is not reserved. `recent` has
    the last generations, including the present one.
    """

    REMEMBERED: ClassVar[int] = 64
    """Length of `recent`. A reader that is further behind reads all entries again."""

    index: IndexId
    definition: str | None = None
    revision: Revision = 0
    dropped: bool = False
    state: str | None = None
    lease: str | None = None
    next: int = 0
    generation: Generation = 0
    recent: tuple[Generation, ...] = ()

    def is_of(self, table: TableId) -> bool:
        """Return whether it is the live index of a table, with a valid definition."""
        if self.definition is None or self.dropped:
            return False
        value = self.versioned.value
        return value.table == table and value.fault is None and not value.dropped

    @property
    def versioned(self) -> Versioned[Definition]:
        """The definition, which may have a fault, and its revision."""
        return Versioned(Definition.read(self.definition or "", self.index), self.revision)

    def read_state(self) -> State:
        """Return the state; raise StoreError for an invalid one."""
        return State() if self.state is None else State.from_json(self.state)

    def read_lease(self) -> Lease:
        """Return the lease; raise StoreError for an invalid one."""
        return Lease() if self.lease is None else Lease.from_json(self.lease)

    def has_been(self, generation: Generation) -> bool:
        """Return whether a generation is the present one, or one of those before it."""
        return not generation or generation in self.recent

    def require_generation(self, generation: Generation | None, location: str) -> None:
        """Raise Rewound unless the store remembers a generation."""
        if generation is not None and not self.has_been(generation):
            raise Rewound(
                f"the store {location} does not remember this generation of index {self.index}: it "
                "was restored, or has changed many times since; read its entries again"
            )

    def require_token(self, token: int | None) -> None:
        """Raise Conflict if another owner holds the lease now."""
        if token is not None and not self.read_lease().admits(token):
            raise Conflict(f"the lease of index {self.index} was taken over by another owner")

    def require_writable(self, revision: Revision, token: int | None) -> None:
        """Raise Conflict if entries that were sketched for `revision` must not be written."""
        if self.dropped or self.revision != revision:
            raise Conflict(f"index {self.index} was changed or dropped meanwhile: read it again")
        self.require_token(token)

    def with_definition(
        self: _R, definition: Definition, *, expect: Revision | None, live: IndexId | None
    ) -> _R:
        """Return the record with a new definition; a new index has a record of revision 0.

        `live` is another index on the same table that is not dropped. Raises Conflict if it is not
        None, or if the revision is not `expect`.
        """
        found = self.revision or None
        if found != expect or (found is not None and self.definition is None):
            raise Conflict(f"index {self.index} is at revision {found}, not {expect}")
        if live is not None and not definition.dropped:
            raise Conflict(f"there is an index on {definition.name} already: {live}")
        return replace(
            self,
            definition=definition.to_json(),
            dropped=definition.dropped,
            revision=self.revision + 1,
        )

    def with_state(self: _R, state: State, token: int | None) -> _R:
        """Return the record with another state; raise Conflict as `require_token` does."""
        self.require_token(token)
        return replace(self, state=state.to_json())

    def with_lease(self: _R, lease: Lease, *, expect: Lease) -> _R:
        """Return the record with another lease; raise Conflict if its lease is not `expect`."""
        if (found := self.read_lease()) != expect:
            raise Conflict(f"the lease of index {self.index} has changed; now: {found.describe()}")
        return replace(self, lease=lease.to_json())

    def with_ordinals(self: _R, n: int) -> _R:
        """Return the record with `n` more ordinals reserved; raise StoreError if none are left."""
        if n < 0 or self.next + n > ORDINALS:
            raise StoreError(
                f"index {self.index} has no {n} ordinals left: run DROP SKIPPING INDEX, then "
                "CREATE SKIPPING INDEX again"
            )
        return replace(self, next=self.next + n)

    def with_generation(self: _R, generation: Generation) -> _R:
        """Return the record with a new present generation."""
        recent = self.recent if generation in self.recent else (*self.recent, generation)
        return replace(self, generation=generation, recent=recent[-self.REMEMBERED :])

    def with_nothing(self: _R) -> _R:
        """Return the record of an erased index; raise StoreError if it is live."""
        if self.definition is not None and not self.dropped:
            raise StoreError(f"index {self.index} is live: drop it before it is erased")
        return replace(self, definition=None, state=None, lease=None)


def require_record(record: _R | None, index: IndexId, *, erased: bool = False) -> _R:
    """Return a record; raise StoreError if it is missing, or (unless `erased`) was erased."""
    if record is None or (record.definition is None and not erased):
        raise StoreError(f"the store has no index {index}: it was erased, or never existed")
    return record


class RecordStore(ABC, Generic[_R]):
    """Base class of stores: the methods of `IndexStore` that only change a record."""

    @abstractmethod
    def _read(self, index: IndexId, *, timeout: float | None = None) -> _R:
        """Return the record; raise StoreError if the index was erased or never existed."""

    @abstractmethod
    def _update(
        self, index: IndexId, change: Callable[[_R], _R], *, timeout: float | None = None
    ) -> _R:
        """Replace the record by the result of `change`, and return the result.

        After a conflict with another writer, `change` is called again.
        """

    def state(self, index: IndexId) -> State:
        """Return the state; see `IndexStore`."""
        return self._read(index).read_state()

    def report(self, index: IndexId, state: State, *, token: int | None = None) -> None:
        """Write the state; see `IndexStore`."""
        self._update(index, lambda record: record.with_state(state, token))

    def lease(self, index: IndexId, *, timeout: float | None = None) -> Lease:
        """Return the lease; see `IndexStore`."""
        return self._read(index, timeout=timeout).read_lease()

    def hold(
        self, index: IndexId, lease: Lease, *, expect: Lease, timeout: float | None = None
    ) -> None:
        """Write the lease if it still is `expect`; see `IndexStore`."""
        self._update(index, lambda record: record.with_lease(lease, expect=expect), timeout=timeout)

    def reserve(self, index: IndexId, n: int) -> range:
        """Reserve `n` ordinals; see `IndexStore`."""
        end = self._update(index, lambda record: record.with_ordinals(n)).next
        return range(end - n, end)
