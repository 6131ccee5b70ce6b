"""Java's packages are floors: each knows only those below it, and no file is in a cycle."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
JVM = ROOT / "rewrite" / "jvm"
SHIMS = ROOT / "rewrite" / "shims"
LINES = sorted(folder.name for folder in SHIMS.iterdir())

ALLOWED = {
    "shims": set[str](),
    "bridge": set[str](),
    "parser": {"bridge"},
    "predicate": {"bridge"},
    "keys": {"bridge", "predicate"},
    "source": {"bridge", "predicate"},
    "scan": {"bridge", "predicate", "keys", "source"},
    "join": {"bridge", "predicate", "keys", "source"},
    "observe": {"bridge", "predicate", "keys", "source", "scan"},
    "jvm": {"bridge", "parser", "predicate", "keys", "source", "scan", "join", "observe"},
}
"""What each package may import; `jvm`, the root, puts all of it together.

Each may import `shims`, which imports none of ours.
"""

_NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def _find(line: str) -> dict[str, Path]:
    """The sources of a Spark line by package and name: of shims, the newest up to the line."""
    folders = [JVM, *(SHIMS / each for each in LINES if each <= line)]
    return {
        f"{'jvm' if path.parent == JVM else path.parent.name}.{path.stem}": path
        for folder in folders
        for path in sorted(folder.rglob("*.java"))
        if path.stem != "package-info"
    }


def _named(source: str, package: str, names: set[str]) -> set[str]:
    """The files of ours that a source names: by import, in full, or within its package."""
    full = set(re.findall(r"\brewrite\.jvm\.(\w+\.\w+)", source))
    words = set(re.findall(r"(?<![.\w$])[A-Z]\w*", source))
    return full | (names & {f"{package}.{word}" for word in words})


def _arrows(line: str) -> dict[str, set[str]]:
    """What each source of a line names."""
    sources = _find(line)
    return {
        name: _named(_NOT_CODE.sub(" ", path.read_text()), name.split(".")[0], {*sources}) - {name}
        for name, path in sources.items()
    }


EVERY_LINE = pytest.mark.parametrize("line", LINES)


@EVERY_LINE
def test_packages_know_only_what_is_below_them(line: str) -> None:
    wrong = [
        f"{name} -> {other}"
        for name, others in _arrows(line).items()
        for other in others
        if (here := name.split(".")[0]) != (there := other.split(".")[0])
        and there not in ALLOWED[here]
        and (there != "shims")
    ]
    assert not wrong, wrong


@EVERY_LINE
def test_no_cycle(line: str) -> None:
    list(TopologicalSorter(ALLOWED).static_order())
    list(TopologicalSorter(_arrows(line)).static_order())


@EVERY_LINE
def test_all_sources_are_seen(line: str) -> None:
    arrows = _arrows(line)
    assert set(ALLOWED) == {name.split(".")[0] for name in arrows}
    assert all(others <= set(arrows) for others in arrows.values())
    assert "bridge.IndexClient" in arrows["jvm.SkippingExtension"]


def test_sources_are_where_their_package_says() -> None:
    for top in (JVM, *(SHIMS / line for line in LINES)):
        for path in top.rglob("*.java"):
            folder = ".".join(("rewrite.jvm", *path.relative_to(top).parent.parts))
            assert f"package {folder};" in path.read_text(), path


def test_types_that_differ_between_lines_are_in_shims_only() -> None:
    different = re.compile(
        r"immutable\.(?:Indexed)?Seq\b|sql\.classic\.|\bVariantType\b|\bParameterContext\b"
    )
    found = [
        f"{path.relative_to(JVM)}: {match[0]}"
        for path in sorted(JVM.rglob("*.java"))
        for match in different.finditer(path.read_text())
    ]
    assert not found, found
