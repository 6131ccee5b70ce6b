"""The stores under contract: a new one is one line in FACTORIES.

$SKIPPING_TEST_STORE adds one of another project, `module:Class`, made of a folder's path.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import shutil
import tempfile
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from skipping.stores import IndexStore
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.memory.store import MemoryStore
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.object_store import BUCKET, ObjectStore, options_at
from tests.opensearch import Node
from tests.skipping.stores.proxy import Front, front

_LOG = pytest.StashKey[Node]()

# Opt-in: it fetches another 100 MB and starts a second sort of server.
collect_ignore = [] if os.environ.get("SKIPPING_TEST_SECURED") else ["test_opensearch_secured.py"]


@pytest.fixture(scope="session")
def opensearch(request: pytest.FixtureRequest) -> Iterator[str]:
    """`host:port` of a node for the whole run; that of $OPENSEARCH, if it is set."""
    running = os.environ.get("OPENSEARCH", "").rpartition("/")[2]
    if running:
        yield running
        return
    node = Node()
    request.config.stash[_LOG] = node
    try:
        yield node.start()
    finally:
        node.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Show what the node said last beside what failed."""
    report: pytest.TestReport = yield
    node = item.config.stash.get(_LOG, None)
    if report.failed and node is not None and "opensearch" in item.nodeid:
        report.sections.append(("OpenSearch", node.log()))
    return report


def _opensearch(request: pytest.FixtureRequest) -> OpenSearchStore:
    """A store of its own on the shared node, deleted at the end."""
    address = request.getfixturevalue("opensearch")
    prefix = f"{uuid.uuid4().hex[:12]}-"

    def delete() -> None:
        url = f"http://{address}/{prefix}*"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=60).close()

    request.addfinalizer(delete)
    return OpenSearchStore(f"http://{address}", Access(prefix=prefix))


def _folder(folder: Path) -> FolderStore:
    return FolderStore(ObstoreObjects(f"file://{folder}/shared"), folder / "replica.db")


@pytest.fixture(scope="session")
def s3() -> Iterator[int]:
    """The port of an S3 server for the whole run; $SKIPPING_TEST_S3, if it is set."""
    if running := os.environ.get("SKIPPING_TEST_S3"):
        yield int(running)
        return
    with ObjectStore() as server:
        yield server.port


@pytest.fixture
def s3_url(s3: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A new address in a bucket, which the environment can open; replicas are in `tmp_path`."""
    for name, value in options_at(s3).items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.chdir(tmp_path)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def _on_s3(request: pytest.FixtureRequest, folder: Path) -> FolderStore:
    options = options_at(request.getfixturevalue("s3"))
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    return FolderStore(ObstoreObjects(url, options), folder / "replica.db")


FACTORIES: dict[str, Callable[[pytest.FixtureRequest, Path], IndexStore]] = {
    "memory": lambda request, folder: MemoryStore(folder.name),
    "folder": lambda request, folder: _folder(folder),
    "s3": _on_s3,
    "sqlite": lambda request, folder: SqliteStore(folder / "store.db"),
    "opensearch": lambda request, folder: _opensearch(request),
}
if _candidate := os.environ.get("SKIPPING_TEST_STORE"):
    _factory = pkgutil.resolve_name(_candidate)
    FACTORIES["candidate"] = lambda request, folder: _factory(folder / "store")
ONE_PROCESS = {"memory"}  # a pickled copy of these is another store
MARKS = {
    "opensearch": [pytest.mark.opensearch],
    "s3": [pytest.mark.process, pytest.mark.nightly],
}
MARKED = {name: pytest.param(name, marks=MARKS.get(name, [])) for name in FACTORIES}


@pytest.fixture(params=MARKED.values())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> IndexStore:
    """A new, empty store of each sort."""
    return FACTORIES[request.param](request, tmp_path)


@pytest.fixture(scope="module", params=MARKED.values())
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    """One store of each sort for all examples of a property; every example makes its own index."""
    return FACTORIES[request.param](request, tmp_path_factory.mktemp("shared"))


@pytest.fixture(params=[param for name, param in MARKED.items() if name not in ONE_PROCESS])
def reachable(request: pytest.FixtureRequest, tmp_path: Path) -> IndexStore:
    """A new store that other processes reach through a pickled copy."""
    return FACTORIES[request.param](request, tmp_path)


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Four other processes, which share nothing with this one."""
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(abs, range(4)))
        yield pool


@pytest.fixture
def between(opensearch: str) -> Iterator[Front]:
    with front(opensearch) as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that others may read; those of tmp_path are closed to them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def delete_indexes(opensearch: str) -> Iterator[None]:
    """What `cluster.make` made on the shared node is gone after the module."""
    yield
    request = urllib.request.Request(f"http://{opensearch}/faults-*", method="DELETE")
    urllib.request.urlopen(request, timeout=60).close()
