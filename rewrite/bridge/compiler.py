"""Compiles the Java of this package at session start, with the Janino that ships with Spark."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["Classes"]


class Classes:
    """The classes of `rewrite.jvm`, compiled for one JVM.

    Compiled classes stand only behind transient fields and on the driver: executors do not have
    this class loader.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._loader = _loader(gateway)

    def new(self, name: str, *arguments: Any) -> Any:
        """An instance of a class, by the class's only public constructor."""
        loaded = self._loader.loadClass(f"rewrite.jvm.{name}")
        # A list, not an array: py4j cannot put a Python callback into an array.
        given = self._gateway.jvm.java.util.ArrayList()
        for argument in arguments:
            given.add(argument)
        return loaded.getConstructors()[0].newInstance(given.toArray())


@lru_cache(maxsize=1)
def _loader(gateway: Any) -> Any:
    # One for the whole life of a JVM, which outlives its Spark sessions: py4j remembers methods by
    # the name of their class, and fails on an object of a second class with that name.
    jvm = gateway.jvm
    # The source path is the folder that holds the package `rewrite`, so that the files' place
    # agrees with their `package rewrite.jvm`.
    roots = gateway.new_array(jvm.java.io.File, 1)
    roots[0] = jvm.java.io.File(str(Path(__file__).parents[2]))
    # Delta's classes are in the loader that spark.jars.packages fills, the thread's own.
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.org.codehaus.janino.JavaSourceClassLoader(parent, roots, "UTF-8")
