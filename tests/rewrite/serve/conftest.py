"""A server for the tests of a file, with clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rewrite.served import TOKEN, WAYS, Connect, Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    services = [part for way in (*WAYS, "health") for part in (f"--{way}", "0")]
    server = Server(folder, *services, "--conf", f"spark.connect.authenticate.token={TOKEN}")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def clients(server: Server) -> Iterator[Connect]:
    if "connect" not in WAYS:
        pytest.skip("its Connect has no token")
    clients = Connect(server.url())
    yield clients
    clients.kill()  # the server may have ended
