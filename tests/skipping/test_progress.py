"""Progress: a bar where somebody looks, else a line in the log every few seconds."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import struct
import termios
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.progress import progress
from skipping.stores.copy import copy
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from tests.conftest import RunPython
from tests.skipping.stores.samples import bounds, fill

ROOT = Path(__file__).parents[2]
WORK = """
import time
from skipping.progress import progress
with progress(3, "files", "index t") as bar:
    for _ in range(3):
        time.sleep(0.3)
        bar.update(1)
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, moved by whoever writes into it."""
    now = [1_000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


class TestInTheLog:
    def test_a_line_every_few_seconds(
        self, clock: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "skipping.progress")
        with progress(40, "files", "index t") as bar:
            for _ in range(40):
                clock[0] += 1
                bar.update(1)
        assert {record.name for record in caplog.records} == {"skipping.progress"}
        lines = [record.getMessage() for record in caplog.records]
        assert lines[0] == "index t: 5 of 40 files, 1.0 files/s, 00:35 left"
        assert [int(re.split(r": | of ", line)[1]) for line in lines] == [*range(5, 45, 5), 40]
        assert lines[-1] == "index t: 40 of 40 files, 1.0 files/s, 00:00 left"

    def test_what_is_done_soon_says_nothing(
        self, clock: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "skipping.progress")
        with progress(40, "files", "index t") as bar:
            clock[0] += 4
            bar.update(40)
        assert caplog.records == []

    def test_of_an_end_that_becomes_known_later(
        self, clock: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "skipping.progress")
        with progress(None, "pages", "copy") as bar:
            clock[0] += 6
            bar.update(300)
            bar.total = 600
            clock[0] += 6
            bar.update(300)
        first, *_, last = (record.getMessage() for record in caplog.records)
        assert first == "copy: 300 pages, 50.0 pages/s"
        assert last == "copy: 600 of 600 pages, 50.0 pages/s, 00:00 left"

    def test_a_failure_leaves_nothing_behind(self, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(OSError, match="away"), progress(2, "files", "index t"):
            raise OSError("the disk is away")
        assert caplog.records == []


class TestDrawn:
    def test_in_a_terminal(self, run_python: RunPython) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        with open(ours, "rb", buffering=0) as screen:
            try:
                run = run_python("-c", WORK, capture_output=False, stderr=theirs)
                assert run.returncode == 0
            finally:
                os.close(theirs)
            drawn = b""
            try:
                while more := screen.read(4096):
                    drawn += more
            except OSError:  # its other end is closed, and all is read
                pass
        assert b"index t: 100%" in drawn
        assert b"| 3/3 [" in drawn

    @pytest.mark.process
    # Jupyter's own event loop handling warns on some versions of Python.
    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
    def test_in_a_notebook(self) -> None:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WORK)])
        client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(ROOT)}})
        client.execute()
        drawn = "".join(output.text for output in notebook.cells[0].outputs)
        assert "index t: 100%" in drawn

    def test_what_runs_in_the_background_is_not(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("skipping.progress._in_terminal", lambda: True)
        with progress(1, "files", "index t", is_background=True) as bar:
            bar.update(1)
        assert capsys.readouterr() == ("", "")


def test_a_copy_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("skipping.progress._EVERY", 0.0)
    caplog.set_level(logging.INFO, "skipping.progress")
    source = SqliteStore(tmp_path / "source.db")
    fill(source, bounds([1, 2, 3]))
    copy(source, SqliteStore(tmp_path / "target.db"))
    copy(source, MemoryStore("target"))
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert re.search(r"^copy: (\d+) of \1 pages", said, re.M), said
    assert re.search(r"^verify \S*: 3 of 3 files", said, re.M), said
    assert re.search(r"^copy \S+: 3 of 3 files", said, re.M), said


def test_the_command_prints_it(run_python: RunPython, tmp_path: Path) -> None:
    fill(SqliteStore(tmp_path / "source.db"), bounds([1, 2, 3]))
    code = (
        "import sys, skipping.progress as p; from skipping.__main__ import main\n"
        "p._EVERY = 0.0; sys.exit(main(['copy', *sys.argv[1:]]))"
    )
    stores = [f"sqlite:{tmp_path / name}.db" for name in ("source", "target")]
    run = run_python("-c", code, *stores)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"copied 1 indexes with 3 files to {stores[1]}\n"
    assert re.search(r"^\d{4}-\S+ \S+ verify \S+: 3 of 3 files", run.stderr, re.M), run.stderr


def test_analyze_and_a_build_say_how_far_they_are(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("skipping.progress._EVERY", 0.0)
    caplog.set_level(logging.INFO, "skipping.progress")
    spark.range(0, 8, 1, 4).write.format("delta").save(str(tmp_path / "t"))
    table = f"delta.`{tmp_path}/t`"
    SkippingIndex.analyze(spark, table)
    store = SqliteStore(tmp_path / "store.db")
    SkippingIndex.create(spark, table, "id MIN_MAX", store=store)
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert re.search(r"^analyze .*: 1 of 1 columns", said, re.M), said
    assert re.search(r"^index .*: 4 of 4 files", said, re.M), said
