"""Restarts and outages while clients ask: each query gets its rows."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.load import Load, Relay
from tests.skipping.catalog.running import (
    FILES,
    Numbered,
    Service,
    ask,
    client,
    index,
    make,
    planned,
)
from tests.skipping.stores.rogue import rogue

pytestmark = [pytest.mark.process, pytest.mark.nightly]


def test_no_query_fails(behind: RestCatalog, tmp_path: Path) -> None:
    made = make(client(behind.uri), "db.loaded")
    (folder := tmp_path / "store").mkdir()
    kept = f"sqlite:{folder / 'index.sqlite'}"
    index(made, kept)
    (key := tmp_path / "key").write_bytes(b"k" * 32)
    options = ("--share-port", "--page", "5", "--key", str(key))
    with Relay(int(urlsplit(behind.uri).port or 0)) as relay:
        upstream = f"http://127.0.0.1:{relay.port}"
        services = [Service(upstream, kept, *options)]
        port = int(urlsplit(services[0].uri).port or 0)
        try:
            with Load(services[0].uri, made.name) as load:

                def start() -> None:
                    services.append(Service(upstream, kept, *options, port=port))

                def hand_over() -> None:
                    start()
                    code, log = services[-2].stop()
                    assert (code, log) == (0, "")

                def crash() -> None:
                    services[-1].stop(signal.SIGKILL)
                    start()

                def lose_store() -> None:
                    shutil.copytree(folder, tmp_path / "saved")
                    for name in folder.iterdir():
                        name.write_bytes(b"no database" * 1000)

                def restore() -> None:
                    for name in folder.iterdir():
                        name.unlink()
                    shutil.copytree(tmp_path / "saved", folder, dirs_exist_ok=True)

                def slow() -> None:
                    relay.delay = 0.3

                def fast() -> None:
                    relay.delay = 0.0

                load.during("calm", lambda: None)
                load.during("handed over", hand_over)
                load.during("store away", lose_store)
                load.during("store back", restore)
                load.during("upstream slow", slow)
                load.during("crash", crash)
                load.during("calm again", fast)
                time.sleep(0.5)
        finally:
            services[-1].stop()
    assert not [query for query in load.queries if query.error]
    again = {query.phase for query in load.queries if query.attempts > 1}
    # Queries that were under way then are noted under what went before.
    assert again <= {"calm", "handed over", "upstream slow", "crash"}
    opened: dict[str, list[int]] = {}
    for query in load.queries:
        opened.setdefault(query.phase, []).append(query.opened)
    assert min(opened["calm"]) == max(opened["calm"]) == 1
    assert max(opened["store away"]) == FILES, "in full"
    assert min(opened["calm again"]) == 1, "with the index again"


def test_a_store_that_says_nothing(behind: RestCatalog, base: Numbered) -> None:
    with rogue("silent") as address:
        service = Service(behind.uri, f"opensearch://{address}")
        try:
            start = time.monotonic()
            table = client(service.uri).load_table(base.name)
            assert planned(table, "h = 245") == FILES
            assert planned(table, "k < 40") == 1
            assert time.monotonic() - start < 20
        finally:
            code, log = service.stop()
    assert (code, "no file is skipped" in log) == (0, True), log


def test_pages_outlive_the_service(behind: RestCatalog, store: str, base: Numbered) -> None:
    path = "/v1/namespaces/db/tables/base"
    with_key = ("--page", "5", "--key", __file__)
    first = Service(behind.uri, store, *with_key)
    try:
        _, plan, _ = ask(first.uri, "POST", f"{path}/plan", {})
    finally:
        first.stop(signal.SIGKILL)
    second = Service(behind.uri, store, *with_key)
    try:
        found = plan["file-scan-tasks"]
        for task in plan["plan-tasks"]:
            status, said, _ = ask(second.uri, "POST", f"{path}/tasks", {"plan-task": task})
            assert status == 200
            found += said["file-scan-tasks"]
        assert len({task["data-file"]["file-path"] for task in found}) == len(found) == FILES
    finally:
        second.stop()
