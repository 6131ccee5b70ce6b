"""Check the checkpoint folders of streams: only folders in the session's settings are allowed.

The option `checkpoint_location` is part of the stored definition, which anyone with write access to
the store can change. So only the session determines where the driver may write.
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
    """Return the checkpoint folder for the stream of an index; None means a temporary folder.

    Raises DefinitionError as `require_checkpoint`.
    """
    # Spark itself would name a folder in its default location after the query, and so after a name
    # from the store.
    location = options.checkpoint_location or default_checkpoint(spark)
    if location is None:
        return None
    parent = _check_location(spark, location)
    folder = _path(spark, f"{str(parent.toString()).rstrip('/')}/{index}")
    if not (parent.equals(folder.getParent()) and folder.getName() == index):
        raise _checkpoint_error(f"the index id {index!r:.200} is not a valid folder name")
    return str(folder.toString())


def _check_location(spark: SparkSession, location: str) -> Any:
    """Return a location as an absolute Hadoop path; raise DefinitionError if it is not allowed."""
    path = _path(spark, location)
    if _LOG in str(path.toUri().getPath()).split("/"):
        raise _checkpoint_error(
            f"checkpoint_location {location!r:.200} is in the log of a Delta table"
        )
    roots = [_path(spark, root) for root in checkpoint_roots(spark)]
    if not any(is_under(path, root) for root in roots):
        raise _checkpoint_error(
            f"checkpoint_location {location!r:.200} is not allowed: use a folder below the "
            f"warehouse directory, or below those in {PREFIX}streaming.checkpointRoots and "
            f"{CHECKPOINTS}. These settings only have an effect if Spark is started with them"
        )
    return path


def _path(spark: SparkSession, text: str) -> Any:
    try:
        return hadoop_path(spark, text)
    except DefinitionError as error:
        raise _checkpoint_error(f"cannot use a checkpoint folder: {error}") from error


def _checkpoint_error(message: str) -> DefinitionError:
    return DefinitionError(message, about="with.checkpoint_location")
