"""Cache the `Lookup` objects of a session and its clones, by their settings."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import SparkSession

from providers.errors import SessionError
from skipping.config.settings import Settings
from skipping.lookup.lookup import Lookup
from skipping.sources.spark import store_of

_MOST = 64
"""Maximum number of cached settings, and of lookups; the least recently used are removed."""


class LookupCache:
    """Caches the settings of each session, by Java's name for them, and their lookups.

    Settings that are equal, or differ only in `verification.sampleRate`, share one lookup.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        read: Callable[[str], str | None],
        warn: Callable[[str], None],
        on_change: Callable[[Lookup], None],
    ) -> None:
        """Create a cache.

        `read` returns the settings with a name, as JSON, or None. `on_change` is called with a
        lookup after its store has changed.
        """
        self._spark = spark
        self._read = read
        self._warn = warn
        self._on_change = on_change
        self._lock = threading.Lock()
        self._settings: OrderedDict[str, Settings] = OrderedDict()
        self._lookups: OrderedDict[Settings, Lookup] = OrderedDict()

    def get(self, name: str) -> tuple[Settings, Lookup]:
        """Return the settings that Java calls `name`, and their lookup."""
        settings = self.settings(name)
        return settings, self.lookup(settings)

    def settings(self, name: str) -> Settings:
        """Return the settings with a name; raise SessionError if Java dropped them."""
        with self._lock:
            if name in self._settings:
                self._settings.move_to_end(name)
                return self._settings[name]
        text = self._read(name)
        if text is None:
            raise SessionError("the session's settings are no longer cached: run the query again")
        settings, complaints = Settings.lenient(json.loads(text))
        for complaint in complaints:
            self._warn(complaint)
        with self._lock:
            _insert(self._settings, name, settings)
        return settings

    def lookup(self, settings: Settings) -> Lookup:
        """Return the lookup for these settings."""
        key = replace(settings, sample_rate=0.0)  # a lookup does not depend on it
        with self._lock:
            if key in self._lookups:
                self._lookups.move_to_end(key)
                return self._lookups[key]
        lookup = Lookup.of(store_of(self._spark(), settings), settings)
        on_change = self._on_change
        lookup.on_change = lambda: on_change(lookup)
        with self._lock:
            if key not in self._lookups:
                _insert(self._lookups, key, lookup)
            return self._lookups[key]

    def items(self) -> list[tuple[Settings, Lookup]]:
        """Return the cached lookups."""
        with self._lock:
            return list(self._lookups.items())

    def clear(self) -> None:
        """Remove all settings and lookups."""
        with self._lock:
            self._lookups.clear()
            self._settings.clear()


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _insert(cache: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Cache a value; remove the least recently used ones beyond `_MOST`."""
    cache[key] = value
    while len(cache) > _MOST:
        cache.popitem(last=False)
