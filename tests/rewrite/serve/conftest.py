"""A server for the tests of a file, with clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rewrite.served import TOKEN, Connect, Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(
        folder, "--connect", "0", "--thrift", "0", "--health", "0",
        "--conf", f"spark.connect.authenticate.token={TOKEN}",
    )  # fmt: skip
    yield server
    server.stop()


@pytest.fixture(scope="module")
def clients(server: Server) -> Iterator[Connect]:
    clients = Connect(server.url())
    yield clients
    clients.kill()  # the server may have ended
