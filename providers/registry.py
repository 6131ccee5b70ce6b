"""Which kinds there are: our own, installed packages' and those a setting names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from providers.base import SkippingProvider
from providers.errors import DefinitionError, SettingError

__all__ = ["ENTRY_POINTS", "find", "kinds"]

ENTRY_POINTS = "skipping.providers"
"""The entry-point group; our own kinds are found through it like anybody's."""

_SYNONYMS = {"VALUE_SET": "VALUE_LIST"}  # Flint's word


@lru_cache(maxsize=8)
def kinds(extra: tuple[str, ...] = ()) -> dict[str, type[SkippingProvider]]:
    """Every kind by its name, `extra` being classes as `module:Class`.

    Raises SettingError for a class that cannot be loaded, and when two classes claim one name, so
    that none of them wins unseen.
    """
    classes = [_load(p, f"entry point {p.name}") for p in entry_points(group=ENTRY_POINTS)]
    classes += [_load(EntryPoint("", p, ENTRY_POINTS), "spark.skipping.providers") for p in extra]
    found: dict[str, type[SkippingProvider]] = {}
    for provider in classes:
        kind = _name(provider.kind)
        if found.setdefault(kind, provider) is not provider:
            raise SettingError(
                f"both {_path(found[kind])} and {_path(provider)} are the index kind {kind}: "
                "remove one of them"
            )
    return found


def find(kind: str, extra: Iterable[str] = ()) -> type[SkippingProvider]:
    """The class of a kind, in any case; raises DefinitionError that names what may be meant."""
    known = kinds(tuple(extra))
    name = _name(kind)
    if name not in known:
        near = get_close_matches(name, (*known, *_SYNONYMS), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
        raise DefinitionError(f"no index kind {kind}: {hint}")
    return known[name]


def _name(kind: str) -> str:
    return _SYNONYMS.get(kind.upper(), kind.upper())


def _load(point: EntryPoint, origin: str) -> type[SkippingProvider]:
    try:
        provider: type[SkippingProvider] = point.load()
    except Exception as error:  # whatever importing somebody's module may raise
        raise SettingError(
            f"{origin}: {point.value!r} cannot be loaded ({type(error).__name__}: {error}); "
            "give module:Class, installed where the driver and the executors run"
        ) from error
    named = isinstance(provider, type) and isinstance(getattr(provider, "kind", None), str)
    asks = isinstance(getattr(provider, "only_extremes", None), bool) and hasattr(provider, "most")
    if not named or not asks:
        raise SettingError(
            f"{origin}: {point.value!r} is not a subclass of providers.SkippingProvider"
        )
    return provider


def _path(provider: type[SkippingProvider]) -> str:
    return f"{provider.__module__}:{provider.__name__}"
