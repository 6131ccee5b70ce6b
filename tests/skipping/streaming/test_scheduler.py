"""One keeper of many: few threads, no wake on_error, and who hangs or fails is alone with it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from providers.errors import StoreError
from skipping.model.definition import Definition, Versioned
from skipping.stores.memory.store import MemoryStore
from skipping.streaming import scheduler
from skipping.streaming.scheduler import Scheduler
from tests.skipping.streaming.conftest import until


class Stream:
    """What is looked after, and does what it is told to."""

    patience = 0.3

    def __init__(self) -> None:
        self.due = 0.0
        self.busy: float | None = None
        self.looks = list[float]()
        self.errors = list[str]()
        self.works: list[Callable[[], object]] = []
        self.ended = False
        self.last: Callable[[], object] | None = None

    def gets(self, work: Callable[[], object]) -> None:
        """Work, at once."""
        self.works.append(work)
        Scheduler.wake(self)

    def is_over(self) -> bool:
        return self.ended

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        self.looks.append(time.monotonic())
        return self.works.pop() if self.works and self.busy is None else None

    def on_error(self, error: Exception) -> None:
        self.errors.append(str(error))

    def close(self) -> Callable[[], object] | None:
        work, self.last = self.last, None
        return work

    def end(self) -> None:
        self.ended = True
        Scheduler.wake(self)


@pytest.fixture
def streams() -> Iterator[list[Stream]]:
    made: list[Stream] = []
    yield made
    for each in made:
        each.end()
    assert all(Scheduler.await_close(each, within=10) for each in made)
    until(lambda: not threads(), seconds=10)


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("streams:")]


def kept(streams: list[Stream], store: MemoryStore, n: int = 1) -> list[Stream]:
    new = [Stream() for _ in range(n)]
    streams += new
    for each in new:
        Scheduler.add(store, each)
    return new


def test_a_hundred_have_a_thread_and_four(streams: list[Stream]) -> None:
    counts, goes_on = list[int](), threading.Event()

    def work() -> None:
        counts.append(len(threads()))
        goes_on.wait(0.05)

    some = kept(streams, MemoryStore("a"), 100)
    for each in some:
        each.gets(work)
    until(lambda: len(counts) == 100)
    assert max(counts) == 5
    until(lambda: all(each.busy is None for each in some))
    until(lambda: len(threads()) == 1)


def test_those_whose_queries_hang_are_looked_at_like_the_others(streams: list[Stream]) -> None:
    goes_on = threading.Event()
    hanging = kept(streams, MemoryStore("a"), 4)
    for each in hanging:
        each.gets(lambda: goes_on.wait(60))
    (other,) = kept(streams, MemoryStore("a"))
    until(lambda: all(each.busy for each in hanging))
    before = [len(each.looks) for each in (*hanging, other)]
    time.sleep(1)
    after = [len(each.looks) for each in (*hanging, other)]
    assert all(b - a >= 5 for a, b in zip(before, after, strict=True)), (before, after)
    goes_on.set()


def test_those_that_hang_keep_nobody_waiting(
    streams: list[Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_HANGING", 0.3)
    goes_on, done = threading.Event(), threading.Event()
    for each in kept(streams, MemoryStore("a"), 8):
        each.gets(lambda: goes_on.wait(60))
    (other,) = kept(streams, MemoryStore("b"))
    other.gets(done.set)
    assert done.wait(20)
    other.last = done.clear
    other.end()
    assert Scheduler.await_close(other, within=20)
    assert not done.is_set()
    goes_on.set()


def test_what_waits_for_a_thread_does_not_hang_yet(streams: list[Stream]) -> None:
    goes_on = threading.Event()
    some = kept(streams, MemoryStore("a"), 6)
    for each in some:
        each.gets(lambda: goes_on.wait(60))
    until(lambda: sum(each.busy == scheduler.QUEUED for each in some) == 2)
    assert sum((each.busy or 0) <= time.monotonic() for each in some) == 4
    goes_on.set()
    until(lambda: all(each.busy is None for each in some))


# Its threads do end by what nobody caught, which pytest would report.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_before_its_time_is_replaced(streams: list[Stream]) -> None:
    def ends() -> None:
        raise SystemExit

    class Ends(MemoryStore):
        ended = False

        def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
            if self.ended:
                raise SystemExit
            return super().definitions(timeout=timeout)

    store, done = Ends("a"), threading.Event()
    (one,) = kept(streams, store)
    for _ in range(5):  # more often than there are threads
        one.gets(ends)
        until(lambda: not one.works and one.busy is None)
    one.gets(done.set)
    assert done.wait(10)
    store.ended = True
    until(lambda: not Scheduler.has(one), seconds=10)
    store.ended = False
    Scheduler.add(store, one)
    before = len(one.looks)
    until(lambda: len(one.looks) > before)


def test_a_store_that_hangs_or_fails_is_that_of_its_own_streams(streams: list[Stream]) -> None:
    goes_on = threading.Event()

    class Hangs(MemoryStore):
        def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
            assert timeout == pytest.approx(0.1)
            if not goes_on.wait(60):
                raise TimeoutError
            raise StoreError("no answer")

    (behind,) = kept(streams, Hangs("a"))
    (other,) = kept(streams, MemoryStore("b"))
    until(lambda: len(other.looks) > 3)
    assert not behind.looks
    assert not Scheduler.await_close(behind, within=0.1)
    goes_on.set()
    until(lambda: behind.errors[-1:] == ["no answer"])
    assert not other.errors


def test_one_that_is_woken_while_it_is_looked_at_is_looked_at_again(streams: list[Stream]) -> None:
    (one,) = kept(streams, MemoryStore("a"))
    one.patience = 600
    until(lambda: one.looks)
    told = threading.Event()

    class Now(list[Callable[[], object]]):
        def __bool__(self) -> bool:  # asked within a look
            if not told.is_set():
                told.set()
                Scheduler.wake(one)
            return False

    one.works = Now()
    before = len(one.looks)
    Scheduler.wake(one)
    until(lambda: len(one.looks) >= before + 2, seconds=5)


def test_a_fault_of_one_is_none_of_the_others(streams: list[Stream]) -> None:
    (bad,), (good,) = kept(streams, store := MemoryStore("a")), kept(streams, store)

    def fails() -> None:
        raise KeyError("theirs")

    for _ in range(8):
        bad.gets(fails)
        until(lambda: not bad.works and bad.busy is None)
    assert bad.errors == ["'theirs'"] * 8
    before = len(good.looks)
    until(lambda: len(good.looks) > before)
    assert not good.errors


def test_it_closes_after_its_last_work(streams: list[Stream]) -> None:
    (one,) = kept(streams, MemoryStore("a"))
    goes_on = threading.Event()
    one.last = lambda: goes_on.wait(60)
    one.end()
    assert not Scheduler.await_close(one, within=0.2)
    goes_on.set()
    assert Scheduler.await_close(one, within=10)


def test_without_a_thread_to_be_had_it_is_told(
    streams: list[Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = kept(streams, MemoryStore("a"))
    until(lambda: one.looks)

    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = threading.Event()
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", none)
        one.gets(done.set)
        until(lambda: one.errors == ["can't start new thread"])
        assert one.busy is None
    one.gets(done.set)
    assert done.wait(10)
    until(lambda: one.busy is None)
    until(lambda: "streams: queries" not in threads())
    some = kept(streams, MemoryStore("b"), 3)
    closed = list[int]()
    with monkeypatch.context() as without:  # as Python 3.12 is when it ends
        without.setattr(threading.Thread, "start", none)
        for n, each in enumerate(some):
            each.last = partial(closed.append, n)
            each.end()
        assert all(Scheduler.await_close(each, within=10) for each in some)
    assert sorted(closed) == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no children that share memory")
def test_a_child_keeps_nothing(streams: list[Stream]) -> None:
    (one,) = kept(streams, MemoryStore("a"))
    with scheduler.Scheduler._changed:
        child = os.fork()
        if child == 0:
            os._exit(0 if Scheduler.await_close(one, within=0) and not Scheduler.has(one) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Scheduler.has(one)
