"""Spark's UI of a server has the tab "File skipping"."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from tests.rewrite.served import Server, ThriftClient, eventually, make

pytestmark = [pytest.mark.process, pytest.mark.nightly]


def test_tab_shows_what_clients_run(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = ["--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}"]
    server = Server(tmp_path, "--thrift", "0", *settings)
    try:
        client = ThriftClient(server.port("thrift"))
        make(client, tmp_path, "shown")
        client.sql("CREATE SKIPPING INDEX ON shown (k VALUE_LIST)")
        client.sql("SELECT id FROM shown WHERE k = 3")
        client.close()

        def is_shown() -> bool:
            address = f"http://127.0.0.1:{port}/skipping/"
            with urllib.request.urlopen(address, timeout=30) as response:
                page = response.read().decode()
            return "SELECT id FROM shown WHERE k = ?" in page and "k VALUE_LIST" in page

        eventually(is_shown, 20)
    finally:
        server.stop()
