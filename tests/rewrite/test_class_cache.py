"""Compiled classes are kept between sessions, and taken only if nobody else can have made them."""

from __future__ import annotations

import io
import os
import shutil
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rewrite.bridge import class_cache
from rewrite.bridge import compiler as java

KEY = "0a" * 32
CLASSES = {f"rewrite/jvm/bridge/Class{i}.class": os.urandom(5_000) for i in range(20)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "lakehouse-file-skipping" / "classes"


@pytest.fixture
def entry(folder: Path) -> Path:
    class_cache.save(KEY, CLASSES)
    return folder / f"{KEY}.zip"


def test_kept(entry: Path) -> None:
    assert class_cache.load(KEY) == CLASSES
    assert class_cache.load("0b" * 32) is None
    assert entry.parent.stat().st_mode & 0o777 == 0o700
    assert entry.stat().st_mode & 0o777 == 0o600


def flip(entry: Path) -> None:
    """Another class than the manifest's, in an archive that is whole."""
    wrong = {name: code[:-1] + bytes([code[-1] ^ 1]) for name, code in CLASSES.items()}
    with zipfile.ZipFile(io.BytesIO(entry.read_bytes())) as archive:
        manifest = archive.read("manifest.json")
    with zipfile.ZipFile(entry, "w") as archive:
        archive.writestr("manifest.json", manifest)
        for name, code in wrong.items():
            archive.writestr(name, code)


def link(entry: Path) -> None:
    shutil.move(entry, entry.with_suffix(".moved"))
    entry.symlink_to(entry.with_suffix(".moved"))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a bit": flip,
    "cut": lambda entry: os.truncate(entry, entry.stat().st_size // 2),
    "empty": lambda entry: os.truncate(entry, 0),
    "of another key": lambda entry: entry.write_bytes(class_cache._pack("0c" * 32, CLASSES)),
    "others may write it": lambda entry: entry.chmod(0o622),
    "others may write the folder": lambda entry: entry.parent.chmod(0o777),
    "a link": link,
    "a second name": lambda entry: os.link(entry, entry.with_suffix(".second")),
    "a folder": lambda entry: (entry.unlink(), entry.mkdir()),
    "a pipe": lambda entry: (entry.unlink(), os.mkfifo(entry, 0o600)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_or_foreign(entry: Path, damage: str) -> None:
    DAMAGE[damage](entry)
    assert class_cache.load(KEY) is None


def test_a_folder_of_somebody_else(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert class_cache.load(KEY) is None
    class_cache.save("0d" * 32, CLASSES)
    assert not (entry.parent / f"{'0d' * 32}.zip").exists()


def test_nowhere_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    class_cache.save(KEY, CLASSES)
    assert class_cache.load(KEY) is None


def test_old_entries_are_removed(folder: Path) -> None:
    for i in range(7):
        class_cache.save(f"{i:064}", CLASSES)
        os.utime(folder / f"{i:064}.zip", (i, i))
    left = folder / "1.unfinished"
    left.touch()
    os.utime(left, (0, 0))
    class_cache.save(KEY, CLASSES)
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"{i:064}.zip" for i in (4, 5, 6)),
        f"{KEY}.zip",
    ]


def test_an_entry_that_is_used_stays(folder: Path) -> None:
    class_cache.save(KEY, CLASSES)
    os.utime(folder / f"{KEY}.zip", (0, 0))
    assert class_cache.load(KEY) is not None
    assert time.time() - (folder / f"{KEY}.zip").stat().st_mtime < 60


def _use(seed: int) -> int:
    wrong = 0
    for _ in range(500):
        class_cache.save(KEY, CLASSES_SEEN)
        wrong += class_cache.load(KEY) != CLASSES_SEEN
    return wrong


CLASSES_SEEN = {f"rewrite/jvm/Class{i}.class": bytes([i]) * 5_000 for i in range(20)}


def test_processes_at_once(folder: Path) -> None:
    """Whoever reads finds a whole entry."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(_use, range(2))) == [0, 0]
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.zip"]


def test_the_second_start_compiles_nothing(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = spark.sparkContext._gateway
    first = java._load(gateway)
    (entry,) = folder.iterdir()

    with monkeypatch.context() as patched:
        patched.delattr(java, "_compile")
        second = java._load(gateway)
    for loader in (first, second):
        for name in ("SkippingExtension", "source.IcebergSource", "source.DeltaSource"):
            loaded = loader.loadClass(f"rewrite.jvm.{name}")
            assert loaded.getClassLoader().equals(loader)

    entry.write_bytes(b"damaged")
    assert java._load(gateway).loadClass("rewrite.jvm.SkippingExtension") is not None
    assert class_cache.load(entry.stem) is not None, "it is compiled and kept anew"


def test_a_format_that_is_not_there_or_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    """What needs it is left out, and the rest compiles."""
    gateway = spark.sparkContext._gateway
    parent = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    sources = {path: path.read_text("utf-8") for path in java._SOURCES.rglob("*.java")}
    keys = {
        java._key(spark._jvm, parent, sources, formats)
        for formats in ({}, *({mark: "a jar"} for mark in java._FORMATS), {"other": "a jar"})
    }
    assert len(keys) == 2 + len(java._FORMATS), "classes for some formats are not those for others"
    without = java._compile(gateway, parent, sources, ())
    assert "rewrite/jvm/source/ScanSources.class" in without
    assert not any("Delta" in name or "IcebergS" in name for name in without)

    (tasks,) = (path for path in sources if path.stem == "IcebergTasks")
    changed = tmp_path / tasks.name
    changed.write_text(sources[tasks].replace("PartitionSpecParser", "NoSuchParser"))
    broken = {(changed if path == tasks else path): text for path, text in sources.items()}
    made = java._compile(gateway, parent, broken, tuple(java._FORMATS))
    assert "rewrite/jvm/source/DeltaSource.class" in made
    assert "rewrite/jvm/source/IcebergSource.class" not in made
