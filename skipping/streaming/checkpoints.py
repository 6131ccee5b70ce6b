"""Where a stream keeps its place: under a folder that the session names, never elsewhere.

The option stands in the stored definition, so whoever may write to the store has a say in it; what
the driver writes to is for its session alone to choose.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from providers.errors import DefinitionError
from skipping.config.options import IndexOptions
from skipping.config.settings import PREFIX
from skipping.engines.spark import CHECKPOINTS, checkpoint_roots
from skipping.model.definition import IndexId

__all__ = ["checkpoint_of", "require_checkpoint"]

_LOG = "_delta_log"


def require_checkpoint(spark: SparkSession, options: IndexOptions) -> None:
    """Raise DefinitionError for a `checkpoint_location` under none of the session's folders."""
    if options.checkpoint_location is not None:
        _allowed(spark, options.checkpoint_location)


def checkpoint_of(spark: SparkSession, options: IndexOptions, index: IndexId) -> str | None:
    """The folder for the stream of an index, written in one way; None: a temporary one.

    Raises DefinitionError as `require_checkpoint`.
    """
    # Spark would name a folder in its default one after the query, and so after a stored name.
    named = options.checkpoint_location or spark.conf.get(CHECKPOINTS, None)
    if named is None:
        return None
    place = _allowed(spark, named)
    folder = _path(spark, f"{str(place.toString()).rstrip('/')}/{index}")
    if not (place.equals(folder.getParent()) and folder.getName() == index):
        raise _refused(f"the index {index!r:.200} is not a folder name")
    return str(folder.toString())


def _allowed(spark: SparkSession, location: str) -> Any:
    """A location as a Hadoop path with its file system, absolute and without `..`."""
    path = _path(spark, location)
    if _LOG in str(path.toUri().getPath()).split("/"):
        raise _refused(f"checkpoint_location {location!r:.200} is in the log of a table")
    roots = [_path(spark, root) for root in checkpoint_roots(spark)]
    if not any(_is_under(path, root) for root in roots):
        raise _refused(
            f"checkpoint_location {location!r:.200} is under no folder where this session lets "
            f"streams write: these are its warehouse directory and those of "
            f"{PREFIX}streaming.checkpointRoots, which counts only in the configuration that a "
            f"session is started with; without those, that of {CHECKPOINTS}"
        )
    return path


def _path(spark: SparkSession, text: str) -> Any:
    """As Hadoop reads it. No file system is opened but the session's own default one."""
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        path = hadoop.Path(text)
        home = path if path.isAbsolute() else hadoop.FileSystem.get(conf).getWorkingDirectory()
        path = path.makeQualified(hadoop.FileSystem.getDefaultUri(conf), home)
        # Of `/a/b/..` Hadoop makes `/a/`, whose name is empty and whose parent is `/a`.
        return path if path.getName() or path.isRoot() else path.getParent()
    except (Py4JError, PySparkException) as error:
        raise _refused(f"{text!r:.200} is not a folder for a checkpoint") from error


def _is_under(path: Any, root: Any) -> bool:
    """Whether a path is a folder or in it, by whole names."""
    one, other = path.toUri(), root.toUri()
    if (one.getScheme(), one.getAuthority() or "") != (
        other.getScheme(),
        other.getAuthority() or "",
    ):
        return False
    parts, top = (str(uri.getPath()).rstrip("/").split("/") for uri in (one, other))
    return ".." not in parts and parts[: len(top)] == top


def _refused(message: str) -> DefinitionError:
    return DefinitionError(message, about="with.checkpoint_location")
