"""The index types: those of this project, of installed packages, and of a setting."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from providers.base import SkippingProvider
from providers.errors import DefinitionError, SettingError

ENTRY_POINTS = "skipping.providers"
"""The group of entry points that index types register in, also those of this project."""

_SYNONYMS = {"VALUE_SET": "VALUE_LIST"}  # Flint's word


@lru_cache(maxsize=8)
def kinds(extra: tuple[str, ...] = ()) -> dict[str, type[SkippingProvider]]:
    """Return all index types by name; `extra` are classes as `module:Class`.

    Raises SettingError for a class that cannot be loaded, and for two classes with one name.
    """
    classes = [_load(p, f"entry point {p.name}") for p in entry_points(group=ENTRY_POINTS)]
    classes += [_load(EntryPoint("", p, ENTRY_POINTS), "spark.skipping.providers") for p in extra]
    found: dict[str, type[SkippingProvider]] = {}
    for provider in classes:
        kind = _name(provider.kind)
        if found.setdefault(kind, provider) is not provider:
            raise SettingError(
                f"both {_path(found[kind])} and {_path(provider)} are the index type {kind}: "
                "remove one of them"
            )
    return found


def find(kind: str, extra: Iterable[str] = ()) -> type[SkippingProvider]:
    """Return the class of an index type, in upper or lower case.

    Raises DefinitionError with a suggestion if there is no such index type.
    """
    known = kinds(tuple(extra))
    name = _name(kind)
    if name not in known:
        near = get_close_matches(name, (*known, *_SYNONYMS), n=1)
        hint = f"did you mean {near[0]}?" if near else f"the types are {', '.join(sorted(known))}"
        raise DefinitionError(f"unknown index type {kind}: {hint}")
    return known[name]


def _name(kind: str) -> str:
    return _SYNONYMS.get(kind.upper(), kind.upper())


def _load(point: EntryPoint, origin: str) -> type[SkippingProvider]:
    try:
        provider: type[SkippingProvider] = point.load()
    except Exception as error:  # an import of foreign code may raise anything
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
