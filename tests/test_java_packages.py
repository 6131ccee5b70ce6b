"""Java's packages are floors: each knows only those below it, and no file is in a cycle."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

JVM = Path(__file__).parent.parent / "rewrite" / "jvm"

ALLOWED = {
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
"""What each package may import; `jvm`, the root, puts all of it together."""

_NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)

SOURCES = {
    f"{path.parent.name}.{path.stem}": _NOT_CODE.sub(" ", path.read_text())
    for path in sorted(JVM.rglob("*.java"))
    if path.stem != "package-info"
}


def _named(source: str, package: str) -> set[str]:
    """The files of ours that a source names: by import, in full, or within its package."""
    full = set(re.findall(r"\brewrite\.jvm\.(\w+\.\w+)", source))
    words = set(re.findall(r"(?<![.\w$])[A-Z]\w*", source))
    return full | {name for name in SOURCES if name in {f"{package}.{word}" for word in words}}


ARROWS = {name: _named(source, name.split(".")[0]) - {name} for name, source in SOURCES.items()}


def test_packages_know_only_what_is_below_them() -> None:
    wrong = [
        f"{name} -> {other}"
        for name, others in ARROWS.items()
        for other in others
        if (here := name.split(".")[0]) != (there := other.split(".")[0])
        and there not in ALLOWED[here]
    ]
    assert not wrong, wrong


def test_no_cycle() -> None:
    list(TopologicalSorter(ALLOWED).static_order())
    list(TopologicalSorter(ARROWS).static_order())


def test_all_sources_are_seen() -> None:
    assert set(ALLOWED) == {name.split(".")[0] for name in SOURCES}
    assert all(others <= set(SOURCES) for others in ARROWS.values())
    assert "bridge.IndexClient" in ARROWS["jvm.SkippingExtension"]


def test_sources_are_where_their_package_says() -> None:
    for path in JVM.rglob("*.java"):
        folder = ".".join(("rewrite", *path.relative_to(JVM.parent).parent.parts))
        assert f"package {folder};" in path.read_text(), path
