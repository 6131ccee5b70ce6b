"""100 million files as shards of what one machine holds: `python -m tests.benchmarks.shards`.

    python -m tests.benchmarks.shards [--files 100000000] [--shard 1000000] [--cores 2]

A model, of which all constants are measured here first, on one shard in SQLite: the CPU that each
question takes of it (many samples), the memory of a driver that has its files, its bytes; and what
it takes to put together the answers of all shards. Then questions arrive at random, at some rate.
Each goes to every shard; a host answers for its shards in turn, with so many cores; the slowest
shard is the answer's time, and each answer's CPU is drawn from the samples. What the model leaves
out: the network (a message of 1,000 keys is 8 KB, a shard's answer at most 125 KB), and hosts that
fail. It says how many hosts keep a question under 200 ms, and where that breaks.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from tests.benchmarks import scale
from tests.benchmarks.report import heading, table

__all__ = ["Shard", "main", "measure", "simulate"]

BUDGET = 200.0  # ms of a question
GIB = float(1 << 30)
ASKED = (("k", 1), ("k", 1_000), ("h", 1_000), ("b", 100))
RATES = (0.1, 1.0, 10.0)  # questions a second
HOSTS = (1, 5, 10, 25, 50, 100)
SAMPLES, QUESTIONS = 30, 400


@dataclass(frozen=True, slots=True)
class Shard:
    """What was measured of a shard of `files`; times are milliseconds of CPU."""

    files: int
    service: dict[str, list[float]]
    memory: float  # bytes of a process that has its files and fields
    size: float  # bytes in the store
    merge: float  # ms to add its answer to that of the others


def measure(files: int) -> Shard:
    """Make a shard, ask it, and say what that took."""
    with TemporaryDirectory() as folder:
        place = str(Path(folder) / "shard.sqlite")
        row = scale.in_process("fill", "sqlite", place, files)
        base = scale.resident()
        answers, _ = scale.driver(scale.store_at("sqlite", place)(), ttl=3_600)
        service: dict[str, list[float]] = {}
        for column, n in ASKED:
            spelled = f"{scale.SPELLED[column]}, {n:,} keys"
            for turn in range(SAMPLES + 1):
                message = scale.question(column, scale.keys(column, n, files, turn))
                (_, cpu), _ = scale.timed(answers, message, scale.PATIENCE)
                if turn:
                    service.setdefault(spelled, []).append(cpu)
        memory = scale.resident() - base
    return Shard(files, service, memory, 1e6 * row["index, MB"][0], _merge(files))


def _merge(files: int) -> float:
    """Milliseconds to add a shard's answer, all but a thousand of its files, to an answer."""
    gone = BitMap(range(files))
    gone -= BitMap(np.random.default_rng(1).integers(0, files, 1_000).astype(np.uint32).tolist())
    packed, whole = gone.serialize(), BitMap()
    start = time.process_time()
    for shift in range(20):
        whole |= BitMap.deserialize(packed).shift(shift * files)
    return 1e3 * (time.process_time() - start) / 20


def simulate(
    service: Sequence[float],
    *,
    shards: int,
    hosts: int,
    cores: int,
    rate: float,
    merge: float,
    questions: int = QUESTIONS,
    seed: int = 7,
) -> npt.NDArray[np.float64]:
    """Milliseconds of each question, when `rate` of them come a second, to all shards."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(1e3 / rate, questions))
    free = [[0.0] * cores for _ in range(hosts)]
    took = np.zeros(questions)
    for number, arrival in enumerate(arrivals.tolist()):
        drawn = random.choice(np.asarray(service), shards)
        last = arrival
        for shard, needs in enumerate(drawn.tolist()):
            host = free[shard % hosts]
            done = max(heapq.heappop(host), arrival) + needs
            heapq.heappush(host, done)
            last = max(last, done)
        took[number] = last - arrival + shards * merge
    return took


def main(files: int, shard: int, cores: int) -> None:
    """Print the constants, the simulation, and where it breaks."""
    measured = measure(shard)
    shards = -(-files // shard)
    heading("Constants, of one shard in SQLite", files=f"{shard:,}", samples=SAMPLES)
    lines = [
        (f"CPU of a question, {name}, ms", *(f"{np.percentile(ms, q):.1f}" for q in (50, 99)))
        for name, ms in measured.service.items()
    ]
    lines.append(("memory of its files and fields, bytes a file", f"{measured.memory / shard:.0f}"))
    lines.append(("in the store, bytes a file", f"{measured.size / shard:.0f}"))
    lines.append(("adding its answer, ms", f"{measured.merge:.2f}"))
    table(("", "median", "p99"), [line if len(line) > 2 else (*line, "") for line in lines])
    heading(
        f"{files:,} files in {shards:,} shards: ms of a question, median and p99",
        cores_a_host=cores,
        questions=QUESTIONS,
    )
    rows = []
    for name, service in measured.service.items():
        for rate in RATES:
            shown = []
            for hosts in HOSTS:
                busy = rate * shards * float(np.mean(service)) / 1e3 / hosts / cores
                took = simulate(
                    service,
                    shards=shards,
                    hosts=hosts,
                    cores=cores,
                    rate=rate,
                    merge=measured.merge,
                )
                p50, p99 = np.percentile(took, (50, 99))
                shown.append("full" if busy >= 1 else f"{p50:,.0f} {p99:,.0f}")
            rows.append((f"{name}, {rate:g} a second", *shown))
    table(("question", *(f"{hosts} hosts" for hosts in HOSTS)), rows)
    print("\n  Where it breaks")
    for line in breaks(measured, files, cores):
        print(f"  - {line}")


def breaks(measured: Shard, files: int, cores: int) -> list[str]:
    """What the constants say of limits."""
    shards = -(-files // measured.files)
    slowest, service = max(measured.service.items(), key=lambda each: np.mean(each[1]))
    needs = shards * float(np.mean(service))
    left = BUDGET - shards * measured.merge - float(np.percentile(service, 99))
    memory = measured.memory / measured.files
    said = [
        f"One driver that has every file: {files * memory / GIB:.1f} GiB; "
        f"1 GiB is reached at {GIB / memory:,.0f} files.",
        f"Putting together {shards:,} answers: {shards * measured.merge:.0f} ms of one core; "
        f"{BUDGET:.0f} ms are reached at {BUDGET / measured.merge:,.0f} shards.",
    ]
    if left > 0:
        hosts = needs / cores / (left + float(np.percentile(service, 99)))
        said.append(f"{slowest}: {hosts:.0f} hosts or more for {BUDGET:.0f} ms, one at a time.")
    else:
        said.append(f"{slowest}: {BUDGET:.0f} ms are out of reach for shards of this size.")
    said.append(f"{slowest}: a host has CPU for {cores * 1e3 / needs:.3f} of these a second.")
    return said


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000_000)
    parser.add_argument("--shard", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    main(given.files, given.shard, given.cores)
