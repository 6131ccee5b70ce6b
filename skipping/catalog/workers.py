"""Manage the pool of worker processes: one for each caller and table.

A worker gets metadata and the bytes of manifests, and no credentials: this process reads files for
it, after checking each location. It checks the size and form of what a worker sends, because a
forged manifest may have taken the worker over. A worker ends when it exceeds its memory or time,
when it is idle, or when another caller or table needs its slot.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from providers.errors import TableError, first_line
from skipping.catalog.bounded import RESIDUALS, check_parts, read_json
from skipping.catalog.errors import Denied, Refused, refuse_plan
from skipping.catalog.indexes import Answer
from skipping.catalog.messages import Channel, Ended, Message

log = logging.getLogger("skipping")

_START = "import sys; sys.path[:] = sys.argv[1:]; from skipping.catalog.worker import main; main()"
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE")
"""Environment variables that a worker inherits, for the search of libraries and the encoding."""

_STARTING = 60.0
_AHEAD = 8
"""Number of manifests to read concurrently; before its turn, only the first piece of each."""

_SLACK = 5.0
"""Seconds by which this process considers a worker idle before the worker does."""

_MESSAGES = 16
"""Maximum number of a worker's requests for one response: a plan needs two reads and a lookup."""

_ANSWER = 256 << 20
_TASKS = 8_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for workers: their number, in total and for one caller, and the resources of each.

    `memory` is in bytes beyond those of a new worker. `manifest` limits the bytes of one file,
    `manifests` those of all files that a request reads. `seconds` is the timeout of a request,
    `idle` the time until an idle worker ends. `files` limits the cache, `page` the tasks of a
    response.
    """

    workers: int = 8
    of_one_caller: int = 4
    memory: int = 2 << 30
    manifest: int = 256 << 20
    manifests: int = 4 << 30
    seconds: float = 120.0
    idle: float = 300.0
    files: int = 1_000_000
    page: int = 5_000


@dataclass(frozen=True, slots=True)
class Job:
    """A request to the worker of a caller and table.

    `metadata` is the text of the metadata file; equal texts have an equal `version`. `read` yields
    the pieces of a file, and `find` looks up a predicate in the index.
    """

    caller: Hashable
    table: Hashable
    metadata: bytes
    version: str
    read: Callable[[str], Iterator[bytes]]
    find: Callable[[Mapping[str, Any]], Answer | None]


@dataclass(eq=False, slots=True)
class _Worker:
    number: int
    caller: Hashable
    channel: Channel
    used: float
    busy: int = 0
    version: str = ""
    turn: threading.Lock = field(default_factory=threading.Lock)


class Workers:
    """Worker processes, started on demand; safe to use from several threads."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._lock = threading.Lock()
        self._workers: dict[Hashable, _Worker] = {}
        self._numbers = count(1)
        self._starter: _Starter | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begin to start the process that forks workers, which takes a second or two."""
        with self._lock:
            self._begin()

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self._is_closed = True
            starter, self._starter = self._starter, None
            for worker in self._workers.values():
                with suppress(OSError):
                    worker.channel.shut()
            self._workers.clear()
        if starter is not None:
            starter.close()

    def ask(self, job: Job, do: str, *parts: bytes, seconds: float | None = None) -> Message:
        """Return the worker's response to a request: "mode", "plan" or "tasks".

        If a worker dies that has already answered, a new one gets the request. Raises Refused if
        the worker refuses or reaches a limit, or if a new worker dies.
        """
        deadline = time.monotonic() + (self.bounds.seconds if seconds is None else seconds)
        while True:
            with self._worker(job, deadline) as worker:
                is_reused = bool(worker.version)
                is_new = worker.version != job.version
                given = (*parts, job.metadata) if is_new else parts
                try:
                    worker.channel.send({"do": do, "metadata": is_new}, given, deadline=deadline)
                    worker.version = job.version
                    answer, made = self._answer(worker.channel, job, deadline)
                except BaseException as error:
                    self._end(worker)
                    if not isinstance(error, Ended):
                        raise
                    if time.monotonic() >= deadline:
                        raise refuse_plan("reading the table's metadata takes too long") from error
                    log.warning("worker ended: reason=%s", error)
                    if is_reused:  # perhaps the machine ran out of memory: a new one can answer
                        continue
                    message = f"the process that read the table's metadata ended: {error}"
                    raise Refused(500, "ServiceFailureException", message) from error
                if "exhausted" in answer:
                    self._end(worker)
                    raise refuse_plan("reading the table's metadata takes too much memory")
            if "refused" in answer:
                raise _read_refusal(answer["refused"])
            return answer, made

    def _answer(self, channel: Channel, job: Job, deadline: float) -> Message:
        """Return the response, after serving the worker's own requests for files and lookups."""
        left = self.bounds.manifests
        files = _begun(job, [])
        messages = 0
        while messages < _MESSAGES:
            said, parts = channel.receive(deadline=deadline)
            if "next" in said:
                left = self._send_file(channel, next(files, None), left, deadline)
                continue
            messages += 1
            if "read" in said:
                files = _begun(job, said["read"])
            elif "find" in said:
                found = job.find(said["find"]) if isinstance(said["find"], dict) else None
                if found is None:
                    channel.send({"state": None}, deadline=deadline)
                    continue
                known = found.state == said.get("known")
                sent = [found.pruned] if known else [found.pruned, found.files()]
                channel.send({"state": found.state}, sent, deadline=deadline)
            else:
                return said, parts
        raise Ended("it sent too many messages")

    def _send_file(
        self, channel: Channel, file: Future[_Begun] | None, left: int, deadline: float
    ) -> int:
        if file is None:
            raise Ended("it requested one file too many")
        size = 0
        try:
            piece, pieces = file.result(max(0.0, deadline - time.monotonic()))
            while piece:
                size += len(piece)
                if size > min(left, self.bounds.manifest):
                    raise refuse_plan("the table's manifests are too large")
                channel.send({"more": True}, [piece], deadline=deadline)
                piece = next(pieces, b"")
            channel.send({"more": False}, deadline=deadline)
        except (Ended, Refused):
            raise
        except Exception as error:  # each kind of storage has its own
            kind = "denied" if isinstance(error, Denied) else "storage"
            kind = "permission" if isinstance(error, PermissionError) else kind
            channel.send({"failure": kind, "message": first_line(error)}, deadline=deadline)
        return left - size

    @contextmanager
    def _worker(self, job: Job, deadline: float) -> Iterator[_Worker]:
        key = job.caller, job.table
        while True:
            with self._lock:
                worker = self._living(key) or self._make(key, job.caller)
                worker.busy += 1
            try:
                if not worker.turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    raise Refused(
                        503, "ServiceUnavailableException", "the table is busy: retry later"
                    )
                try:
                    if self._workers.get(key) is worker:  # else it ended while this request waited
                        yield worker
                        return
                finally:
                    worker.turn.release()
            finally:
                with self._lock:
                    worker.busy -= 1
                    worker.used = time.monotonic()

    def _living(self, key: Hashable) -> _Worker | None:
        """Return the worker of a key, after idle workers are removed."""
        last = time.monotonic() - self.bounds.idle + _SLACK
        for other, worker in list(self._workers.items()):
            if not worker.busy and worker.used < last:
                self._forget(other)
        return self._workers.get(key)

    def _make(self, key: Hashable, caller: Hashable) -> _Worker:
        """Start a worker; at the limit, end the one that has been idle for longest."""
        for of, most in (({caller}, self.bounds.of_one_caller), (None, self.bounds.workers)):
            among = [
                other for other, each in self._workers.items() if of is None or each.caller in of
            ]
            if len(among) >= most:
                idle = [other for other in among if not self._workers[other].busy]
                if not idle:
                    raise Refused(
                        503, "ServiceUnavailableException", "all workers are busy: retry later"
                    )
                self._forget(min(idle, key=lambda other: self._workers[other].used))
        number = next(self._numbers)
        bounds = self.bounds
        order = {"start": number, "memory": bounds.memory, "files": bounds.files}
        while True:
            was_ready = self._starter is not None and self._starter.is_ready
            try:
                line = self._begin().fork({**order, "page": bounds.page, "idle": bounds.idle})
                break
            except (OSError, subprocess.SubprocessError) as error:
                self._lose_starter()
                if was_ready:  # it has died since: start another one
                    continue
                raise Refused(
                    503, "ServiceUnavailableException", "a worker process cannot be started"
                ) from error
        worker = _Worker(number, caller, Channel(line, _ANSWER), time.monotonic())
        self._workers[key] = worker
        return worker

    def _begin(self) -> _Starter:
        if self._is_closed:
            raise Refused(503, "ServiceUnavailableException", "the service is shutting down")
        if self._starter is None:
            self._starter = _Starter()
        return self._starter

    def _lose_starter(self) -> None:
        """Remove a starter that is gone, and its workers, which nothing else can end."""
        starter, self._starter = self._starter, None
        if starter is not None:
            starter.close()
        self._workers.clear()

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            for key in [key for key, each in self._workers.items() if each is worker]:
                self._forget(key)

    def _forget(self, key: Hashable) -> None:
        worker = self._workers.pop(key, None)
        if worker is None:  # it was removed with its starter
            return
        worker.channel.close()
        if self._starter is not None:
            try:
                self._starter.end(worker.number)
            except OSError:
                self._lose_starter()


