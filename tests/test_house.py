"""The house itself: who imports whom, and what stands where."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("providers", "rewrite", "skipping")
TOP = {
    *(
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "MANIFEST.in",
        "Makefile",
        "README.md",
    ),
    *("SECURITY.md", "docs", "notebooks", "providers", "pyproject.toml", "rewrite"),
    *("skipping", "tests"),
}


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        for suffix in ("py", "java", "lark"):
            yield from (ROOT / package).rglob(f"*.{suffix}")


def knowing(library: str) -> set[str]:
    """Files that import a library when they are imported."""
    imports = re.compile(rf"^(from|import) {library}\b", re.M)
    return {str(p.relative_to(ROOT)) for p in sources() if imports.search(p.read_text())}


def with_examples() -> Iterator[str]:
    """Modules whose docstrings show what is typed and what it says."""
    for path in sources():
        if path.suffix == ".py" and ">>> " in path.read_text():
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


def tracked() -> list[str]:
    """Files that git has or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return [name for name in run.stdout.split("\0") if (ROOT / name).is_file()]


def run_module(name: str, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", name, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_imports_go_down_only() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


@pytest.mark.parametrize("module", sorted(with_examples()))
def test_examples_of_docstrings(module: str) -> None:
    assert not doctest.testmod(import_module(module.removesuffix(".__init__"))).failed


def test_what_stands_at_the_top() -> None:
    there = {name.partition("/")[0] for name in tracked()}
    assert there <= TOP


def test_no_import_hides_from_the_import_law() -> None:
    """A name that is imported by its text is seen by no linter; one in a function is."""
    hidden = re.compile(r"\b(?:import_module|__import__|resolve_name)\(")
    assert {str(p.relative_to(ROOT)) for p in sources() if hidden.search(p.read_text())} == {
        "skipping/__init__.py",  # the public names, when they are first used
        "skipping/cli/session.py",  # the program may start the server, which is above the library
        "skipping/indexing/preflight.py",  # whether executors have other people's packages
        "skipping/scans/engines.py",  # the engine that the user asked for
    }


def test_the_client_of_opensearch_is_known_in_one_place() -> None:
    assert knowing("opensearchpy") == {"skipping/stores/opensearch/client.py"}


def test_pyiceberg_is_imported_by_its_format_its_filters_and_the_catalog() -> None:
    packages = {"skipping/tables/iceberg", "skipping/filters", "skipping/scans", "skipping/catalog"}
    files = knowing("pyiceberg")
    assert {str(Path(file).parent) for file in files} <= packages
    assert {file for file in files if "/filters/" in file} == {"skipping/filters/pyiceberg.py"}
    assert {file for file in files if "/scans/" in file} <= {
        "skipping/scans/iceberg_scan.py",
        "skipping/scans/iceberg_transaction.py",
    }


def test_servers_of_the_catalog_are_known_in_one_room() -> None:
    for library in ("starlette", "uvicorn", "httpx", "anyio"):
        assert {str(Path(file).parent) for file in knowing(library)} == {"skipping/catalog"}


def test_how_progress_is_drawn_is_known_in_one_place() -> None:
    assert knowing("tqdm") == {"skipping/progress.py"}


def test_delta_rs_is_imported_in_one_package() -> None:
    package = "skipping/tables/delta"
    assert knowing("deltalake") == {f"{package}/deltalake.py", f"{package}/deltalake_files.py"}


def test_every_setting_is_in_one_place() -> None:
    text = "".join(path.read_text() for path in sources())
    named = set(re.findall(r"spark\.skipping\.([a-z]\w*(?:\.\w+)*)", text))
    from skipping.config.settings import SETTINGS

    assert named <= {setting.key for setting in SETTINGS}


def test_the_page_of_settings_has_every_setting() -> None:
    from skipping.config.settings_page import page

    text = (ROOT / "docs" / "settings.md").read_text()
    assert page() in text, "python -m skipping.config.settings_page"
