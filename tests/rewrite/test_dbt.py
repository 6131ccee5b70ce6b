"""dbt with an incremental model that merges: the merge opens the file that it changes."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.rewrite.differential import spoiled
from tests.rewrite.served import Server, ThriftClient
from tests.test_docs import DOCS, blocks
from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]

RELEASES = ("dbt-core==1.10.23", "dbt-spark[PyHive]==1.10.3")
TABLES = {
    "delta": "spark-warehouse/shop.db/orders",
    "iceberg": "spark-warehouse/iceberg/shop/orders",
}


@pytest.fixture(scope="module")
def dbt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with dbt, whose dependencies exclude some of ours; Spark is this one's."""
    folder = tmp_path_factory.mktemp("dbt")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", *RELEASES], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "after.pth").write_text("\n".join(ours))
    return folder / "bin"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """That of the page, in a folder that dbt writes into."""
    folder = tmp_path / "project"
    for block in blocks(DOCS / "ways.md"):
        if block.section == "dbt":
            file = folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code)
    return folder


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """One whose own catalog is of a format: dbt-spark names no other."""
    conf = []
    if request.param == "iceberg":
        conf = ["--conf", "spark.sql.defaultCatalog=iceberg"]
        # JDBC's sessions begin there.
        (tmp_path / "spark-warehouse/iceberg/default").mkdir(parents=True)
    server = Server(tmp_path, "--thrift", "0", *conf)
    yield server, request.param
    server.stop()


def test_a_merge_through_the_thrift_server(
    server: tuple[Server, str], dbt: Path, project: Path, tmp_path: Path
) -> None:
    served, format = server
    port = served.port("thrift")
    for name, said, meant in (
        ("profiles.yml", "port: 10000", f"port: {port}"),
        ("dbt_project.yml", "file_format: delta", f"file_format: {format}"),
    ):
        text = (project / name).read_text()
        assert said in text
        (project / name).write_text(text.replace(said, meant))
    command = [dbt / "dbt", "--no-version-check", "run", "--profiles-dir", "."]

    def run() -> None:
        done = subprocess.run(
            command,
            cwd=project,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout

    run()
    files = sorted((tmp_path / TABLES[format]).rglob("*.parquet"))
    others = [path for path in files if 3 not in pq.read_table(path)["id"].to_pylist()]
    assert len(files) == 8
    assert len(others) == 7
    with spoiled(others):
        run()
    client = ThriftClient(port)
    found = client.sql("SELECT count(*), count_if(state = 'changed') FROM shop.orders")
    assert found == [("800", "2")]
    client.close()


def test_a_merge_in_a_session(dbt: Path, project: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [dbt / "python", "-W", "ignore", Path(__file__).with_name("dbt_session.py"), project],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "looked in [(8, 1)]" in done.stdout, done.stdout
