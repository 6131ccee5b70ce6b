"""Which kinds there are: our own, installed packages' and those a setting names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points

from providers.errors import DefinitionError, SettingError
from providers.provider import SkippingProvider

__all__ = ["ENTRY_POINTS", "find", "kinds"]

ENTRY_POINTS = "skipping.providers"
"""The entry-point group; our own kinds are found through it like anybody's."""

_SYNONYMS = {"VALUE_SET": "VALUE_LIST"}  # Flint's word


@lru_cache(maxsize=8)
def kinds(extra: tuple[str, ...] = ()) -> dict[str, type[SkippingProvider]]:
    """Every kind by its name, `extra` being classes as `module:Class`.

    Raises SettingError when two classes claim one name, so that none of them wins unseen.
    """
    classes = [point.load() for point in entry_points(group=ENTRY_POINTS)]
    classes += [_load(path) for path in extra]
    found: dict[str, type[SkippingProvider]] = {}
    for provider in classes:
        if found.setdefault(provider.kind, provider) is not provider:
            raise SettingError(
                f"both {_path(found[provider.kind])} and {_path(provider)} are the index kind "
                f"{provider.kind}: remove one of them"
            )
    return found


def find(kind: str, extra: Iterable[str] = ()) -> type[SkippingProvider]:
    """The class of a kind, in any case; raises DefinitionError that lists those there are."""
    known = kinds(tuple(extra))
    name = _SYNONYMS.get(kind.upper(), kind.upper())
    if name not in known:
        raise DefinitionError(f"no index kind {kind}: there are {', '.join(sorted(known))}")
    return known[name]


def _load(path: str) -> type[SkippingProvider]:
    module, _, name = path.partition(":")
    try:
        provider: type[SkippingProvider] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(
            f"spark.skipping.providers: {path!r} cannot be loaded ({error}); "
            "give module:Class, installed where the driver and the executors run"
        ) from error
    return provider


def _path(provider: type[SkippingProvider]) -> str:
    return f"{provider.__module__}:{provider.__name__}"
