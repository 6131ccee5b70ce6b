"""Start a Spark session for a command."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from providers.errors import SessionError, SkippingError
from skipping.requirements import require_own, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def start_session(
    conf: Mapping[str, str], formats: str | None, *, quiet: bool
) -> Iterator[SparkSession]:
    """Start a session that skips files, and stop it at the end; raise SessionError."""
    try:
        require_spark()
        from pyspark.sql import SparkSession

        silence_query_errors()
        builder = SparkSession.builder.appName("file-skipping")
        if quiet:
            builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config(map=dict(conf))
        options = {} if formats is None else {"formats": [f for f in formats.split(",") if f]}
        spark: SparkSession = resolve_above("rewrite:session")(builder, **options)
    except (SkippingError, ImportError) as error:
        raise SessionError(f"cannot start a session: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()


def silence_query_errors() -> None:
    """Stop PySpark from logging a query's error as JSON, because the command prints the error."""
    with suppress(ModuleNotFoundError):  # Spark 3.5 does not log it
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def resolve_above(name: str) -> Any:
    """Import by name: only this command may depend on `rewrite`, the library must not."""
    require_own("rewrite")
    return pkgutil.resolve_name(name)
