"""Many writers of one folder store: no change is lost or made twice; killed ones leave nothing."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skipping.stores.folder import upkeep
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from tests.skipping.stores import writers
from tests.skipping.stores.samples import bounds, definition, entries
from tests.skipping.stores.test_folder import driver, state_of, url

__all__ = ["url"]

pytestmark = [pytest.mark.process, pytest.mark.nightly]


def start(url: str, folder: Path, name: str, count: int, at: int = 0) -> subprocess.Popen[str]:
    """Start a writer whose replica is that of the host `at`."""
    module = "tests.skipping.stores.writers"
    replica = folder / f"host{at}.sqlite"
    command = [sys.executable, "-m", module, url, str(replica), name, str(count)]
    with (folder / f"{name}.out").open("w") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)


def reports(folder: Path) -> dict[str, list[list[object]]]:
    """Return the lines of each writer; a killed one may have left a part of a line."""
    return {
        path.stem: [json.loads(line) for line in path.read_text().splitlines() if line[-1:] == "]"]
        for path in folder.glob("*.out")
    }


@pytest.mark.parametrize("count", [pytest.param(25), pytest.param(1_250, marks=pytest.mark.soak)])
def test_commits_of_8_processes_are_neither_lost_nor_doubled(
    url: str, tmp_path: Path, count: int
) -> None:
    driver(url, "one").define(definition(), expect=None)
    running = [start(url, tmp_path, f"w{n}", count, n) for n in range(8)]
    assert [each.wait(1_800) for each in running] == [0] * 8
    done = reports(tmp_path)
    assert writers.check(driver(url, "reader"), ObstoreObjects(url), done) == 8 * count


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.soak)])
def test_killed_writers_leave_nothing_half_visible(url: str, tmp_path: Path, kills: int) -> None:
    """Writers on four hosts are killed while they write; the next on that host continues."""
    driver(url, "one").define(definition(), expect=None)
    warm = driver(url, "warm")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.skipping.stores.writers"])
    drawn, running = random.Random(7), dict[int, multiprocessing.process.BaseProcess]()
    outputs = dict[int, Path]()
    killed = 0
    while killed < kills:
        for host in range(4):
            if host not in running:
                name, replica = f"w{killed}-{host}", tmp_path / f"host{host}.sqlite"
                outputs[host] = tmp_path / f"{name}.out"
                given = outputs[host], url, replica, name
                running[host] = context.Process(target=to_file, args=given, daemon=True)
                running[host].start()
        host = drawn.randrange(4)
        if drawn.random() < 0.9:  # else it is still starting
            wait_for(outputs[host])
        time.sleep(drawn.uniform(0, 0.5))
        writer = running.pop(host)
        writer.kill()
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        killed += 1
        if killed % 25 == 0:
            for writer in running.values():  # else the second reader sees more
                writer.kill()
                writer.join()
            running.clear()
            assert state_of(warm) == state_of(driver(url, f"cold{killed}"))
    for writer in running.values():
        writer.kill()
        writer.join()
    told = reports(tmp_path)
    # The change in which each writer was killed may be there, or not.
    ended = {name: [*lines, ["failed", "killed"]] for name, lines in told.items()}
    assert writers.check(driver(url, "reader"), ObstoreObjects(url), ended) > kills

    folder = Path(url.removeprefix("file://"))
    past = time.time() - 2 * upkeep.RETENTION.total_seconds()
    for path in folder.rglob("*.*"):
        os.utime(path, (past, past))
    last = driver(url, "last")
    for _ in range(upkeep.CHECKPOINT):
        (ordinal,) = last.reserve("i", 1)
    last.write("i", entries([ordinal], bounds([ordinal])), revision=1)
    live = {part.name for segment in last.segments("i") for part in segment.parts}
    assert {f"data/{path.name}" for path in (folder / "data").iterdir()} == live
    assert len(list((folder / "log").iterdir())) < 2 * upkeep.CHECKPOINT
    assert state_of(warm) == state_of(last) == state_of(driver(url, "late"))


def wait_for(output: Path) -> None:
    """Wait until a writer has written a line."""
    deadline = time.monotonic() + 300
    while not (output.exists() and output.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def to_file(output: Path, url: str, replica: Path, name: str) -> None:
    """Write until the process is killed."""
    store = FolderStore(ObstoreObjects(url), replica)
    with output.open("w", buffering=1) as file:
        writers.write(store, name, 1 << 30, lambda *line: print(json.dumps(line), file=file))
