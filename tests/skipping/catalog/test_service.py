"""What the service passes on, what it keeps to itself, and what it does when something is away."""

from __future__ import annotations

import json
import math
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, LessThan

from skipping.__main__ import main
from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.forged import serve
from tests.skipping.catalog.running import (
    FILES,
    ROWS,
    Numbered,
    Service,
    ask,
    client,
    index,
    make,
    planned,
    rows_of,
    values,
)

PLAN = "/v1/namespaces/db/tables/base/plan"
EQ = {"type": "eq", "term": "h", "value": 245}


def tasks(uri: str, **body: Any) -> list[Any]:
    status, said, _ = ask(uri, "POST", PLAN, body)
    assert status == 200, said
    assert said["status"] == "completed"
    found: list[Any] = said["file-scan-tasks"]
    return found


@contextmanager
def recorder(status: int = 200, answers: Any = None) -> Iterator[tuple[str, list[Any]]]:
    """A server that notes what it is sent, and gives one answer to all."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            seen.append((self.command, self.path, dict(self.headers.items()), body))
            sent = json.dumps(answers if answers is not None else {}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.send_header("Set-Cookie", "session=of-the-first")
            self.send_header("X-Upstream", "yes")
            self.send_header("Connection", "x-hop")
            self.send_header("X-Hop", "dropped")
            if status == 307:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with serve(Handler) as uri:
        yield f"{uri}/cat", seen


def test_what_it_says_of_itself(service: Service, behind: RestCatalog, base: Numbered) -> None:
    assert service.said == f"catalog: {service.uri} in front of {behind.uri}"
    assert service.uri.startswith("http://127.0.0.1:")
    _, ours, _ = ask(service.uri, "GET", "/v1/config")
    _, theirs, _ = ask(behind.uri, "GET", "/v1/config")
    assert ours["defaults"]["scan-planning-mode"] == "server"
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan" in ours["endpoints"]
    assert "GET /v1/{prefix}/namespaces/{namespace}" in ours["endpoints"]
    assert not [e for e in ours["endpoints"] if "plan/{plan-id}" in e]
    assert ours["overrides"] == theirs.get("overrides", {})
    plain = make(client(behind.uri), "db.unindexed")
    assert client(service.uri).load_table(plain.name).config["scan-planning-mode"] == "client"
    chosen = client(service.uri, **{"scan-planning-mode": "client"}).load_table(base.name)
    assert planned(chosen, "h = 245") == FILES, "who plans alone asks nobody"
    assert planned(client(service.uri).load_table(plain.name), "h = 245") == FILES
    assert planned(client(service.uri).load_table(plain.name), "k < 40") == 1, "bounds"


def test_all_else_is_as_behind(service: Service, behind: RestCatalog, base: Numbered) -> None:
    for method, path in (
        ("GET", "/v1/namespaces"),
        ("GET", "/v1/namespaces/db/tables?pageSize=1"),
        ("HEAD", "/v1/namespaces/db"),
        ("GET", "/v1/namespaces/none"),
        ("GET", "/v1/namespaces/db/tables/none"),
        ("GET", "/v1/nothing"),
        ("PUT", "/v1/namespaces/db"),
        ("POST", "/v1/namespaces"),
    ):
        ours, theirs = (ask(uri, method, path)[:2] for uri in (service.uri, behind.uri))
        for _, said in (ours, theirs):
            if isinstance(said, dict) and "error" in said:
                said["error"].pop("stack", None)  # of whichever thread it was
        assert ours == theirs, (method, path)
    written = make(client(service.uri, **{"scan-planning-mode": "client"}), "writ.ten")
    assert len(written.table.scan().to_arrow()) == FILES * ROWS
    with pytest.raises(NoSuchTableError):
        client(service.uri).load_table("db.none")
    status, said, _ = ask(service.uri, "POST", "/v1/namespaces/db/tables/none/plan", {})
    assert (status, said["error"]["type"]) == (404, "NoSuchTableException")


def test_a_plan_has_what_readers_need(service: Service, base: Numbered) -> None:
    (task,) = tasks(service.uri, filter=EQ)
    file = task["data-file"]
    size = base.paths[5].stat().st_size
    assert task["residual-filter"] == EQ
    assert file["file-path"].endswith(base.paths[5].name)
    assert (file["file-size-in-bytes"], file["record-count"]) == (size, ROWS)
    assert (file["content"], file["file-format"], file["partition"]) == ("data", "parquet", [])
    assert "lower-bounds" not in file, "what Spark's DELETE would take for the whole truth"
    assert len(tasks(service.uri)) == FILES
    assert tasks(service.uri)[0]["residual-filter"] is True


def test_a_plan_is_empty_only_if_icebergs_own_is(service: Service, base: Numbered) -> None:
    within = {"type": "eq", "term": "s", "value": "n12x"}
    assert planned(base.table, "s = 'n12x'") > 1
    assert len(tasks(service.uri, filter=within)) == 1, "the witness"
    assert tasks(service.uri, filter={**EQ, "value": -1}) == []
    assert tasks(service.uri, filter=False) == []


UNKNOWN = {"type": "later", "term": "h", "value": 245}


@pytest.mark.parametrize(
    ("filter", "opened"),
    [
        (UNKNOWN, FILES),
        ({"type": "not", "child": UNKNOWN}, FILES),
        ({"type": "or", "left": UNKNOWN, "right": EQ}, FILES),
        ({"type": "and", "left": UNKNOWN, "right": EQ}, 1),
        (
            {
                "type": "not",
                "child": {"type": "or", "left": UNKNOWN, "right": {"type": "not", "child": EQ}},
            },
            1,
        ),
        ({**EQ, "term": "H"}, 1),
        ({**EQ, "term": "gone"}, FILES),
        ("h = 245", FILES),
    ],
)
def test_what_is_not_understood_keeps_files(
    service: Service, base: Numbered, filter: Any, opened: int
) -> None:
    assert len(tasks(service.uri, filter=filter)) == opened


def test_a_filter_that_its_client_cannot_read_is_not_sent_back(
    service: Service, base: Numbered
) -> None:
    """PyIceberg sends infinity as null."""
    table = client(service.uri).load_table(base.name)
    assert table.scan("d < 3").count() == 6
    endless = And(LessThan("d", math.inf), LessThan("d", 3.0))
    assert table.scan(endless).count() == 6
    asked = json.loads(endless.model_dump_json())
    assert asked["left"]["value"] is None
    assert {task["residual-filter"]["type"] for task in tasks(service.uri, filter=asked)} == {"or"}


def test_requests_that_are_refused(service: Service, base: Numbered) -> None:
    def refused(body: Any, path: str = PLAN) -> tuple[int, str]:
        status, said, _ = ask(service.uri, "POST", path, body)
        return status, said["error"]["message"]

    status, why = refused({"start-snapshot-id": 1, "end-snapshot-id": 2})
    assert (status, "incremental scans" in why) == (406, True)
    assert refused({"snapshot-id": 5})[0] == 400
    assert refused({"snapshot-id": "x"})[0] == 400
    assert refused(b"[1]")[0] == 400
    assert refused(b"{")[0] == 400
    assert refused(b'{"filter":' + b'{"type":"not","child":' * 9_000)[0] == 400
    assert refused(b" " * (17 << 20))[0] == 413
    for handle in ("", "x", "AAAA" * 20, 7):
        assert refused({"plan-task": handle}, PLAN.replace("/plan", "/tasks"))[0] == 404
    deep: Any = EQ
    for _ in range(300):
        deep = {"type": "not", "child": deep}
    assert len(tasks(service.uri, filter=deep)) == FILES
    many = {"type": "in", "term": "h", "values": [245, *range(10_000, 60_000)]}
    assert len(tasks(service.uri, filter=many)) == 1


def test_keys_of_a_join(service: Service, base: Numbered) -> None:
    """As engines send runtime filters: a list beside what the query says, of any length."""
    for count, opened in ((1, 1), (1_000, 1), (1_000_000, FILES)):
        # Beyond what is compared all files stay, and the client joins.
        keys = {**EQ, "type": "in", "values": [245, *range(10**6, 10**6 + count - 1)]}
        asked = {"type": "and", "left": {"type": "not-null", "term": "h"}, "right": keys}
        start = time.monotonic()
        found = tasks(service.uri, filter=asked)
        assert len(found) == opened, count
        assert time.monotonic() - start < 60
    assert found[0]["residual-filter"]["type"] == "or", "not a million keys for each file"
    far = {**keys, "values": [10**12 + n for n in range(1_300_000)]}
    assert ask(service.uri, "POST", PLAN, {"filter": far})[0] == 413


@pytest.mark.process
def test_credentials_go_where_they_belong_and_stay_nowhere(store: str) -> None:
    secret = {"Authorization": "Bearer of-the-first", "X-Iceberg-Access-Delegation": "vended"}
    hops = {"Connection": "keep-alive, TE", "TE": "trailers", "Upgrade": "h2c"}
    with recorder(403, {"error": {"message": "no", "type": "Forbidden", "code": 403}}) as (
        uri,
        seen,
    ):
        service = Service(uri, store)
        try:
            path = "/v1/a%20b/namespaces/x%1Fy/tables/t"
            status, said, headers = ask(service.uri, "GET", f"{path}?q=%2F", None, secret | hops)
            assert (status, said["error"]["code"]) == (403, 403)
            assert headers["x-upstream"] == "yes"
            assert "x-hop" not in headers
            assert ask(service.uri, "POST", f"{path}/plan", {}, secret)[:2] == (403, said)
            assert ask(service.uri, "POST", f"{path}/tasks", {}, secret)[0] == 403
            ask(service.uri, "GET", "/v1/namespaces")
            for outside in ("/../admin", "/v1/%2e%2E/admin", "/v1/..", "/v1/\\..\\x"):
                assert ask(service.uri, "GET", outside)[0] == 400
        finally:
            code, log = service.stop()
        assert (code, log) == (0, ""), "nor in the log"
    first, plan, listed, last = seen
    assert first[:2] == ("GET", f"/cat{path}?q=%2F")
    assert plan[:2] == listed[:2] == ("GET", f"/cat{path}"), "the table first, as the caller"
    for _, _, headers, _ in (first, plan):
        assert headers["authorization"] == secret["Authorization"]
        assert headers["x-iceberg-access-delegation"] == "vended"
        assert not {"connection", "te", "upgrade"} & {name.lower() for name in headers}
    assert not {"authorization", "cookie"} & {name.lower() for name in last[2]}


@pytest.mark.process
def test_redirects_are_the_clients_own(store: str) -> None:
    with recorder(307) as (uri, seen):
        service = Service(uri, store)
        try:
            status, _, headers = ask(service.uri, "GET", "/v1/config")
            assert (status, headers["location"]) == (307, "http://127.0.0.1:1/elsewhere")
            assert ask(service.uri, "POST", PLAN, {})[0] == 307
        finally:
            service.stop()
    assert len(seen) == 2


@pytest.mark.process
def test_the_upstream_is_away(store: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    service = Service(f"http://127.0.0.1:{port}", store)
    try:
        status, said, _ = ask(service.uri, "GET", "/v1/config")
        assert (status, said["error"]["type"]) == (502, "ServiceFailureException")
    finally:
        assert service.stop()[0] == 0


def test_the_index_is_away(behind: RestCatalog, base: Numbered, tmp_path: Any) -> None:
    """Also while it is used: the plan is Iceberg's own then."""
    kept = tmp_path / "index.sqlite"
    made = make(client(behind.uri), "db.outage")
    index(made, f"sqlite:{kept}")
    service = Service(behind.uri, f"sqlite:{kept}")
    try:
        table = client(service.uri).load_table(made.name)
        assert planned(table, "h = 245") == 1
        for name in tmp_path.iterdir():
            name.write_bytes(b"no database" * 1000)
        assert values(table.scan("h = 245").to_arrow()) == [245]
        assert planned(table, "k < 40") == 1
        assert client(service.uri).load_table(made.name).config["scan-planning-mode"] == "client"
    finally:
        code, log = service.stop()
    assert (code, log.count("no file is skipped")) == (0, 1), log


