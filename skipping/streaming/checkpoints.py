"""Checkpoints of streams: only under folders that the session names.

The option is part of the stored definition, which anyone with write access to the store can change.
So the session alone decides where the driver may write.
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

_LOG = "_delta_log"


def require_checkpoint(spark: SparkSession, options: IndexOptions) -> None:
    """Raise DefinitionError if `checkpoint_location` is outside the session's folders."""
    if options.checkpoint_location is not None:
        _check_location(spark, options.checkpoint_location)


def checkpoint_of(spark: SparkSession, options: IndexOptions, index: IndexId) -> str | None:
    """Return the folder for the stream of an index, normalised; None: a temporary one.

    Raises DefinitionError as `require_checkpoint`.
    """
    # In its default folder, Spark would name one after the query, and so after a stored name.
    named = options.checkpoint_location or default_checkpoint(spark)
    if named is None:
        return None
    place = _check_location(spark, named)
    folder = _path(spark, f"{str(place.toString()).rstrip('/')}/{index}")
    if not (place.equals(folder.getParent()) and folder.getName() == index):
        raise _checkpoint_error(f"the index {index!r:.200} is not a folder name")
    return str(folder.toString())


def _check_location(spark: SparkSession, location: str) -> Any:
    """Return a location as an absolute Hadoop path without `..`; raise if it is not allowed."""
    path = _path(spark, location)
    if _LOG in str(path.toUri().getPath()).split("/"):
        raise _checkpoint_error(f"checkpoint_location {location!r:.200} is in the log of a table")
    roots = [_path(spark, root) for root in checkpoint_roots(spark)]
    if not any(is_under(path, root) for root in roots):
        raise _checkpoint_error(
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
        raise _checkpoint_error(f"{error} for a checkpoint") from error


def _checkpoint_error(message: str) -> DefinitionError:
    return DefinitionError(message, about="with.checkpoint_location")
