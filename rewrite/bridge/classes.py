"""Load the project's Java classes, from the jar that the wheel contains for each Spark line."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from providers.errors import SessionError
from skipping.requirements import require_spark

_JARS = Path(__file__).parents[1] / "jars"

_DIGEST = "rewrite/jvm/sources.sha256"
"""The resource that identifies what a jar was compiled from."""


class Classes:
    """The classes of `rewrite.jvm` in one JVM.

    Executors do not have this class loader. So the classes are used on the driver only, and plans
    reference their objects only through transient fields.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._loader = _loader(gateway)

    def load_formats(self, java: Any, jars: Iterable[str | Path]) -> None:
        """Add jars with table formats, and find the formats anew; raises SessionError."""
        known = set(map(str, self._loader.getURLs()))
        urls = {}
        for jar in map(Path, jars):
            if not jar.is_file():
                raise SessionError(f"{jar} in jars is not a file")
            if not zipfile.is_zipfile(jar):
                raise SessionError(f"{jar} in jars is not a jar, or is damaged")
            url = _url(self._gateway, jar)
            if str(url) not in known:
                urls[str(url)] = url
        try:
            if urls:
                # A loader never forgets a jar, so another one tries to load the formats first.
                trial = _new_loader(self._gateway, list(urls.values()), self._loader)
                try:
                    java.loadFormats(trial)
                finally:
                    trial.close()
                for url in urls.values():
                    self._loader.addURL(url)
            java.loadFormats(self._loader)
        except Py4JJavaError as error:
            raise SessionError(
                f"a table format cannot be loaded: {error.java_exception.getMessage()}"
            ) from None

    def find(self, name: str) -> Any:
        """Return a class."""
        return self._loader.loadClass(f"rewrite.jvm.{name}")

    def new(self, name: str, *arguments: Any) -> Any:
        """Return a new instance, created by the only public constructor of the class."""
        loaded = self.find(name)
        # A list, not an array: py4j cannot put a Python callback into an array.
        given = self._gateway.jvm.java.util.ArrayList()
        for argument in arguments:
            given.add(argument)
        return loaded.getConstructors()[0].newInstance(given.toArray())


def find_jar() -> Path:
    """Return the jar of PySpark's line; raises SessionError in a checkout without one."""
    jar = _JARS / f"file-skipping-spark-{require_spark().spark}.jar"
    if not jar.exists():
        raise SessionError(f"{jar} is missing: run make install in this checkout to build it")
    return jar


@lru_cache(maxsize=1)
def _loader(gateway: Any) -> Any:
    # One loader per JVM, which outlives its Spark sessions: py4j caches methods by the name of
    # their class, and fails on an object of a second class with that name.
    return _load(gateway, find_jar())


def _load(gateway: Any, jar: Path) -> Any:
    """Return the class loader that has the jar's classes."""
    jvm = gateway.jvm
    # Table formats are in the loader that spark.jars and spark.jars.packages fill, the thread's.
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader = _new_loader(gateway, [_url(gateway, jar)], parent)
    _require_release(loader, jar)
    return loader


def _url(gateway: Any, jar: Path) -> Any:
    return gateway.jvm.java.io.File(str(jar)).toURI().toURL()


def _new_loader(gateway: Any, urls: Sequence[Any], parent: Any) -> Any:
    array = gateway.new_array(gateway.jvm.java.net.URL, len(urls))
    for i, url in enumerate(urls):
        array[i] = url
    return gateway.jvm.org.apache.spark.util.MutableURLClassLoader(array, parent)


def _require_release(loader: Any, jar: Path) -> None:
    """Raise SessionError if Spark was started with a jar of another release."""
    try:
        with zipfile.ZipFile(jar) as archive:
            ours = archive.read(_DIGEST)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SessionError(
            f"{jar} is damaged ({error}): install lakehouse-file-skipping again"
        ) from None
    found = loader.getResource(_DIGEST)  # in Spark's jars first, as for classes
    if found is None:
        raise SessionError(f"Java cannot read {jar}: it needs read permission on it")
    if bytes(found.openStream().readAllBytes()) != ours:
        where = str(found).partition("!")[0].removeprefix("jar:file:")
        raise SessionError(
            f"{where} in spark.jars belongs to another release of lakehouse-file-skipping: "
            f"start Spark with {jar}, or without it, which suffices for rewrite.enable(spark)"
        )
