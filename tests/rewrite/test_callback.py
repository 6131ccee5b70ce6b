"""Nobody but the session's own Java gets an answer, and what a message may name is little."""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from providers.errors import SkippingError
from rewrite.bridge import authentication
from rewrite.bridge import callbacks as bridge
from rewrite.bridge.authentication import Guarded, make_secret, seal
from rewrite.bridge.callbacks import Answers, Statements
from rewrite.bridge.message_files import Folder
from rewrite.bridge.messages import Reader, read_message
from rewrite.bridge.protocol import CURRENT
from skipping.config.settings import Settings
from skipping.lookup.lookup import Lookup
from skipping.stores.memory.store import MemoryStore
from tests.conftest import RunPython

ATTACK = Path(__file__).with_name("attack.py")
NOBODY = 65534
NULL = "!yn\n"


@pytest.fixture
def table(spark: SparkSession) -> Iterator[None]:
    spark.sql("CREATE TABLE attacked USING delta AS SELECT id FROM range(10)")
    yield
    spark.sql("DROP TABLE attacked")


@pytest.fixture
def attack(spark: SparkSession, table: None, tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Runs it, as another user where this one may change to one."""
    gateway = spark.sparkContext._gateway
    pool = gateway.gateway_property.pool
    # Those of a session; other tests leave theirs there, bare.
    ours = [
        name
        for name, proxy in list(pool.dict.items())
        if type(proxy) is Guarded and object.__getattribute__(proxy, "_sealed")
    ]
    assert len(ours) >= 2
    script = Path(tempfile.mkdtemp()) / "attack.py"
    shutil.copy(ATTACK, script)
    script.parent.chmod(0o755)
    script.chmod(0o644)
    user = NOBODY if os.geteuid() == 0 else None
    # Of its own: where the connection is taken, Py4J releases whatever object a stranger names.
    session = spark.newSession()._jsparkSession

    def run() -> dict[str, Any]:
        done = subprocess.run(
            ["/usr/bin/env", "python3", str(script), str(gateway._callback_server.port),
             session._target_id, *ours],
            user=user, capture_output=True, text=True, timeout=120, cwd="/",
        )  # fmt: skip
        shutil.rmtree(script.parent)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert len(found["answers"]) > 20 * len(ours)
        return found

    return run


def unharmed(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    assert jvm.System.getProperty("attacked") is None
    shown = spark.sql("SHOW SKIPPING INDEXES").collect()
    assert not any("attacked" in str(row) for row in shown)


@pytest.mark.parametrize("known", [True, False], ids=["by user", "by token"])
def test_a_stranger_is_not_let_in(
    spark: SparkSession,
    attack: Callable[[], dict[str, Any]],
    known: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is closed before anything of a message is looked at."""
    if not known:
        monkeypatch.setattr(authentication, "_find_user", lambda *_: None)
    found = attack()
    assert {answer for _, _, answer in found["answers"]} == {None}
    assert found["got"] == []
    unharmed(spark)


def test_a_stranger_whose_connection_is_taken_learns_nothing(
    spark: SparkSession,
    attack: Callable[[], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the server was started without a token and cannot get one."""
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext._gateway._callback_server, "token", None)
        patch.setattr(authentication, "_find_user", lambda *_: None)
        found = attack()
    assert {answer for _, _, answer in found["answers"]} == {NULL}
    assert found["got"] == []
    unharmed(spark)


class TestConnections:
    """Those of this user, or of whom the kernel does not tell."""

    @pytest.fixture
    def server(self, spark: SparkSession) -> Any:
        return spark.sparkContext._gateway._callback_server

    @staticmethod
    def connect(server: Any) -> socket.socket:
        return socket.create_connection(("127.0.0.1", server.port), timeout=20)

    def login(self, server: Any, token: str) -> bytes:
        with self.connect(server) as line:
            line.sendall(f"A\n{token}\ne\n".encode())
            try:
                return line.recv(100)
            except ConnectionResetError:
                return b""

    def test_the_token_lets_in(self, server: Any) -> None:
        assert self.login(server, server.token) == b"!yv\n"
        for wrong in ("0" * 64, "0" * 70, server.token[::-1], server.token.upper() + "A"):
            assert self.login(server, wrong) == b""

    def test_there_is_a_token_before_anybody_can_connect(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gateway = SparkContext._gateway
        made: list[Any] = []

        class Early(authentication._Server):
            def start(self) -> None:
                made.append(self.token)
                raise Py4JNetworkError("far enough")

        parameters = copy(gateway.callback_server_parameters)
        parameters.auth_token = None
        other = object.__new__(type(gateway))
        told = {"_callback_server": None, "callback_server_parameters": parameters}
        other.__dict__.update(gateway.__dict__ | told)
        other.shutdown = lambda: None
        monkeypatch.setattr(authentication, "_Server", Early)
        with pytest.raises(Py4JNetworkError):
            authentication.authenticate(other)
        assert len(made[0]) == 64

    def test_no_thread_keeps_the_process(self, spark: SparkSession) -> None:
        server = SparkContext._gateway._callback_server
        assert server.thread.daemon
        serving = [t for t in threading.enumerate() if getattr(t, "_target", None) is not None]
        ours = [
            t
            for t in serving
            if isinstance(getattr(t._target, "__self__", None), authentication._Connection)
        ]
        assert ours
        assert all(thread.daemon for thread in ours)

    def test_who_says_nothing_is_closed(self, server: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(authentication, "_LOGIN_TIMEOUT", 0.3)
        began = time.monotonic()
        with self.connect(server) as line:
            line.sendall(b"A\n")
            with suppress(ConnectionResetError):
                assert line.recv(1) == b""
        assert time.monotonic() - began < 5

    def test_a_line_has_the_length_of_a_login(self, server: Any) -> None:
        with self.connect(server) as line, pytest.raises(OSError, match=r"Broken|reset"):
            line.sendall(b"A" * (64 << 20))

    def test_many_do_not_keep_out(self, server: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(authentication, "_LOGIN_TIMEOUT", 1.0)
        before = threading.active_count()
        lines = [self.connect(server) for _ in range(200)]
        time.sleep(0.2)
        assert threading.active_count() <= before + authentication._WAITING + 8
        end = time.monotonic() + 20
        while self.login(server, server.token) != b"!yv\n":
            assert time.monotonic() < end
            time.sleep(0.2)
        for line in lines:
            line.close()

    def test_it_accepts_again_after_too_many_open_files(self, server: Any) -> None:
        code = "import socket, sys\ninput()\n" + (
            f"lines = [socket.create_connection(('127.0.0.1', {server.port})) for _ in range(5)]\n"
            "print('there', flush=True)\ninput()"
        )
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
                other.stdin.write("\n")
                other.stdin.flush()
                assert other.stdout.readline() == "there\n"
                time.sleep(0.3)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                other.kill()
        end = time.monotonic() + 20
        while self.login(server, server.token) != b"!yv\n":
            assert time.monotonic() < end
            time.sleep(0.1)


class TestGuarded:
    def test_only_the_secret_opens(self) -> None:
        secret = make_secret()
        asked: list[tuple[str, Any]] = []
        guarded = Guarded(secret, lambda *given: asked.append(given) or b"answer")
        assert guarded.apply(secret + "text", 5) == b"answer"
        assert asked == [("text", 5)]
        for text in ("", secret[:-1], secret[1:] + "text", "x" + secret, "\udc80" * 64, None, 7):
            assert guarded.apply(text, 5) is None
        assert guarded.apply(secret) is None
        assert guarded.apply(secret, 5, 5) is None
        assert len(asked) == 1

    def test_a_sealed_one_has_nothing_but_its_function(self) -> None:
        secret = make_secret()
        guarded = Guarded(secret, lambda *given: given)
        assert guarded.Java.implements == ("java.util.function.BiFunction",)
        seal(guarded)
        for name in ("Java", "_attributes", "__class__", "__init__", "__getattribute__"):
            assert getattr(guarded, name)("_attributes") is None
        assert guarded.apply(secret + "text", 5) == ("text", 5)

    def test_secrets_differ(self) -> None:
        assert len({make_secret() for _ in range(100)}) == 100


@pytest.fixture
def folder() -> Iterator[Folder]:
    made = Folder()
    yield made
    made.remove()


NAME = "01234567-89ab-cdef-0123-456789abcdef.message"


class TestFolder:
    def test_a_message(self, folder: Folder) -> None:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        write(folder.path / NAME)
        assert folder.read(NAME) == b"message"

    def test_what_is_no_name_of_a_message(self, folder: Folder, tmp_path: Path) -> None:
        write(tmp_path / NAME)
        for name in ("", ".", "..", "/etc/passwd", f"../{NAME}", str(tmp_path / NAME), NAME + "\n",
                     f"{NAME}\0", "x.message"):  # fmt: skip
            with pytest.raises(SkippingError, match="name"):
                folder.read(name)

    def test_what_is_no_file_of_javas(self, folder: Folder, tmp_path: Path) -> None:
        place = folder.path / NAME
        write(tmp_path / "other")

        def hard_link() -> None:
            os.link(tmp_path / "other", place)

        def open_to_others() -> None:
            write(place)
            place.chmod(0o644)

        def of_somebody_else() -> None:
            write(place)
            os.chown(place, NOBODY, NOBODY)

        made: list[Callable[[], Any]] = [
            lambda: None,
            lambda: place.symlink_to(tmp_path / "other"),
            lambda: os.mkfifo(place, 0o600),
            open_to_others,
        ]
        if tmp_path.stat().st_dev == folder.path.stat().st_dev:
            made.append(hard_link)
        if os.geteuid() == 0:
            made.append(of_somebody_else)
        for make in made:
            make()
            with pytest.raises(SkippingError):
                folder.read(NAME)
            place.unlink(missing_ok=True)

    def test_it_goes_with_the_process(self, run_python: RunPython) -> None:
        code = "from rewrite.bridge.message_files import Folder; print(Folder().path)"
        run = run_python("-c", code)
        assert run.returncode == 0, run.stderr
        assert not Path(run.stdout.strip()).exists()

    def test_leftovers_of_the_dead_are_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with subprocess.Popen([sys.executable, "-c", ""]) as ended:
            pass
        dead = tmp_path / f"skipping-{ended.pid}-1-dead"
        reused = tmp_path / f"skipping-{os.getpid()}-1-reused"
        for left in (dead, reused):
            left.mkdir()
            write(left / NAME)
            (left / "link").symlink_to(tmp_path)
        kept = [tmp_path / "skipping-notes", tmp_path / f"skipping-{os.getppid()}-0-runs"]
        for each in kept:
            each.mkdir()
            write(each / NAME)
        linked = tmp_path / f"skipping-{ended.pid}-1-linked"
        linked.symlink_to(kept[0])
        kept.append(linked)
        if os.geteuid() == 0:
            foreign = tmp_path / f"skipping-{ended.pid}-1-foreign"
            foreign.mkdir()
            os.chown(foreign, NOBODY, NOBODY)
            kept.append(foreign)
        mine = Folder()
        assert sorted(tmp_path.iterdir()) == sorted([*kept, mine.path])
        assert (kept[0] / NAME).exists()
        mine.remove()

    def test_a_fork_leaves_it_to_its_parent(self, folder: Folder) -> None:
        child = os.fork()
        if child == 0:
            folder.remove()
            os._exit(0)
        os.waitpid(child, 0)
        assert folder.path.exists()


def write(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(b"message")


def message(header: Any, *buffers: bytes) -> bytes:
    if isinstance(header, dict):
        header = {"version": CURRENT, **header}
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *buffers])


HOSTILE = {
    "empty": b"",
    "cut": b"\xff\xff\xff\x7f{}",
    "not JSON": message(b"{"),
    "no text": message(b"\xff\xfe"),
    "no object": message([1]),
    "deep": message(b'{"op":' + b"[" * 200_000),
    "lengths that are none": message({"lengths": 5}),
    "negative": message({"lengths": [-1, 1]}),
    "a fraction": message({"lengths": [0.5]}),
    "beyond the end": message({"lengths": [5]}, b"1234"),
    "something left over": message({"lengths": [3]}, b"1234"),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_messages_that_are_wrong(content: bytes) -> None:
    with pytest.raises(SkippingError):
        read_message(content)
    assert reply(content)["failed"] is True


VALUES = {
    "no such part": ({"type": "bigint", "n": 1, "buffers": [1]}, [b"12345678"]),
    "a part from the end": ({"type": "bigint", "n": 1, "buffers": [-1]}, [b"12345678"]),
    "too few": ({"type": "bigint", "n": 2, "buffers": [0]}, [b"12345678"]),
    "a count below zero": ({"type": "bigint", "n": -1, "buffers": [0]}, [b"12345678"]),
    "offsets beyond the end": ({"type": "string", "n": 1, "buffers": [0, 1]},
                               [b"\0\0\0\0\x09\0\0\0", b"abc"]),
    "offsets that go back": ({"type": "string", "n": 2, "buffers": [0, 1]},
                             [b"\0\0\0\0\x03\0\0\0\x01\0\0\0", b"abc"]),
    "offsets below zero": ({"type": "string", "n": 1, "buffers": [0, 1]},
                           [b"\xff\xff\xff\xff\x03\0\0\0", b"abc"]),
    "half a decimal": ({"type": "decimal(10,2)", "n": 1, "buffers": [0]}, [b"12345678"]),
}  # fmt: skip


@pytest.mark.parametrize(("values", "buffers"), VALUES.values(), ids=VALUES.keys())
def test_values_that_are_not_there(values: dict[str, Any], buffers: list[bytes]) -> None:
    column = {"identity": "c", "name": "c", "type": values["type"]}
    leaf = {"op": "in", "column": column, "nulls": False, "values": values}
    with pytest.raises(SkippingError):
        Reader([memoryview(part) for part in buffers]).read(leaf)


def answers(folder: Folder | None = None) -> Answers:
    lookup = Lookup(MemoryStore("callback"), ttl=5)
    return Answers(lambda name: (Settings(), lookup), folder)


def reply(
    content: bytes | str, envelope: str = "0 9000000", folder: Folder | None = None
) -> dict[str, Any]:
    answer = answers(folder).apply(envelope, content)
    read: dict[str, Any] = json.loads(answer[4:])
    return read


@pytest.mark.parametrize("op", [None, "settings", "__init__", 7, ["pruned"]])
def test_questions_that_there_are_not(op: Any) -> None:
    assert "unknown operation" in reply(message({"op": op}))["reason"]


@pytest.mark.parametrize("envelope", ["", "0", "0 x", "0 1 2"])
def test_an_envelope_that_is_wrong(envelope: str) -> None:
    assert reply(message({"op": "indexed"}), envelope)["failed"] is True


def test_a_question_that_comes_too_late() -> None:
    assert reply(message({"op": "indexed"}))["tables"] == {}
    late = reply(message({"op": "indexed"}), "0 0")
    assert late["reason"] == "the query has used up its time for lookups (spark.skipping.timeout)"
    assert late["failed"] is True


@pytest.mark.parametrize("version", [None, CURRENT - 1, CURRENT + 1, "1"])
def test_a_message_of_another_version(version: Any) -> None:
    """It may mean anything: nothing is pruned, and the reason says why."""
    answer = reply(message({"op": "indexed", "version": version}))
    assert "the message from Java has version" in answer["reason"]
    assert answer["failed"] is True


def test_a_message_in_a_file(folder: Folder) -> None:
    (folder.path / NAME).touch(mode=0o600)
    (folder.path / NAME).write_bytes(message({"op": "indexed"}))
    assert reply(NAME, folder=folder)["tables"] == {}
    assert (
        reply("/etc/passwd", folder=folder)["reason"]
        == "'/etc/passwd' is not the name of a message file"
    )
    assert reply(NAME)["failed"] is True


def test_errors_and_warnings_are_not_kept_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    statements = Statements(None)  # type: ignore[arg-type]
    for i in range(50):
        said = json.loads(statements.apply(f"CREATE SKIPPING INDEX {i}", None))
        assert said["key"] in bridge._errors
    assert len(bridge._errors) == 16
    bridge._errors.clear()
    asked = answers()
    for i in range(1_000):
        asked.warn(f"warning {i}")
        asked.warn(f"warning {i}")
    assert len(caplog.records) == 1_000
    assert len(asked._warned) == 256


def test_an_answer_is_there_when_java_looks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Py4J releases what Python holds no longer, in a thread of its own: at times between a reply
    that names it and Java's look at it. Here always.
    """
    client = spark.sparkContext._gateway._gateway_client
    release, call = client.garbage_collect_object, ClientServerConnection._call_proxy

    def call_and_collect(*arguments: Any) -> Any:
        reply = call(*arguments)
        gc.collect()
        return reply

    monkeypatch.setattr(
        client, "garbage_collect_object", lambda name, enqueue=True: release(name, enqueue=False)
    )
    monkeypatch.setattr(ClientServerConnection, "_call_proxy", call_and_collect)
    # A collection between a command and its reply would send on the same connection.
    gc.disable()
    try:
        assert "flint_index_name" in spark.sql("SHOW SKIPPING INDEXES").columns
    finally:
        gc.enable()
