"""Who keeps an index up to date: one owner at a time, told from a dead one by a counter.

Whoever keeps an index moves the `beat` of its lease. Who finds one that does not move for a while,
by the own monotonic clock, may take the index over: with a greater token, which stores compare, so
that the old owner, if it was only asleep, writes nothing any more. No two clocks are compared.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from providers.errors import StoreError

__all__ = ["PATIENCE", "Lease", "Watch", "owner_of"]

PATIENCE = 30.0
"""Seconds without a beat after which an owner counts as dead."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of an index; `owner` None: nobody keeps it.

    `token` is greater than that of every owner before. `seen` is when the owner moved last, in
    seconds of its own wall clock: for people, nothing is decided by it.
    """

    token: int = 0
    owner: str | None = None
    beat: int = 0
    seen: float | None = None

    def claim(self, owner: str) -> Lease:
        """The next one, of another owner."""
        return Lease(self.token + 1, owner, 0, time.time())

    def renew(self) -> Lease:
        """With the next beat."""
        return replace(self, beat=self.beat + 1, seen=time.time())

    def release(self) -> Lease:
        """Nobody's; the token stays, so that it is not used again."""
        return Lease(self.token)

    def admits(self, token: int | None) -> bool:
        """Whether who has this token may write; None: who keeps nothing, and claims nothing."""
        return token is None or (self.owner is not None and token == self.token)

    def describe(self) -> str:
        """For people: the owner, or that there is none, and who was last.

        >>> Lease(3).describe()
        'no owner'
        """
        if self.owner is None:
            return "no owner"
        silent = max(0.0, time.time() - (self.seen or 0.0))
        if silent < PATIENCE:
            return self.owner
        return f"no owner; {self.owner} is silent for {silent:,.0f} s"

    def to_json(self) -> str:
        """As stores keep it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Lease:
        """The opposite of `to_json`; fields of newer releases are passed over.

        Raises StoreError for what is no lease.
        """
        try:
            data = json.loads(text)
            lease = replace(cls(), **{k: data[k] for k in cls.__slots__ if k in data})
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError("the store holds a lease that cannot be read") from error
        if not (
            type(lease.token) is int
            and type(lease.beat) is int
            and (lease.owner is None or isinstance(lease.owner, str))
            and (lease.seen is None or isinstance(lease.seen, int | float))
        ):
            raise StoreError("the store holds a lease that cannot be read")
        return lease


class Watch:
    """Watches a lease that somebody else has, until it counts as dead."""

    def __init__(
        self, patience: float = PATIENCE, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._seen: tuple[int, int] | None = None
        self._since = 0.0

    def is_free(self, lease: Lease) -> bool:
        """Whether it may be claimed: nobody's, or seen without a move for `patience` seconds."""
        if lease.owner is None:
            return True
        if self._seen != (lease.token, lease.beat):
            self._seen, self._since = (lease.token, lease.beat), self._clock()
        return self._clock() - self._since > self._patience


def owner_of(application: str) -> str:
    """How this process calls itself: its host, its number, and its Spark application."""
    return f"{socket.gethostname()}, process {os.getpid()}, {application}"
