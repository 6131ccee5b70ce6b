"""Provide one Spark session with the hooks for all tests, and mark tests by what they use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import pytest
from pyspark.sql import SparkSession

import rewrite
from skipping.requirements import require_spark
from tests.object_store import ObjectStore

# Options for every Java process that the tests start. Java's second compiler (C2) is disabled: it
# would take a third of the CPU time of test_joins.py, more than it saves. Without it the default
# code cache is too small.
os.environ["JDK_JAVA_OPTIONS"] = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
)
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")

# Select one with `--hypothesis-profile`. Machines may be busy, so slow examples are no failure.
for _profile, _examples in {"fast": 10, "ci": 100, "soak": 5_000}.items():
    hypothesis.settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        print_blob=True,
    )
hypothesis.settings.load_profile("ci")

MARKS = {
    "spark": "spark",
    "opensearch": "opensearch",
    "cluster": "opensearch",
    "server": "process",
    "behind": "process",
    "objects": "process",
    "pool": "process",
    "processes": "process",
    "run_python": "process",
    "workers": "process",
}
"""The mark of a test that uses a fixture. A test without any of them is a `unit` test."""
ROOT = Path(__file__).parents[1]
WITHOUT_JAVA = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": ""}
"""An environment for `run_python` in which no Java is found."""


def pytest_configure(config: pytest.Config) -> None:
    """Build the jar of the Java sources if they have changed; once, not in each process."""
    if not hasattr(config, "workerinput"):
        subprocess.run([sys.executable, ROOT / ".ci" / "jars.py"], check=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the processes they start, and run the files with most Spark tests first."""
    if not require_spark().iceberg:  # it has no release for this line of Spark
        items[:] = [item for item in items if "iceberg" not in item.nodeid]
    sizes = Counter[Path]()
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARKS:
                item.add_marker(MARKS[fixture])
        marks = {mark.name for mark in item.iter_markers()}
        if not marks & {"spark", "opensearch", "process"}:
            item.add_marker("unit")
        sizes[item.path] += "spark" in marks
    # With two test processes, a large file that starts last would leave one of them idle.
    items.sort(key=lambda item: -sizes[item.path])


class RunPython(Protocol):
    """Run Python in a process of its own with these arguments, in the project's folder."""

    def __call__(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """Run Python in a process of its own; options are those of `subprocess.run`."""

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        usual = {"capture_output": True, "text": True, "timeout": 300, "cwd": ROOT}
        return subprocess.run([sys.executable, *map(str, arguments)], **(usual | options))

    return run


@pytest.fixture
def objects() -> Iterator[ObjectStore]:
    """An object store with one empty bucket."""
    with ObjectStore() as made:
        yield made


@pytest.fixture(scope="session")
def spark(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session for small data. Its mode is `strict`, so a failed lookup fails the test."""
    # Compiling a query over a few rows takes longer than interpreting it.
    is_compiled = pytestconfig.getoption("--hypothesis-profile") != "fast"
    # Tests share Iceberg catalogs between Spark and PyIceberg in SQLite files.
    packages = ["org.xerial:sqlite-jdbc:3.54.1.0"]
    if release := os.environ.get("SKIPPING_TEST_ICEBERG"):
        packages.append(f"{require_spark().iceberg_jar.rpartition(':')[0]}:{release}")
    builder = (
        SparkSession.builder.master(os.environ.get("SKIPPING_TEST_MASTER", "local[2]"))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.jars.packages", ",".join(packages))
        .config("spark.driver.memory", "2g")
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        .config("spark.skipping.mode", "strict")
        .config("spark.sql.codegen.wholeStage", str(is_compiled).lower())
    )
    if os.environ.get("SKIPPING_TEST_FOLDER"):
        folder = tmp_path_factory.mktemp("store")
        builder.config("spark.skipping.store", (folder / "shared").as_uri())
        builder.config("spark.skipping.store.replica", str(folder))
    session = rewrite.session(builder)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
