"""The checks of `.ci/`: wording, and the subjects of commits."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_house import ROOT


def load(name: str) -> ModuleType:
    """Import a script of `.ci/`, which is no package."""
    spec = spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


wording, subjects = load("wording"), load("subjects")


@pytest.mark.parametrize(
    ("path", "text", "rules"),
    [
        ("skipping/x.py", "def _told(): ...", ["names"]),
        ("skipping/x.py", "def pruned_by_keys(): ...", ["names"]),
        ("skipping/x.py", "def is_cached(): ...\ndef prune(): ...", []),
        ("skipping/x.py", "class A:\n    @property\n    def cached(self): ...", []),
        ("skipping/x.py", "# files of which no row matches", ["of which"]),
        ("skipping/x.py", 'x = "the store is asked"', ["asked, told, said"]),
        ("skipping/x.py", "asked_in_vain = legs = None  # a name is no prose", []),
        ("docs/x.md", "An index by itself.\nA try in vain.", ["by itself", "in vain"]),
        ("docs/x.md", "`if x is None`", []),
        ("rewrite/jvm/X.java", "/** The least value. */\nint legs;", ["least, greatest value"]),
    ],
)
def test_wording_finds_names_and_phrases(path: str, text: str, rules: list[str]) -> None:
    assert [hit.rule for hit in wording.hits(path, text)][: len(rules) + 1] == rules


def test_wording_counts_each_area() -> None:
    places = [("docs/a.md", "of which"), ("tests/b.py", "names"), ("skipping/c.py", "leg")]
    counted = wording.counts([wording.Hit(path, 1, rule, "") for path, rule in places])
    assert counted["docs"] == {"names": 0, "phrases": 1}
    assert counted["tests"] == {"names": 1, "phrases": 0}
    assert counted["product"] == {"names": 0, "phrases": 1}


@pytest.mark.parametrize(
    "subject",
    [
        "join: prune the fact side of right outer joins",
        "model, stores: refuse older formats, naming the command that rebuilds",
        "docs: need one page less",
        "sqlite: process segments",
    ],
)
def test_subjects_accept_an_imperative(subject: str) -> None:
    assert subjects.fault(subject) is None


@pytest.mark.parametrize(
    ("subject", "part"),
    [
        ("join: pruned the fact side", "imperative"),
        ("join: prunes the fact side", "imperative"),
        ("docs: what the bounds prove", "imperative"),
        ("Prune the fact side", "no part"),
        ("join: " + "x" * 70, "76 characters"),
    ],
)
def test_subjects_refuse_others(subject: str, part: str) -> None:
    assert part in str(subjects.fault(subject))


def test_subjects_of_this_checkout() -> None:
    assert subjects.main([]) == 0


def test_subjects_of_a_shallow_checkout(tmp_path: Path) -> None:
    """It has neither the base nor a parent, so the last commit alone is checked."""

    def git(*arguments: str, cwd: Path) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *who, *arguments], cwd=cwd, check=True, capture_output=True)

    full, shallow = tmp_path / "full", tmp_path / "shallow"
    full.mkdir()
    git("init", cwd=full)
    for subject in ("Old ways", "docs: wrong way round", "Wrong"):
        git("commit", "--allow-empty", "-m", subject, cwd=full)
    git("clone", "--depth", "1", f"file://{full}", str(shallow), cwd=tmp_path)
    command = [sys.executable, ROOT / ".ci" / "subjects.py"]
    done = subprocess.run(command, cwd=shallow, capture_output=True, text=True)
    assert done.returncode == 1
    assert "'Wrong'" in done.stderr
    assert "Old ways" not in done.stderr


def test_subjects_of_a_message_file(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("docs: name the limits\n\nBody.\n# comment\n")
    assert subjects.main([str(message)]) == 0
    message.write_text("Named the limits\n")
    assert subjects.main([str(message)]) == 1
