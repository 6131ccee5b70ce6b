"""Where a stream keeps its place: under a folder that the session names, never elsewhere.

The option stands in the stored definition, so whoever may write to the store has a say in it; what
the driver writes to is for its session alone to choose.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from providers.errors import DefinitionError
from skipping.config.options import IndexOptions
from skipping.config.settings import PREFIX
from skipping.model.definition import IndexId
from skipping.sources.spark import CHECKPOINTS, checkpoint_roots, default_checkpoint
from skipping.sources.stored import hadoop_path, is_under

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
    named = options.checkpoint_location or default_checkpoint(spark)
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
    if not any(is_under(path, root) for root in roots):
        raise _refused(
            f"checkpoint_location {location!r:.200} is under no folder where this session lets "
            f"streams write: these are its warehouse directory, and those of "
            f"{PREFIX}streaming.checkpointRoots and {CHECKPOINTS}, which count only in the "
            f"configuration that a session is started with"
        )
    return path


def _path(spark: SparkSession, text: str) -> Any:
    try:
        return hadoop_path(spark, text)
    except DefinitionError as error:
        raise _refused(f"{error} for a checkpoint") from error


def _refused(message: str) -> DefinitionError:
    return DefinitionError(message, about="with.checkpoint_location")
