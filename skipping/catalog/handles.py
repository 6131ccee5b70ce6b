"""Seal the parts of a plan as `plan-task` handles, and open them.

A handle is signed and contains its part, so the service keeps no state for a client. A client with
a handle must still be allowed to load the table. It has to plan again after `_LASTS` seconds, or at
a service with another key. Positions of files are those in the manifests, the same for every
reader.

A worker process packs a part, and only a worker unpacks it: the service does not look into it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
import zlib
from collections.abc import Callable

_LASTS = 3600.0
_GREATEST = 4 << 20
"""Maximum of bytes of an unpacked handle; positions and a filter are far smaller."""


class Invalid(Exception):
    """The handle is not from this service, is for another table, or has expired."""


class Handles:
    """Seals and opens handles with a key, by default a random one."""

    def __init__(self, key: bytes | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        self._clock = clock

    def seal(self, table: str, part: bytes) -> str:
        """Return a handle with a part, for the table at a path."""
        head = json.dumps({"table": table, "until": self._clock() + _LASTS}).encode()
        packed = zlib.compress(head + b"\n" + part, 1)
        return base64.urlsafe_b64encode(self._sign(packed) + packed).decode()

    def open(self, table: str, handle: str) -> bytes:
        """Return the part in a handle; raise Invalid."""
        try:
            raw = base64.urlsafe_b64decode(handle.encode())
        except ValueError:
            raise Invalid from None
        if not hmac.compare_digest(raw[:32], self._sign(raw[32:])):
            raise Invalid
        body = zlib.decompressobj().decompress(raw[32:], _GREATEST)
        head, _, part = body.partition(b"\n")
        header = json.loads(head)
        if header.get("table") != table or header["until"] < self._clock():
            raise Invalid
        return part

    def _sign(self, packed: bytes) -> bytes:
        return hmac.new(self._key, packed, hashlib.sha256).digest()
