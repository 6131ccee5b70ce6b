"""Where kinds come from: our own, installed packages, a setting."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from providers import MinMax, ValueList, registry
from providers.errors import DefinitionError, SettingError
from providers.registry import ENTRY_POINTS, find, kinds


class Parity(MinMax):
    """A kind of somebody else."""

    kind = "PARITY"


class LowerCase(MinMax):
    kind = "lower_case"


class Usurper(MinMax):
    kind = "MIN_MAX"


class Synonym(MinMax):
    kind = "VALUE_SET"  # what find() takes for VALUE_LIST


class NoKind:
    pass


class Half:
    kind = "HALF"
    only_extremes = False


@pytest.fixture(autouse=True)
def third_party(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An importable module `third_party` with the classes above; the cache is emptied around."""
    module: Any = types.ModuleType("third_party")
    for cls in (Parity, LowerCase, Usurper, Synonym, NoKind, Half):
        setattr(module, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, "third_party", module)
    kinds.cache_clear()
    yield
    kinds.cache_clear()


def _install(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    points = [EntryPoint("mine", path, ENTRY_POINTS) for path in paths]
    ours = registry.entry_points

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "skipping.providers"
        return [*ours(group=group), *points]

    monkeypatch.setattr(registry, "entry_points", entry_points)


def test_our_own_kinds_are_found_in_any_case() -> None:
    assert {"BLOOM_FILTER", "MIN_MAX", "VALUE_LIST", "PARTITION"} <= set(kinds())
    assert find("min_max") is find("MIN_MAX") is MinMax
    assert find("VALUE_SET") is find("value_set") is ValueList


def test_a_setting_names_a_class() -> None:
    assert find("parity", ["third_party:Parity"]) is Parity
    assert find("Lower_Case", ("third_party:LowerCase",)) is LowerCase
    with pytest.raises(DefinitionError):
        find("PARITY")  # it was the setting's, not ours from now on


def test_an_installed_package_brings_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "third_party:Parity")
    assert find("PARITY") is Parity
    assert find("parity", ["third_party:Parity"]) is Parity  # named twice is not two kinds


def test_an_unknown_kind_lists_those_there_are() -> None:
    with pytest.raises(DefinitionError, match=r"unknown index type Z_ORDER: .*MIN_MAX.*VALUE_LIST"):
        find("Z_ORDER")
    with pytest.raises(DefinitionError, match="PARITY"):
        find("Z_ORDER", ["third_party:Parity"])


@pytest.mark.parametrize("path", ["third_party:Usurper", "third_party:Synonym"])
def test_two_kinds_of_one_name_are_refused_and_both_named(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingError, match=r"both providers\.\w+:\w+ and .*: remove one"):
        find("PARTITION", [path])
    _install(monkeypatch, path)
    with pytest.raises(SettingError, match="remove one"):
        find("PARTITION")


@pytest.mark.parametrize(
    "path",
    [
        *("nowhere:Kind", "third_party:Nothing", "third_party", "third_party:NoKind"),
        *("third_party:Half", "", ":"),
    ],
)
def test_what_cannot_be_loaded_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=rf"spark\.skipping\.providers: '{path}'"):
        find("MIN_MAX", [path])
    _install(monkeypatch, path)
    with pytest.raises(SettingError, match=rf"entry point mine: '{path}'"):
        find("MIN_MAX")
