"""Run an HDFS on this machine: a NameNode and a DataNode in one process of Hadoop's own classes.

The jars come from Maven Central. It listens on 127.0.0.1 only. Its user is that of the tests.
"""

from __future__ import annotations

import signal
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.jvm import Artifact, Program

__all__ = ["Hdfs"]

SERVER = Artifact(
    "org.apache.hadoop",
    "hadoop-client-minicluster",
    "3.4.2",
    "909d571221c05da4ffd9237e34fde73ef0e1cdc270a4fdcfb6b32a6081b3411d",
)


class Hdfs:
    """An HDFS that is empty; the constructor starts it. Leaving `with Hdfs() as hdfs` stops it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="hdfs-")
        base = Path(self._folder.name)
        self._program = Program(
            "Hdfs.java", SERVER, base / "data", log=base / "log", options=["-Xmx512m"]
        )
        self.url = f"hdfs://127.0.0.1:{self._program.ready}"
        """The address of its root."""

    def do(self, what: str | signal.Signals) -> None:
        """Do `stop NameNode`, `start NameNode`, or the same with DataNode; or send a signal."""
        if isinstance(what, signal.Signals):
            self._program.signal(what)
        else:
            assert self._program.ask(what) == what

    def stop(self) -> None:
        """Stop it and delete its data."""
        self._program.stop()
        self._folder.cleanup()

    def __enter__(self) -> Hdfs:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
