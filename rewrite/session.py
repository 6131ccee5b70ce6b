"""Sessions that skip files: build one, or put the hooks into one that is there."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import SessionError
from rewrite.bridge.callbacks import find_original_error
from rewrite.bridge.install import Hooks, find_hooks
from rewrite.jars import Jars
from rewrite.preflight import (
    DELTA_CATALOG,
    DELTA_EXTENSION,
    ICEBERG_JAR,
    asks_for_connect,
    connect_error,
    is_submitted,
    require_extension,
    require_java,
    require_session,
)
from skipping.indexing.interrupts import run_interruptibly
from skipping.parser import is_ours
from skipping.progress import in_notebook
from skipping.requirements import require_delta

__all__ = ["Session", "disable", "enable", "session"]

log = logging.getLogger("skipping")

FORMATS = ("delta", "iceberg")
"""What `session` brings; plain Parquet is Spark's own."""

_ICEBERG_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_ICEBERG = "spark.sql.catalog.iceberg"
_ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"

_BROUGHT_BY_SPARK = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:*",
    "org.slf4j:slf4j-api",
    "org.apache.parquet:parquet-hadoop",
    "com.fasterxml.jackson.core:jackson-databind",
)
"""What Delta's jar asks for and Spark has; leaving it out more than halves the download."""


class Session(SparkSession):
    """A SparkSession whose `sql` raises our errors as they are (SkippingError)."""

    def sql(self, *args: Any, **kwargs: Any) -> DataFrame:
        """As SparkSession.sql; a wrong statement of ours raises SkippingError."""
        run = partial(super().sql, *args, **kwargs)
        text = args[0] if args else kwargs.get("sqlQuery")
        try:
            if isinstance(text, str) and is_ours(text):
                return run_interruptibly(self, run)
            return run()
        except PySparkException as error:
            ours = find_original_error(error)
            if ours is None:
                raise
            raise ours from None


def session(
    builder: SparkSession.Builder | None = None, *, formats: Collection[str] = FORMATS
) -> Session:
    """A working Delta and Iceberg session with file skipping; `builder` may hold any settings.

    Sets the jars, the extensions, the catalogs and the workers' interpreter where you did not: the
    session's own catalog is Delta's, and `iceberg` is Iceberg's, in the warehouse directory. Of
    `formats` only those named: `["iceberg"]` needs no Delta, and `[]` is for plain Parquet. Raises
    SessionError where a session cannot be had: Spark Connect, no suitable JDK, no jars.
    """
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise SessionError(f"formats are {' and '.join(FORMATS)}, not {unknown[0]}")
    builder = builder or SparkSession.builder
    given: dict[str, Any] = builder._options
    if asks_for_connect(given):
        raise connect_error()
    try:
        if "delta" in formats:
            require_delta()
    except ImportError as error:
        raise SessionError(str(error)) from None
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_submitted():
        given = _read_launch_conf() | given
    settings = _settings(given, formats)
    jars = Jars(given, settings)
    for key, value in {**settings, **jars.settings()}.items():
        builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SessionError(
            "Java ended while Spark was starting; its reason stands above. If it could not "
            "resolve io.delta:delta-spark or iceberg-spark-runtime, the first start needs the "
            "network (or a mirror in spark.jars.repositories or spark.jars.ivySettings, or all of "
            "the jars in spark.jars); later ones take the jars from ~/.ivy2.5.2"
        ) from error
    jars.remember(spark)
    if "delta" in formats:
        require_extension(spark)
    return enable(spark)


