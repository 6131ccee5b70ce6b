"""Run a worker process, which decodes the metadata of one table for one caller of the service.

Metadata files, manifest lists and manifests are untrusted. Only workers decode them. A worker has
no environment and no credentials, only a socket to the service, and cannot open any other file or
socket. The service reads files and the index on its behalf.

The service starts one process with `main`. It imports everything, and forks a worker for each
socket that it receives. It reads no untrusted data itself.
"""

from __future__ import annotations

import array
import codecs
import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.ma
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.pandas_compat
import pyarrow.vendored.version

from providers.errors import TableError, first_line
from skipping.catalog.bounded import read_json
from skipping.catalog.errors import Denied, Refused, as_refusal
from skipping.catalog.memory import hide_memory
from skipping.catalog.messages import Channel, Ended
from skipping.catalog.plan import Contents, Found, Part, Planner
from skipping.catalog.predicates import write_predicate

# NumPy and PyArrow import these on first use, when a worker can no longer open files.
_ = numpy.ma, pd, pa.pandas_compat, pa.vendored.version, pa.array([0])

_SAYING = 600.0
"""Seconds that the service may take for one message. It ends a worker that takes too long."""

_MOST = 2 << 30
_FILTER_PARTS = 4_000_000
_CPU = 3600
"""Maximum of CPU seconds of a worker, if the service is not there to end it."""

FAILURES: dict[str, type[Exception]] = {
    "denied": Denied,
    "permission": PermissionError,
    "storage": OSError,
}
"""Errors of reading a file, by their names in messages."""


class Worker:
    """Handles the requests of one caller for one table; `channel` connects it with the service."""

    def __init__(self, channel: Channel, *, files: int, page: int, idle: float) -> None:
        self._channel = channel
        self._idle = idle
        self._planner = Planner(self._find, self._read, most=files, page=page)
        self._contents: Contents | None = None
        self._known: tuple[str, pa.Table] = "", pa.table({})

    def serve(self) -> None:
        """Handle requests until the service is gone, or sends nothing for `idle` seconds."""
        while True:
            said, parts = self._channel.receive(deadline=time.monotonic() + self._idle)
            answer, made = self._respond(said, parts)
            self._channel.send(answer, made, deadline=time.monotonic() + _SAYING)

    def _respond(
        self, said: dict[str, Any], parts: Sequence[bytes]
    ) -> tuple[dict[str, Any], Sequence[bytes]]:
        try:
            if said["metadata"]:
                self._contents = None
                self._contents = Contents(parts[-1].decode())
            if self._contents is None:
                raise TableError("no metadata")
            return getattr(self, f"_{said['do']}")(self._contents, parts)  # type: ignore[no-any-return]
        except (Ended, MemoryError):
            raise
        except Exception as error:  # forged data can raise any error
            failure = Refused(500, "ServiceFailureException", first_line(error))
            refused = as_refusal(error) or failure
            return {"refused": [refused.status, refused.kind, refused.message]}, ()

    def _mode(self, table: Contents, _: Sequence[bytes]) -> tuple[dict[str, Any], Sequence[bytes]]:
        """Return why scans are not planned here, and the manifest lists that plans would read."""
        lists = {snapshot.manifest_list for snapshot in table.referenced}
        return {"unplanned": table.unplanned, "lists": list(lists)}, ()

    def _plan(
        self, table: Contents, parts: Sequence[bytes]
    ) -> tuple[dict[str, Any], Sequence[bytes]]:
        asked = _object(parts[0])
        first, *rest = self._planner.plan(table, asked)
        tasks = b"".join(self._planner.tasks(table, first))
        return {}, [tasks, *(part.pack() for part in rest)]

    def _tasks(
        self, table: Contents, parts: Sequence[bytes]
    ) -> tuple[dict[str, Any], Sequence[bytes]]:
        return {}, [b"".join(self._planner.tasks(table, Part.unpack(parts[0])))]

    def _read(self, locations: Sequence[str]) -> Iterator[bytes]:
        if not locations:
            return
        self._channel.send({"read": list(locations)}, deadline=time.monotonic() + _SAYING)
        for _ in locations:
            # One at a time, so that no data is in transit when a manifest turns out to be forged.
            self._channel.send({"next": True}, deadline=time.monotonic() + _SAYING)
            pieces: list[bytes] = []
            while True:
                said, parts = self._channel.receive(deadline=time.monotonic() + _SAYING)
                if failure := said.get("failure"):
                    raise FAILURES[failure](said["message"])
                pieces += parts
                if not said["more"]:
                    break
            yield b"".join(pieces)

    def _find(self, predicate: Any, columns: Any) -> Found | None:
        said = {"find": write_predicate(predicate, columns), "known": self._known[0]}
        self._channel.send(said, deadline=time.monotonic() + _SAYING)
        answer, parts = self._channel.receive(deadline=time.monotonic() + _SAYING)
        if answer["state"] is None:
            return None
        if len(parts) > 1:
            self._known = answer["state"], pa.ipc.open_stream(parts[1]).read_all()
        pruned = np.unpackbits(np.frombuffer(parts[0], np.uint8)).astype(bool)
        return Found(*self._known, pruned)


