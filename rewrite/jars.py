"""Cache which jars Ivy resolved, so that later starts of Spark need no Ivy.

Spark loads cached jars from `spark.jars`. The cache is used only if `session` chose all packages,
the settings are the same, and no jar has changed since; otherwise Ivy resolves the packages again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from rewrite.bridge import class_cache

__all__ = ["Jars"]

_KIND = "jars"
_SETTINGS = ("packages", "excludes", "repositories", "ivy", "ivySettings")


class Jars:
    """The jars with which Spark starts once.

    `given` are the user's settings, `settings` those passed to Spark.
    """

    def __init__(self, given: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        # A running JVM loads no more jars. The user's packages may contain Python files, which
        # Spark adds to the path only if it resolves the packages.
        own = any(given.get(key) for key in ("spark.jars", "spark.jars.packages"))
        packages = settings.get("spark.jars.packages")
        self._key = None
        if packages and not own and SparkContext._gateway is None:
            self._key = _key(settings)

    def settings(self) -> dict[str, str]:
        """Return settings that replace `spark.jars.packages`; empty if a jar has changed."""
        cached = None if self._key is None else class_cache.load(self._key, _KIND)
        if cached is None:
            return {}
        sizes: dict[str, int] = json.loads(cached["jars.json"])
        if {location: _size(location) for location in sizes} != sizes:
            return {}
        self._key = None
        return {"spark.jars": ",".join(sizes), "spark.jars.packages": ""}

    def remember(self, spark: SparkSession) -> None:
        """Cache which jars Ivy resolved for this start."""
        if self._key is None:
            return
        jars = (spark.sparkContext.getConf().get("spark.jars") or "").split(",")
        sizes = {location: _size(location) for location in jars}
        if None not in sizes.values():
            class_cache.save(self._key, {"jars.json": json.dumps(sizes).encode()}, _KIND)
        self._key = None


def _key(settings: Mapping[str, str]) -> str:
    """Return a hash of all settings and files that determine which jars Spark loads."""
    folder = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"  # type: ignore[no-untyped-call]
    defaults = Path(folder, "spark-defaults.conf")
    parts = [str(settings.get(f"spark.jars.{name}")) for name in _SETTINGS]
    parts += [str(Path.home()), os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    parts += [defaults.read_text("utf-8", "replace") if defaults.is_file() else ""]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _size(location: str) -> int | None:
    """Return the size in bytes of the local file at a URL; None if there is no such file."""
    parts = urlsplit(location)
    try:
        return Path(unquote(parts.path)).stat().st_size if parts.scheme == "file" else None
    except OSError:
        return None
