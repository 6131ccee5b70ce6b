"""A release, made in a clone: both packages, tried, and installed from an index in a folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]
NAME = "lakehouse-file-skipping"


def git(*arguments: str | Path, cwd: Path) -> str:
    """Run git as somebody."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    command = ["git", *who, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def release(clone: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, clone / ".ci" / "release.py", *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that a release may commit to."""
    folder = tmp_path_factory.mktemp("release") / "clone"
    git("clone", "--quiet", ROOT, folder, cwd=ROOT)
    for key, value in (("user.name", "a"), ("user.email", "a@example.com")):
        git("config", key, value, cwd=folder)
    return folder


def test_a_release_refuses_a_version_without_changes(clone: Path) -> None:
    done = release(clone, "99.0.0")
    assert done.returncode == 1
    assert "CHANGELOG.md has no section: ## [99.0.0] - unreleased" in done.stderr
    assert release(clone, "next").returncode == 1


def test_a_release_refuses_a_checkout_with_changes(clone: Path) -> None:
    (clone / "left.txt").write_text("")
    done = release(clone, "0.1.0")
    (clone / "left.txt").unlink()
    assert done.returncode == 1
    assert "left.txt" in done.stderr


def test_a_release_can_be_installed_from_its_index(clone: Path, tmp_path: Path) -> None:
    changelog = clone / "CHANGELOG.md"
    heading = re.compile(r"^## \[\d.*$", re.MULTILINE)
    changelog.write_text(heading.sub("## [0.1.1] - unreleased", changelog.read_text(), count=1))
    git("commit", "--quiet", "--all", "-m", "docs: begin the changes of 0.1.1", cwd=clone)

    done = release(clone, "0.1.1", "--index", tmp_path / "index")
    assert done.returncode == 0, done.stderr
    assert "git tag --annotate v0.1.1" in done.stdout
    assert git("log", "-1", "--format=%s", cwd=clone) == "release: set the version to 0.1.1\n"
    assert re.search(r"^## \[0\.1\.1\] - \d{4}-\d\d-\d\d$", changelog.read_text(), re.MULTILINE)

    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path]
    index = f"file://{tmp_path}/index/simple"
    subprocess.run([*map(str, pip), "--index-url", index, f"{NAME}==0.1.1"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith("lakehouse_file_skipping-0.1.1-")
    again = release(clone, "0.1.1", "--index", tmp_path / "index")
    assert "published already" in again.stderr