def test_a_table_that_was_replaced(service: Service, behind: RestCatalog, store: str) -> None:
    catalog = client(behind.uri)
    first = make(catalog, "db.twice")
    index(first, store)
    held = client(service.uri).load_table(first.name)
    assert planned(held, "h = 245") == 1
    catalog.drop_table(first.name)
    second = catalog.create_table(first.name, schema=rows_of(0).schema)
    second.append(rows_of(0).slice(0, 2))
    second.append(rows_of(5).slice(20, 1))
    assert values(client(service.uri).load_table(first.name).scan("h = 245").to_arrow()) == [245]
    assert planned(client(service.uri).load_table(first.name)) == 2


def test_an_index_is_of_the_table_that_the_catalog_names(
    service: Service, behind: RestCatalog, base: Numbered
) -> None:
    """Who writes a table states its UUID and location, and may name another's files in manifests.

    With an index for these, plans would tell which of the other's files have which values.
    """
    catalog = client(behind.uri)
    mine = catalog.create_table("db.mine", schema=base.table.schema())
    with mine.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for task in base.table.scan().plan_files():
            append.append_data_file(task.file)
    mine = catalog.load_table("db.mine")
    theirs = base.table.metadata
    stated = {"table-uuid": str(theirs.table_uuid), "location": theirs.location}
    forged = {**json.loads(mine.metadata.model_dump_json()), **stated}
    place = f"{mine.location()}/metadata/00009-forged.metadata.json"
    Path(place.split(":")[-1]).write_text(json.dumps(forged))
    catalog.register_table("db.forged", place)
    asked = client(service.uri).load_table("db.forged")
    assert (asked.metadata.table_uuid, asked.location()) == (theirs.table_uuid, theirs.location)
    assert planned(client(service.uri).load_table(base.name), "h = 245") == 1
    assert planned(asked, "h = 245") == FILES
    assert asked.config["scan-planning-mode"] == "client"


