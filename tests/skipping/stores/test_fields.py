"""What is kept of the sketches on the driver, and what is dropped again."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from providers.errors import StoreError
from skipping.stores import Catalogue
from skipping.stores.fields import Fields, apply_change
from skipping.stores.single_flight import SingleFlight


def fields(generation: int, *ordinals: int, removed: tuple[int, ...] = ()) -> Catalogue:
    """Each file's ordinal and, twice as much, its only field: 16 bytes a file."""
    numbers = pa.array(ordinals, pa.int64())
    files = pa.table({"ordinal": numbers, "s1_low": pa.array([2 * o for o in ordinals])})
    return Catalogue(generation, 99, files, pa.array(removed, pa.int64()))


def soon() -> float:
    return time.monotonic() + 30


def test_those_asked_for_last_stay() -> None:
    kept = Fields(50)
    for name in "abc":
        kept.add(name, "s1", fields(1, 0))
    assert kept.get("a", "s1", Catalogue) is not None
    kept.add("d", "s1", fields(1, 0))
    assert [kept.get(name, "s1", Catalogue) is None for name in "abcd"] == [
        False,
        True,
        False,
        False,
    ]
    kept.add("e", "s1", fields(1, *range(9)))  # more than there is room for
    assert [kept.get(name, "s1", Catalogue) for name in "abcde"] == [None] * 5


def test_the_newest_stays() -> None:
    kept = Fields()
    newest = fields(2, 0)
    for each in (fields(1, 0, 1), newest, fields(1, 0)):
        kept.add("i", "s1", each)
    assert kept.get("i", "s1", Catalogue) is newest


def test_what_goes() -> None:
    kept = Fields()
    for name in "abc":
        kept.add(name, "s1", fields(1, 0))
    kept.drop("a")
    kept.retain({"a", "b"})
    assert [kept.get(name, "s1", Catalogue) is None for name in "abc"] == [True, False, True]


def test_brought_up_to_what_changed() -> None:
    newest = apply_change(fields(3, 0, 1, 2, 5), fields(4, 7, 1, removed=(2, 6)))
    assert newest.files.to_pydict() == {"ordinal": [0, 1, 5, 7], "s1_low": [0, 2, 10, 14]}
    assert newest.generation == 4


def test_a_load_goes_on_for_who_comes_later() -> None:
    kept, go, times = Fields(), threading.Event(), []

    def read() -> Catalogue:
        times.append(1)
        go.wait(30)
        return fields(1, 0)

    deadline = time.monotonic() + 0.02
    assert kept.load("i", "s1", read, deadline=deadline) is None
    assert kept.load("i", "s1", read, deadline=deadline) is None
    threading.Timer(0.05, go.set).start()
    assert kept.load("i", "s1", read, deadline=soon()) is kept.get("i", "s1", Catalogue) is not None
    assert times == [1]


@pytest.mark.parametrize("error", [StoreError("away"), MemoryError("away")])
def test_a_load_that_fails(error: Exception) -> None:
    kept = Fields()

    def read() -> Catalogue:
        raise error

    for _ in range(2):
        with pytest.raises(StoreError, match="away"):
            kept.load("i", "s1", read, deadline=soon())
    assert kept.load("i", "s1", lambda: fields(1, 0), deadline=soon()) is not None


def test_what_is_not_kept_is_not_worth_reading_ahead() -> None:
    kept = Fields(50)
    assert kept.fits("i", "s1")
    kept.add("i", "s1", fields(1, *range(9)))
    assert [kept.fits("i", "s1"), kept.fits("i", "s2"), Fields(0).fits("i", "s2")] == [
        False,
        True,
        False,
    ]


def test_work_that_cannot_begin_is_begun_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever asks for the same waits in vain for as long as the process lives."""
    loading = SingleFlight[int]()

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(StoreError, match="can't start new thread"):
            loading.result("key", lambda: 1, timeout=30)
    assert loading.result("key", lambda: 2, timeout=30) == 2