def _read_launch_conf() -> dict[str, str]:
    """What spark-submit and spark-defaults.conf say to the Java that they have started."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _settings(given: dict[str, Any], formats: Collection[str] = FORMATS) -> dict[str, str]:
    """What a session with some formats needs, beside what the builder has."""
    made = {"spark.jars.excludes": ",".join(_BROUGHT_BY_SPARK)}
    if in_notebook():
        # Spark redraws its bar as in a terminal: a cell fills up with it.
        made["spark.ui.showConsoleProgress"] = "false"
    packages = _split(given.get("spark.jars.packages", ""))
    extensions = []
    if "iceberg" in formats:
        if "iceberg-spark-runtime" not in f"{packages} {given.get('spark.jars', '')}":
            packages.append(ICEBERG_JAR)
        extensions.append(_ICEBERG_EXTENSION)
        made |= _iceberg_catalog(given)
    if "delta" in formats:
        if "delta-spark" not in given.get("spark.jars", ""):
            packages = _with_delta(packages)
        extensions.insert(0, DELTA_EXTENSION)
        made["spark.sql.catalog.spark_catalog"] = DELTA_CATALOG
    given_extensions = _split(given.get("spark.sql.extensions", ""))
    extensions = list(dict.fromkeys([*given_extensions, *extensions]))
    listed = {"spark.jars.packages": packages, "spark.sql.extensions": extensions}
    return {**made, **given, **{key: ",".join(some) for key, some in listed.items() if some}}


def _with_delta(packages: list[str]) -> list[str]:
    from delta.pip_utils import configure_spark_with_delta_pip

    # delta-spark knows the jar that fits its own version and Spark's; it only writes that setting.
    probe = configure_spark_with_delta_pip(SparkSession.Builder(), extra_packages=packages)
    return _split(probe._options["spark.jars.packages"])


def _iceberg_catalog(given: dict[str, Any]) -> dict[str, str]:
    """The catalog `iceberg`, unless the builder has one of that name: folders in the warehouse."""
    if _ICEBERG in given:
        return {}
    warehouse = str(given.get("spark.sql.warehouse.dir", "spark-warehouse")).rstrip("/")
    if ":" not in warehouse and not warehouse.startswith("/"):
        warehouse = f"{Path.cwd()}/{warehouse}"
    return {
        _ICEBERG: _ICEBERG_CATALOG,
        f"{_ICEBERG}.type": "hadoop",
        f"{_ICEBERG}.warehouse": f"{warehouse}/iceberg",
    }


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def enable(spark: SparkSession) -> Session:
    """Put the hooks into a session; does nothing where they are.

    It may have Delta, Iceberg, both, or neither, for plain Parquet. A session that has run SQL has
    its plan rules built, so a clone is returned: it keeps temporary views and settings, and becomes
    the active session. Raises SessionError where the hooks cannot work, with what to do about it,
    and SettingError for an unknown `spark.skipping.` setting.
    """
    require_session(spark)
    _choose_python(spark)
    hooks = find_hooks(spark) or Hooks(spark)
    in_clone = not hooks.prove(spark)
    if in_clone:
        spark = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        if not hooks.prove(spark):
            raise SessionError(
                "the session takes no new plan rules, not even in a clone: "
                "start one with rewrite.session()"
            )
    hooks.follow(spark)
    enabled = Session(spark.sparkContext, spark._jsparkSession)
    _activate(enabled)
    if in_clone:
        log.warning("the session had run SQL already: go on with the clone that enable returned")
    return enabled


def disable(spark: SparkSession) -> None:
    """Let every query pass as if there were no index, until `enable`."""
    hooks = find_hooks(spark)
    if hooks is not None:
        hooks.detach()


def _choose_python(spark: SparkSession) -> None:
    """Let workers on this host be of the interpreter that runs, unless one was named.

    Spark takes `python3` of the PATH, which is not that of a virtual environment. On other hosts
    this path may mean nothing.
    """
    context = spark.sparkContext
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def _activate(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session runs"
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    jvm.org.apache.spark.sql.classic.SparkSession.setDefaultSession(spark._jsparkSession)
    # What SparkSession.builder.getOrCreate() and SparkSession.getActiveSession() give.
    SparkSession._instantiatedSession = spark
    SparkSession._activeSession = spark