def test_files_that_came_later_are_read(service: Service, behind: RestCatalog, store: str) -> None:
    made = make(client(behind.uri), "db.later")
    index(made, store)
    table = client(service.uri).load_table(made.name)
    (before,) = [s.snapshot_id for s in table.metadata.snapshots[-1:]]
    assert planned(table, "h = 245") == 1
    client(behind.uri).load_table(made.name).append(rows_of(5).slice(20, 3))
    assert values(table.scan("h = 245").to_arrow()) == [245, 245]
    assert planned(table, "h = 245") == 2
    assert planned(table, "h = 245", snapshot_id=before) == 1


def test_command_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (short := tmp_path / "key").write_bytes(b"k" * 31)
    monkeypatch.delenv("SKIPPING_STORE", raising=False)
    store = ("--conf", "spark.skipping.store=memory:x")
    for arguments, why in (
        (["--upstream", "http://h"], "no store is configured"),
        (["--upstream", "ftp://h", *store], "--upstream takes an address"),
        (["--upstream", "http://u:p@h", *store], "callers bring their own"),
        (
            ["--upstream", "http://h", *store, "--conf", "spark.skipping.opensearch.password=x"],
            "environment only",
        ),
        (
            ["--upstream", "http://h", *store, "--conf", "spark.skipping.nothing=x"],
            "unknown setting",
        ),
        (["--upstream", "http://h", *store, "--host", "no.such.host.invalid"], "cannot start"),
        (["--upstream", "http://h", *store, "--key", str(short)], "32 random bytes or more"),
        (["--upstream", "http://h", *store, "--key", f"{short}.not"], "cannot start"),
    ):
        assert main(["catalog", *arguments]) == 1
        assert why in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["catalog", "--upstream", "http://h", "--io", "x"])
    assert "--io takes key=value" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    for room in ("command", "service"):
        monkeypatch.delitem(sys.modules, f"skipping.catalog.{room}", raising=False)
    assert main(["catalog", "--upstream", "http://h"]) == 1
    assert "pip install 'lakehouse-file-skipping[catalog]'" in capsys.readouterr().err
