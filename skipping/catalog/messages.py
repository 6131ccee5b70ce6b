"""Exchange messages between the service and a worker process: a JSON object, and parts (bytes).

Each side checks the sizes that the other side announces before it reads a byte, and never waits
past a deadline.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from skipping.catalog.bounded import read_json

_HEAD = struct.Struct(">I")
_TIME = struct.Struct("@ll")  # seconds and microseconds, as sockets have them
_PIECE = 1 << 20
_HEAD_BYTES, _HEAD_PARTS = 32 << 20, 1_000_000
"""Limits of the JSON of a message; the largest has a filter of 16 MiB."""

Message: TypeAlias = tuple[dict[str, Any], Sequence[bytes]]


class Ended(Exception):
    """The peer is gone, does not respond in time, or sent an invalid message."""


class Channel:
    """One end of a connection; `most` limits the bytes of the parts of a received message."""

    def __init__(self, line: socket.socket, most: int) -> None:
        self._line = line
        self._most = most

    def send(
        self, said: Mapping[str, Any], parts: Sequence[bytes] = (), *, deadline: float
    ) -> None:
        """Send a message; raise Ended."""
        head = json.dumps({**said, "sizes": [len(part) for part in parts]}).encode()
        try:
            for piece in (_HEAD.pack(len(head)) + head, *parts):
                for start in range(0, len(piece), _PIECE):
                    self._wait(socket.SO_SNDTIMEO, deadline)
                    self._line.sendall(memoryview(piece)[start : start + _PIECE])
        except OSError as error:
            raise Ended(type(error).__name__) from error

    def receive(self, *, deadline: float) -> Message:
        """Return the next message; raise Ended."""
        (length,) = _HEAD.unpack(self._exactly(_HEAD.size, deadline))
        if length > _HEAD_BYTES:
            raise Ended("a message that is too large")
        try:
            said = read_json(self._exactly(length, deadline), _HEAD_PARTS)
            sizes = said.pop("sizes")
            if not all(type(size) is int and size >= 0 for size in sizes):
                raise ValueError("no sizes")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Ended("an invalid message") from error
        if sum(sizes) > self._most:
            raise Ended("a message that is too large")
        return said, [self._exactly(size, deadline) for size in sizes]

    def _exactly(self, size: int, deadline: float) -> bytes:
        parts: list[bytes] = []
        while size:
            try:
                self._wait(socket.SO_RCVTIMEO, deadline)
                part = self._line.recv(min(size, _PIECE))
            except OSError as error:
                raise Ended(type(error).__name__) from error
            if not part:
                raise Ended("the connection was closed")
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def _wait(self, option: int, deadline: float) -> None:
        """Set the deadline of the next call.

        This sets an option of the socket, because `settimeout` calls poll(), which workers must
        not.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._line.setsockopt(
            socket.SOL_SOCKET, option, _TIME.pack(*divmod(int(left * 1e6) + 1, 1_000_000))
        )

    def shut(self) -> None:
        """Close the connection while another thread may use it; raise OSError."""
        self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()
