"""Each engine on each format, with each form of filter: files it must not open are garbage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skipping import SkippingIndex
from tests.skipping.tables.matrix import ASKED, ENGINES, FORMATS, check, check_stream, indexed
from tests.skipping.tables.matrix import table as printed
from tests.test_house import ROOT

pytestmark = pytest.mark.nightly

DAFT = "daft==0.7.26"


@pytest.fixture(scope="module", params=FORMATS)
@staticmethod
def table(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SkippingIndex, Path]:
    folder = tmp_path_factory.mktemp("matrix") / "t"
    return indexed(request.param, folder), folder


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("engine", ENGINES)
def test_only_the_files_that_are_needed_are_opened(
    table: tuple[SkippingIndex, Path], engine: str, asked: str
) -> None:
    check(*table, engine, asked)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("library", ["pandas", "DataFusion"])
def test_stream_opens_only_the_files_of_the_scan(
    table: tuple[SkippingIndex, Path], library: str, asked: str
) -> None:
    check_stream(*table, library, asked)


def test_stream_to_daft_opens_only_the_files_of_the_scan(tmp_path: Path) -> None:
    """Daft requires an older pyarrow than the tests do, so it is in a folder of its own."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    installed = subprocess.run(
        [*pip, "install", "--no-deps", "--no-compile", "--target", tmp_path, DAFT],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if installed.returncode:
        pytest.skip(f"pip cannot install {DAFT}: {installed.stderr.strip()}")
    run = subprocess.run(
        [sys.executable, "-m", "tests.skipping.tables.matrix", "Daft"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "DAFT_ANALYTICS_ENABLED": "0", "PATH": ""},
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    done = [f"{format} {asked}" for format in FORMATS for asked in ASKED]
    assert run.stdout.splitlines() == done


def test_the_page_has_the_table() -> None:
    assert printed() in (ROOT / "docs" / "quickstart.md").read_text()
