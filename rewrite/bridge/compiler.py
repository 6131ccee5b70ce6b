"""Compile the package's Java with the Janino that ships with Spark, once per release."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError

from rewrite.bridge import class_cache

__all__ = ["Classes"]

log = logging.getLogger("skipping")

_SOURCES = Path(__file__).parents[1] / "jvm"

_FORMATS = {
    "import org.apache.spark.sql.delta.": "org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex",
    "import org.apache.iceberg.": "org.apache.iceberg.spark.source.SparkBatchQueryScan",
}
"""Imports of optional table formats in Java sources, and a class of each format."""


class Classes:
    """The classes of `rewrite.jvm`, compiled for one JVM.

    Executors do not have this class loader. So the classes are used on the driver only, and plans
    reference their objects only through transient fields.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._loader = _loader(gateway)

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


@lru_cache(maxsize=1)
def _loader(gateway: Any) -> Any:
    # One loader per JVM, which outlives its Spark sessions: py4j caches methods by the name of
    # their class, and fails on an object of a second class with that name.
    return _load(gateway)


def _load(gateway: Any) -> Any:
    """Return a class loader for the cached classes; compile and cache them first if needed."""
    jvm = gateway.jvm
    # Delta's classes are in the loader that spark.jars.packages fills, the thread's own.
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    sources = {path: path.read_text("utf-8") for path in sorted(_SOURCES.rglob("*.java"))}
    formats = {mark: found for mark, name in _FORMATS.items() if (found := _origin(parent, name))}
    key = _key(jvm, parent, sources, formats)
    classes = class_cache.load(key)
    if classes is None:
        classes = _compile(gateway, parent, sources, tuple(formats))
        class_cache.save(key, classes)
    resources = jvm.java.util.HashMap()
    for name, code in classes.items():
        resources.put(name, code)
    return jvm.org.codehaus.commons.compiler.util.reflect.ByteArrayClassLoader(resources, parent)


def _key(jvm: Any, parent: Any, sources: dict[Path, str], formats: dict[str, str]) -> str:
    """Return a hash of everything the classes depend on: the sources, Java, and the jars."""
    parts = [jvm.java.lang.System.getProperty(f"java.{name}") for name in ("version", "vendor")]
    parts += [jvm.org.apache.spark.package.SPARK_VERSION()]
    parts += [
        _origin(parent, name)
        for name in ("org.apache.spark.sql.classic.SparkSession", "org.codehaus.janino.Compiler")
    ]
    for mark, origin in formats.items():
        parts += [mark, origin]
    for path, text in sources.items():
        parts += [path.relative_to(_SOURCES).as_posix(), text]
    return hashlib.sha256("\0".join(f"{len(part)} {part}" for part in parts).encode()).hexdigest()


def _origin(parent: Any, name: str) -> str:
    """Return the jar with a class, its size and time; an empty text if the class is missing."""
    # Do not load the class and catch the exception: to convert it, PySpark reads the session's
    # settings, which builds the plan rules, and then ours cannot be added.
    url = parent.getResource(f"{name.replace('.', '/')}.class")
    if url is None:
        return ""
    location = str(url)
    try:
        jar = location.removeprefix("jar:").partition("!")[0]
        found = Path(unquote(urlsplit(jar).path)).stat()
    except OSError:
        return location
    return f"{location} {found.st_size} {found.st_mtime_ns}"


def _compile(
    gateway: Any, parent: Any, sources: dict[Path, str], formats: Sequence[str]
) -> dict[str, bytes]:
    """Return class files by resource name; leave out a format whose Java does not compile."""
    for n in range(len(formats), -1, -1):
        for chosen in combinations(formats, n):
            without = [mark for mark in _FORMATS if mark not in chosen]
            files = [path for path, text in sources.items() if not any(m in text for m in without)]
            try:
                return _compile_files(gateway, parent, files)
            except Py4JJavaError as error:
                if n == 0:
                    raise
                log.warning("the Java for a table format does not compile: %s", error)
    raise AssertionError("the last attempt returns or raises")


def _compile_files(gateway: Any, parent: Any, files: Sequence[Path]) -> dict[str, bytes]:
    jvm = gateway.jvm
    janino, resource = jvm.org.codehaus.janino, jvm.org.codehaus.commons.compiler.util.resource
    made = jvm.java.util.HashMap()
    compiler = janino.Compiler()
    compiler.setIClassLoader(janino.ClassLoaderIClassLoader(parent))
    compiler.setClassFileFinder(resource.ResourceFinder.EMPTY_RESOURCE_FINDER)
    compiler.setClassFileCreator(resource.MapResourceCreator(made))
    compiler.setCharacterEncoding("UTF-8")
    given = gateway.new_array(jvm.java.io.File, len(files))
    for i, path in enumerate(files):
        given[i] = jvm.java.io.File(str(path))
    compiler.compile(given)
    return {str(name): bytes(made.get(name)) for name in made.keySet().toArray()}
