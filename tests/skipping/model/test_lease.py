"""When an owner counts as dead, and that no clock but the observer's own is asked."""

from __future__ import annotations

import time

import pytest

from skipping.model.lease import PATIENCE, Lease, Watch


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_nobodys_lease_is_free() -> None:
    assert Watch().is_free(Lease())
    assert Watch().is_free(Lease(7))


def test_an_owner_that_does_not_move_is_dead() -> None:
    clock = Clock()
    watch, lease = Watch(clock=clock), Lease().claim("a")
    assert not watch.is_free(lease)
    clock.now += PATIENCE - 1
    assert not watch.is_free(lease)
    clock.now += 2
    assert watch.is_free(lease)


def test_each_beat_and_each_owner_starts_the_wait_again() -> None:
    clock = Clock()
    watch, lease = Watch(clock=clock), Lease().claim("a")
    for next_one in (lease, lease.renew(), lease.renew().renew(), lease.claim("b")):
        assert not watch.is_free(next_one)
        clock.now += PATIENCE - 1
        assert not watch.is_free(next_one)
    clock.now += 2
    assert watch.is_free(lease.claim("b"))


def test_a_wall_clock_that_jumps_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    watch, lease = Watch(clock=clock), Lease().claim("a")
    for jump in (1e9, -1e9):
        monkeypatch.setattr(time, "time", lambda jump=jump: 1.7e9 + jump)
        assert not watch.is_free(lease)
        assert not Watch(clock=clock).is_free(lease.renew())


def test_words_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    lease = Lease().claim("host, process 1, app")
    assert Lease().describe() == Lease(3).describe() == "no owner"
    assert lease.describe() == "host, process 1, app"
    monkeypatch.setattr(time, "time", lambda: 3_000.0)
    assert lease.describe() == "no owner; host, process 1, app is silent for 2,000 s"
    monkeypatch.setattr(time, "time", lambda: 10.0)
    assert lease.describe() == "host, process 1, app"


def test_as_stores_keep_it() -> None:
    lease = Lease().claim("a").renew()
    assert Lease.from_json(lease.to_json()) == lease
    assert Lease.from_json('{"token": 3, "later": 1}') == Lease(3)
