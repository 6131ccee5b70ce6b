"""Tables in a bucket, whose files are read with what the upstream vends to each caller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError

from tests.object_store import ACCESS, SECRET, ObjectStore
from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.running import FILES, Service, ask, client, index, make, planned, values

pytestmark = pytest.mark.nightly

RIGHT, WRONG = f"{ACCESS}:{SECRET}", f"{ACCESS}:wrong-secret"
PATH = "/v1/namespaces/db/tables/vended"


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch, ObjectStore() as made:
        # This store takes no checksums behind what is uploaded.
        patch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
        yield made


@pytest.fixture(scope="module")
def vending(bucket: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("vending"), bucket) as server:
        yield server


def test_each_caller_reads_with_what_it_is_given(
    vending: RestCatalog, bucket: ObjectStore, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'index.sqlite'}"
    made = make(client(vending.uri, token=RIGHT), "db.vended")
    index(made, store)

    def plan(token: str, part: str = "plan", **body: Any) -> tuple[int, Any]:
        said = ask(
            service.uri, "POST", f"{PATH}/{part}", body, {"Authorization": f"Bearer {token}"}
        )
        return said[:2]

    service = Service(vending.uri, store, "--page", "5")
    try:
        # What fails for one caller is not kept for the next, nor the other way round.
        for _ in range(2):
            status, said = plan(WRONG)
            assert (status, said["error"]["type"]) == (403, "ForbiddenException")
            assert "vended/" not in json.dumps(said), "no name of a file"
            status, said = plan(RIGHT)
            assert (status, len(said["file-scan-tasks"])) == (200, 5)
        (task, _) = said["plan-tasks"]
        assert plan(RIGHT, "tasks", **{"plan-task": task})[0] == 200
        assert plan(WRONG, "tasks", **{"plan-task": task})[0] == 403

        table = client(service.uri, token=RIGHT).load_table("db.vended")
        assert table.config["scan-planning-mode"] == "server"
        assert planned(table, "h = 245") == 1
        assert planned(table) == FILES
        assert values(table.scan("h = 245").to_arrow()) == [245]
        wrong = client(service.uri, token=WRONG).load_table("db.vended")
        with pytest.raises(ForbiddenError, match="refuses the credentials"):
            planned(wrong, "h = 245")
        alone = client(service.uri, token=WRONG, **{"scan-planning-mode": "client"})
        with pytest.raises(OSError, match=r"(?i)denied"):
            planned(alone.load_table("db.vended"), "h = 245")
    finally:
        code, log = service.stop()
    assert (code, log) == (0, ""), "no secret in the log"
    kept = (tmp_path / "index.sqlite").read_bytes()
    assert not [s for s in (ACCESS, SECRET) if s.encode() in kept]


def test_a_bucket_that_lost_something(
    vending: RestCatalog, bucket: ObjectStore, tmp_path: Path
) -> None:
    """Another than that it refuses: who asks again may be answered."""
    make(client(vending.uri, token=RIGHT), "db.gone")
    manifests = list(bucket.folder.glob("warehouse/db/gone/metadata/snap-*.avro"))
    assert manifests
    service = Service(vending.uri, f"sqlite:{tmp_path / 'index.sqlite'}")
    try:
        for path in manifests:
            path.rename(path.with_suffix(".away"))
        uri, headers = "/v1/namespaces/db/tables/gone/plan", {"Authorization": f"Bearer {RIGHT}"}
        status, said, _ = ask(service.uri, "POST", uri, {}, headers)
        assert (status, said["error"]["type"]) == (500, "ServiceFailureException")
        for path in manifests:
            path.with_suffix(".away").rename(path)
        status, said, _ = ask(service.uri, "POST", uri, {}, headers)
        assert (status, len(said["file-scan-tasks"])) == (200, FILES)
    finally:
        assert service.stop() == (0, "")


def test_why_a_file_was_not_read_is_asked_of_its_bucket(
    vending: RestCatalog, bucket: ObjectStore, tmp_path: Path
) -> None:
    made = make(client(vending.uri, token=RIGHT), "db.unread")
    file = next(bucket.folder.glob("warehouse/db/unread/data/*.parquet"))
    file.unlink()
    built = index(made, f"sqlite:{tmp_path / 'index.sqlite'}")
    assert built.state.unread == 1
    assert "Path does not exist" in str(built.state.error)
