"""Which jars Ivy resolved is cached, and used only if nobody else can have written it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from rewrite import jar_cache

KEY = "0a" * 32
JARS = {f"file:/jars/part-{i}.jar": 5_000 + i for i in range(40)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "lakehouse-file-skipping" / "jars"


@pytest.fixture
def entry(folder: Path) -> Path:
    jar_cache.save(KEY, JARS)
    return folder / f"{KEY}.json"


def test_load_returns_what_was_saved(entry: Path) -> None:
    assert jar_cache.load(KEY) == JARS
    assert jar_cache.load("0b" * 32) is None
    assert entry.parent.stat().st_mode & 0o777 == 0o700
    assert entry.stat().st_mode & 0o777 == 0o600


def link(entry: Path) -> None:
    shutil.move(entry, entry.with_suffix(".moved"))
    entry.symlink_to(entry.with_suffix(".moved"))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "cut": lambda entry: os.truncate(entry, entry.stat().st_size // 2),
    "empty": lambda entry: os.truncate(entry, 0),
    "too long": lambda entry: entry.write_bytes(b" " * (2 << 20)),
    "others may write it": lambda entry: entry.chmod(0o622),
    "others may write the folder": lambda entry: entry.parent.chmod(0o777),
    "a link": link,
    "a second name": lambda entry: os.link(entry, entry.with_suffix(".second")),
    "a folder": lambda entry: (entry.unlink(), entry.mkdir()),
    "a pipe": lambda entry: (entry.unlink(), os.mkfifo(entry, 0o600)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_load_ignores_damaged_and_foreign_entries(entry: Path, damage: str) -> None:
    DAMAGE[damage](entry)
    assert jar_cache.load(KEY) is None


def test_cache_ignores_a_folder_of_another_user(
    entry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert jar_cache.load(KEY) is None
    jar_cache.save("0d" * 32, JARS)
    assert not (entry.parent / f"{'0d' * 32}.json").exists()


def test_save_without_a_folder_only_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    jar_cache.save(KEY, JARS)
    assert jar_cache.load(KEY) is None


def test_save_removes_old_entries(folder: Path) -> None:
    for i in range(7):
        jar_cache.save(f"{i:064}", JARS)
        os.utime(folder / f"{i:064}.json", (i, i))
    left = folder / "1.unfinished"
    left.touch()
    os.utime(left, (0, 0))
    jar_cache.save(KEY, JARS)
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"{i:064}.json" for i in (4, 5, 6)),
        f"{KEY}.json",
    ]


def test_load_marks_an_entry_as_used(entry: Path) -> None:
    os.utime(entry, (0, 0))
    assert jar_cache.load(KEY) is not None
    assert time.time() - entry.stat().st_mtime < 60


def _use(seed: int) -> int:
    wrong = 0
    for _ in range(500):
        jar_cache.save(KEY, JARS)
        wrong += jar_cache.load(KEY) != JARS
    return wrong


@pytest.mark.process
def test_concurrent_processes_load_complete_entries(folder: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(_use, range(2))) == [0, 0]
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.json"]
