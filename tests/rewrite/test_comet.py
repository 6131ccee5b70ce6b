"""DataFusion Comet with file skipping: `comet.py` runs in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skipping.requirements import require_spark
from tests.jvm import Artifact, find_jdk

pytestmark = [
    pytest.mark.process,
    pytest.mark.nightly,
    pytest.mark.skipif(require_spark().spark != "4.1", reason="the jar is for Spark 4.1"),
]

SCRIPT = Path(__file__).with_name("comet.py")
COMET = Artifact(
    "org.apache.datafusion",
    "comet-spark-spark4.1_2.13",
    "1.2.0",
    "489aac43139f31a863bc3a8011253d3294c548861d5e8006f545de513d11a4c5",
    parts=("org.apache.datafusion:comet-spark-spark4.1_2.13:1.2.0",),
)
FILES = {
    "literal": [1],
    "aggregate": [1],
    "absent": [0],
    "absent in one file": [0],
    "absent in one file without AQE": [0],
    "broadcast": [1],
    "broadcast without AQE": [1],
    "shuffle": [1],
    "shuffle without AQE": [1],
    "top rows": [1],
    "union": [1, 1],
    "self-join": [1, 1],
}
"""The files of the fact table that each of its scans must read."""


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("comet")
    (jar,) = COMET.jars(find_jdk() / "bin" / "java").glob("*.jar")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(jar)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    out: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return out


@pytest.mark.parametrize("using", ["iceberg", "delta"])
@pytest.mark.parametrize("query", FILES)
def test_comet_reads_pruned_files(observations: dict[str, Any], using: str, query: str) -> None:
    runs = observations[using][query]
    rows = [run["rows"] for run in runs.values()]
    assert rows[0]
    assert rows == [rows[0]] * 4
    is_small = "one file" in query
    for comet in ("false", "true"):
        run = runs[f"comet={comet} hooks=true"]
        assert run["opened"] == FILES[query], run["why"]
        everything = [1 if is_small else 20] * len(FILES[query])
        assert runs[f"comet={comet} hooks=false"]["opened"] == everything


@pytest.mark.parametrize("query", FILES)
def test_comet_scans_stay_native(observations: dict[str, Any], query: str) -> None:
    runs = observations["iceberg"][query]
    natives = [runs[f"comet=true hooks={hooks}"]["native"] for hooks in ("false", "true")]
    assert natives[0] >= len(FILES[query])
    assert natives[1] == natives[0]
    assert not any(run["native"] for run in observations["delta"][query].values())


def test_comet_opens_no_pruned_file(observations: dict[str, Any]) -> None:
    assert observations["needed"] == 1
    assert observations["damaged"]["true"] == ["Row(k=47159, v=30113)"]
    assert observations["damaged"]["false"][0] == "error", (
        "without skipping, it opens the other files"
    )
