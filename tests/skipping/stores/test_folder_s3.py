"""The folder store on S3: one of several clients creates a key, and faults lose no commit."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from providers.errors import StoreError
from skipping.stores.folder import log, upkeep
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from tests.faults import FAULTS, Fault, Proxy, proxy, some
from tests.object_store import options_at
from tests.skipping.stores import writers
from tests.skipping.stores.samples import bounds, definition, entries, fill, race
from tests.skipping.stores.test_folder import state_of

pytestmark = [pytest.mark.process, pytest.mark.nightly]


@pytest.fixture
def faulty(s3: int) -> Iterator[Proxy]:
    """A proxy before the server."""
    with proxy(s3) as made:
        yield made


def objects_through(faulty: Proxy, url: str, **options: str) -> ObstoreObjects:
    return ObstoreObjects(url, options_at(faulty.port) | options)


def test_one_of_8_clients_creates_a_key(s3_url: str) -> None:
    objects = ObstoreObjects(s3_url)
    for n in range(50):
        name = f"log/{n}"
        won = race(8, lambda client, name=name: objects.create(name, str(client).encode()))
        assert sorted(won) == [False] * 7 + [True]
        assert objects.get(name, most=9) == str(won.index(True)).encode()


@pytest.mark.parametrize("fault", [*FAULTS, "late"])
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_fault_leaves_all_or_nothing(
    faulty: Proxy, s3_url: str, tmp_path: Path, method: str, fault: Fault
) -> None:
    """Each request of a write fails once; a failed write can be repeated."""
    direct = ObstoreObjects(s3_url)
    timeout = "4s" if fault == "late" else "30s"
    one = FolderStore(objects_through(faulty, s3_url, timeout=timeout), tmp_path / "one")
    fill(one, bounds([1, 2]))
    faulty.late = 5.0
    for at in range(100):
        before = len(faulty.made)
        sent = faulty.requests[:]

        def choose(of: str, path: str, at: int = at, sent: list[str] = sent) -> Fault | None:
            now = sum(each.startswith(method) for each in faulty.requests[len(sent) :])
            return fault if of == method and now == at + 1 else None

        faulty.choose = choose
        try:
            one.state("i")
            (ordinal,) = one.reserve("i", 1)
            one.write("i", entries([ordinal], bounds([ordinal])), revision=1)
        except StoreError:
            (ordinal,) = one.reserve("i", 1)
            one.write("i", entries([ordinal], bounds([ordinal])), revision=1)
        if len(faulty.made) == before:
            break
    else:
        pytest.fail("there were more than 100 requests")
    assert at >= 1, "a request failed"
    faulty.choose = lambda of, path: None
    reader = FolderStore(direct, tmp_path / "reader")
    seen = reader.catalogue("i").files["ordinal"].to_pylist()
    assert len(set(seen)) == len(seen)
    assert ordinal in seen
    assert state_of(reader) == state_of(one)
    ids = [each.id for each in writers.commits(direct)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("changes", [10, pytest.param(125, marks=pytest.mark.soak)])
def test_commits_of_8_writers_survive_faults(
    faulty: Proxy, s3_url: str, tmp_path: Path, changes: int
) -> None:
    FolderStore(ObstoreObjects(s3_url), tmp_path / "one").define(definition(), expect=None)
    faulty.delay, faulty.choose = 0.03, some(0.05)
    reports: dict[str, list[list[object]]] = {f"w{n}": [] for n in range(8)}

    def write(n: int) -> None:
        store = FolderStore(objects_through(faulty, s3_url), tmp_path / f"host{n}")
        writers.write(store, f"w{n}", changes, lambda *line: reports[f"w{n}"].append([*line]))

    assert race(8, write) == [None] * 8
    failed = Counter(
        re.sub("[0-9a-f]{32}|[0-9]+", "N", str(line[1]))[:90]
        for lines in reports.values()
        for line in lines
        if line[0] == "failed"
    )
    print(f"faults={Counter(faulty.made)} requests={len(faulty.requests)} failed={failed}")
    assert set(faulty.made) <= set(FAULTS)
    assert len(set(faulty.made)) > 3
    reader = FolderStore(ObstoreObjects(s3_url), tmp_path / "reader")
    assert writers.check(reader, ObstoreObjects(s3_url), reports) == 8 * changes


@pytest.mark.parametrize("days", [-5, 5])
def test_the_clock_of_the_server_does_not_matter(
    faulty: Proxy, s3_url: str, tmp_path: Path, days: int
) -> None:
    faulty.skew = timedelta(days=days)
    objects = objects_through(faulty, s3_url)
    one = FolderStore(objects, tmp_path / "one")
    fill(one, bounds([1, 2]))
    objects.create(f"data/{'0' * 32}.arrow", b"not committed yet")
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("i", 1)
    assert objects.get(f"data/{'0' * 32}.arrow", most=99) is not None
    modified = next(objects.list("data/")).modified.timestamp()
    assert abs(modified - time.time() - 86_400 * days) < 3_600
    one.remove("i", pa.array([0]))
    reader = FolderStore(objects, tmp_path / "reader")
    assert state_of(reader) == state_of(one)
    assert objects.get(log.HINT, most=999) is not None