def _object(text: bytes) -> dict[str, Any]:
    try:
        asked = read_json(text, _FILTER_PARTS)
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise Refused(
            400, "BadRequestException", "the body is not a JSON object, or nested too deeply"
        )
    return asked


def main() -> None:
    """Fork a worker for each socket that standard input passes, until it ends."""
    control = socket.socket(fileno=0)
    hide_memory()  # also the workers' memory, from each other
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for name in ("ascii", "hex"):  # Python imports these on first use
        codecs.lookup(name)
    size = _address_space()
    gc.collect()
    gc.freeze()
    workers: dict[int, int] = {}
    try:
        control.sendall(b"{}\n")
        while True:
            ready, _, _ = select.select([control.fileno(), woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
            _reap(workers)
            if control.fileno() not in ready:
                continue
            text, line = _order(control)
            if not text:
                break
            order = json.loads(text)
            if "end" in order:
                if (
                    order["end"] in workers
                ):  # the process id is not reused before the worker is reaped
                    os.kill(workers[order["end"]], signal.SIGKILL)
            else:
                pid = os.fork()
                if pid == 0:
                    _work(line, order, size)
                workers[order["start"]] = pid
                os.close(line)
            control.sendall(b"{}\n")
    except OSError:  # the service is gone
        pass
    for pid in workers.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _order(control: socket.socket) -> tuple[bytes, int]:
    text, passed, _, _ = control.recvmsg(4096, socket.CMSG_SPACE(4))
    fds = array.array("i")
    for _, _, data in passed:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return text, fds[0] if fds else -1


def _reap(workers: dict[int, int]) -> None:
    while workers:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        for number in [number for number, each in workers.items() if each == pid]:
            del workers[number]


def _work(line: int, order: dict[str, Any], size: int) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        if line != 3:
            os.dup2(line, 3)
        os.closerange(4, 1 << 16)
        channel = Channel(socket.socket(fileno=3), _MOST)
        worker = Worker(channel, files=order["files"], page=order["page"], idle=order["idle"])
        _confine(size + order["memory"])
        worker.serve()
    except Ended:
        code = 0
    except MemoryError:
        gc.collect()
        with contextlib.suppress(Exception):
            channel.send({"exhausted": True}, deadline=time.monotonic() + 5)
    finally:
        os._exit(code)


def _confine(memory: int) -> None:
    """Give up the right to use more memory, and to open or write any file or socket."""
    if sys.platform == "linux":  # elsewhere, the address space does not reflect the memory in use
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU, _CPU))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # Not a single descriptor, so that none can be closed and another one opened instead.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _address_space() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()
