"""Define the lease of an index: only its holder, one process at a time, maintains the index.

The holder increments the heartbeat counter `beat`. If another process sees no new heartbeat for
some time, by its own monotonic clock, it may claim the lease with a higher token. Stores compare
tokens, so an old holder that was only suspended cannot write any more. Clocks of different
processes are never compared.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from providers.errors import StoreError

PATIENCE = 30.0
"""Seconds without a heartbeat after which a lease holder counts as dead."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of an index; it is free if `owner` is None.

    `token` is greater than the tokens of all earlier owners. `seen` is the time of the last
    heartbeat (Unix seconds of the owner's clock); it is only displayed.
    """

    token: int = 0
    owner: str | None = None
    beat: int = 0
    seen: float | None = None

    def claim(self, owner: str) -> Lease:
        """Return the lease of a new owner, with the next token."""
        return Lease(self.token + 1, owner, 0, time.time())

    def renew(self) -> Lease:
        """Return the lease with the next heartbeat."""
        return replace(self, beat=self.beat + 1, seen=time.time())

    def release(self) -> Lease:
        """Return the free lease. It keeps the token, so that the next owner gets a higher one."""
        return Lease(self.token)

    def admits(self, token: int | None) -> bool:
        """Return whether a writer may write: with the owner's token, or without a lease (None)."""
        return token is None or (self.owner is not None and token == self.token)

    @property
    def seems_alive(self) -> bool:
        """Whether its owner's clock and this one's say that there was a heartbeat lately."""
        return self.owner is not None and time.time() - (self.seen or 0.0) < PATIENCE

    def describe(self) -> str:
        """Return the lease holder as text; if it is dead, with the seconds since its heartbeat.

        >>> Lease(3).describe()
        'no owner'
        """
        if self.owner is None:
            return "no owner"
        if self.seems_alive:
            return self.owner
        silent = max(0.0, time.time() - (self.seen or 0.0))
        return f"no owner; {self.owner} is silent for {silent:,.0f} s"

    def to_json(self) -> str:
        """Return the lease as JSON, for stores."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Lease:
        """Parse the JSON of `to_json`; ignore fields of newer releases.

        Raises StoreError if the text is not a valid lease.
        """
        try:
            data = json.loads(text)
            lease = replace(cls(), **{k: data[k] for k in cls.__slots__ if k in data})
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError("the store contains an invalid lease") from error
        if not (
            type(lease.token) is int
            and type(lease.beat) is int
            and (lease.owner is None or isinstance(lease.owner, str))
            and (lease.seen is None or isinstance(lease.seen, int | float))
        ):
            raise StoreError("the store contains an invalid lease")
        return lease


class Watch:
    """Watches the lease of another process until its owner counts as dead."""

    def __init__(
        self, patience: float = PATIENCE, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._seen: tuple[int, int] | None = None
        self._since = 0.0

    def is_free(self, lease: Lease) -> bool:
        """Return whether the lease is free, or had no heartbeat for `patience` seconds."""
        if lease.owner is None:
            return True
        if self._seen != (lease.token, lease.beat):
            self._seen, self._since = (lease.token, lease.beat), self._clock()
        return self._clock() - self._since > self._patience


def owner_of(application: str) -> str:
    """Return this process's name as a lease owner: host, process id and Spark application."""
    return f"{socket.gethostname()}, process {os.getpid()}, {application}"