_Begun: TypeAlias = tuple[bytes, Iterator[bytes]]
"""The first piece of a file, and the others."""


def _begun(job: Job, locations: Any) -> Iterator[Future[_Begun]]:
    """Read files in order, some of them ahead; raise Ended."""
    if not isinstance(locations, list) or not all(isinstance(each, str) for each in locations):
        raise Ended("it sent an invalid list of locations")

    def begin(location: str) -> _Begun:
        pieces = job.read(location)
        return next(pieces, b""), pieces

    def files() -> Iterator[Future[_Begun]]:
        pool = ThreadPoolExecutor(_AHEAD)
        try:
            ahead = deque(pool.submit(begin, each) for each in locations[:_AHEAD])
            for following in (*locations[_AHEAD:], *[None] * len(ahead)):
                yield ahead.popleft()
                if following is not None:
                    ahead.append(pool.submit(begin, following))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    return files()


class _Starter:
    """The process that forks workers: it has no secrets, and reads no untrusted data."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_STARTING)
        path = [os.path.abspath(each) for each in sys.path]  # "" means the current folder
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, *path],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={
                    **{name: os.environ[name] for name in _KEPT if name in os.environ},
                    "OPENBLAS_NUM_THREADS": "1",  # a process that forks must have one thread only
                },
                start_new_session=True,  # Ctrl-C must not reach it
            )
        finally:
            theirs.close()
        self.is_ready = False

    def fork(self, order: Mapping[str, Any]) -> socket.socket:
        if not self.is_ready:
            self._await_acknowledgement()
            self.is_ready = True
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], [theirs.fileno()])
            self._await_acknowledgement()
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def end(self, number: int) -> None:
        if self.is_ready:
            self._control.sendall(json.dumps({"end": number}).encode())
            self._await_acknowledgement()

    def _await_acknowledgement(self) -> None:
        if self._control.recv(3) != b"{}\n":
            raise ConnectionError("a worker process cannot be started")

    def close(self) -> None:
        self._control.close()
        if not self.is_ready:  # it has no worker yet
            self._process.kill()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _read_refusal(said: Any) -> Exception:
    match said:
        case [int() as status, str() as kind, str() as message] if 400 <= status < 600:
            return Refused(status, kind, message)
    return TableError("the table's metadata cannot be read")


_TASK = {"data-file", "delete-file-references"}
_MEMBERS = {"file-scan-tasks", "delete-files", "residual-filter"}
_RESIDUAL = b'"residual-filter":'
_FILE = {
    *("content", "file-path", "file-format", "spec-id", "partition", "file-size-in-bytes"),
    *("record-count", "split-offsets", "sort-order-id", "first-row-id", "key-metadata"),
    *("equality-ids", "referenced-data-file", "content-offset", "content-size-in-bytes"),
}


def check_tasks(text: bytes) -> bytes:
    """Check the tasks of a plan from a worker, and serialize them again as a JSON object.

    A worker sends the residual filter once; each task gets it here. With it in each task, a plan
    with 500 values had megabytes to parse.

    Raises Refused for anything but tasks: a plan may also have credentials and addresses, which its
    client would use.
    """
    try:
        check_parts(text, _TASKS)
        said, write = _parse_json(b"{%b}" % text)
        if not {"file-scan-tasks"} <= said.keys() <= _MEMBERS:
            raise ValueError("not a list of tasks")
        residual = write(said.pop("residual-filter", None))
        if len(residual) * len(said["file-scan-tasks"]) > RESIDUALS + len(residual):
            raise ValueError("a residual filter that is too large")
        files = list(said.get("delete-files", ()))
        for task in said["file-scan-tasks"]:
            if not {"data-file"} <= task.keys() <= _TASK:
                raise ValueError("not a task")
            task["residual-filter"] = ""
            files.append(task["data-file"])
        if not all(file.keys() <= _FILE for file in files):
            raise ValueError("not a file")
    except (ValueError, TypeError, AttributeError) as error:
        message = "the process that read the table's metadata returned an invalid plan"
        raise Refused(500, "ServiceFailureException", message) from error
    # A quote in a text is written with a backslash before it, so this is the member.
    return write(said).replace(_RESIDUAL + b'""', _RESIDUAL + residual)


def _write_json(said: Any) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode()


def _parse_json(text: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    """Parse JSON; return the value and a function that serializes it. Raise ValueError."""
    try:
        # Faster than `json`, but it refuses values that are nested 200 deep, as filters may be.
        return from_json(text), partial(to_json, inf_nan_mode="constants")
    except ValueError:
        return read_json(text, _TASKS), _write_json
