"""Compiles the Java of this package at session start, with the Janino that ships with Spark."""

from __future__ import annotations

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
        jvm = gateway.jvm
        # The source path is the folder that holds the package `rewrite`, so that the files' place
        # agrees with their `package rewrite.jvm`.
        roots = gateway.new_array(jvm.java.io.File, 1)
        roots[0] = jvm.java.io.File(str(Path(__file__).parent.parent))
        # Delta's classes are in the loader that spark.jars.packages fills, the thread's own.
        parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._loader = jvm.org.codehaus.janino.JavaSourceClassLoader(parent, roots, "UTF-8")

    def new(self, name: str, *arguments: Any) -> Any:
        """An instance of a class, by the class's only public constructor."""
        loaded = self._loader.loadClass(f"rewrite.jvm.{name}")
        # A list, not an array: py4j cannot put a Python callback into an array.
        given = self._gateway.jvm.java.util.ArrayList()
        for argument in arguments:
            given.add(argument)
        return loaded.getConstructors()[0].newInstance(given.toArray())
