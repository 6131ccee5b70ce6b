"""The lease of an index: one process at a time maintains it, and a counter shows that it is alive.

The lease holder increments `beat`. If another process sees no new beat for some time, by its own
monotonic clock, it may claim the lease with a higher token. Stores compare tokens, so an old holder
that was only suspended cannot write any more. Clocks of different processes are never compared.
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
"""Seconds without a heartbeat after which a lease holder counts as dead."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of an index; without an `owner` it is free.

    `token` is greater than the tokens of all earlier owners. `seen` is the time of the last
    heartbeat, in seconds of the owner's wall clock; it is only displayed.
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
        """Return a free lease. It has the same token, so that no owner gets it again."""
        return Lease(self.token)

    def admits(self, token: int | None) -> bool:
        """Return whether a writer with this token may write; a writer without lease has None."""
        return token is None or (self.owner is not None and token == self.token)

    def describe(self) -> str:
        """Return the lease holder as text; without an active one, the last holder and its silence.

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
        """Return the JSON that stores keep."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Lease:
        """Read the JSON of `to_json`, and ignore fields of newer releases.

        Raises StoreError for anything that is not a lease.
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
    """Return the name of this process as an owner: host, process id and Spark application."""
    return f"{socket.gethostname()}, process {os.getpid()}, {application}"
