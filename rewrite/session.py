"""Create a session that skips files, or enable an existing one."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import SessionError, StatementError
from rewrite.bridge.callbacks import find_original_error
from rewrite.bridge.install import Hooks, find_hooks
from rewrite.jar_cache import Jars
from rewrite.preflight import (
    DELTA_CATALOG,
    DELTA_EXTENSION,
    connect_error,
    is_submitted,
    missing_release,
    require_extension,
    require_java,
    require_session,
    selects_connect,
)
from skipping.indexing.interrupts import run_interruptibly
from skipping.parser.lexer import is_ours
from skipping.progress import in_notebook
from skipping.requirements import SparkLine, require_delta, require_spark
from skipping.spark_api import RELEASE, classic, error_condition

log = logging.getLogger("skipping")

FORMATS = {"delta": "Delta Lake", "iceberg": "Iceberg"}
"""Names of the formats that `session` can set up; Spark itself reads plain Parquet."""

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
"""Dependencies of Delta's jar that Spark already has; excluding them halves the download."""


class Session(SparkSession):
    """A SparkSession whose `sql` raises SkippingError for invalid skipping-index statements."""

    def sql(self, *args: Any, **kwargs: Any) -> DataFrame:
        """Run SQL as SparkSession.sql; raise SkippingError for an invalid index statement."""
        run = partial(super().sql, *args, **kwargs)
        text = args[0] if args else kwargs.get("sqlQuery")
        try:
            if isinstance(text, str) and is_ours(text):
                if RELEASE < (4, 1) and (any(args[1:]) or kwargs.get("args")):
                    raise StatementError(
                        "statements about skipping indexes have parameters since Spark 4.1: write "
                        "the values into the statement"
                    )
                return run_interruptibly(self, run)
            return run()
        except PySparkException as error:
            ours = find_original_error(error)
            if ours is None:
                raise
            raise ours from None


def session(
    builder: SparkSession.Builder | None = None, *, formats: Collection[str] | None = None
) -> Session:
    """Return a Delta and Iceberg session with file skipping; `builder` may have any settings.

    Unless you set them, this sets the jars, the extensions, the catalogs and the Python interpreter
    of the workers. `spark_catalog` is Delta's catalog, and `iceberg` an Iceberg catalog in the
    warehouse directory. `formats` selects the table formats: `["iceberg"]` works without Delta, and
    `[]` is for plain Parquet; default: those that have a release for the installed Spark. Raises
    SessionError with Spark Connect, without a suitable JDK, for a format without a release, and if
    the jars cannot be loaded.
    """
    formats = _choose_formats(formats, require_spark())
    builder = builder or SparkSession.builder
    conf: dict[str, Any] = builder._options
    if selects_connect(conf):
        raise connect_error()
    try:
        if "delta" in formats:
            require_delta()
    except ImportError as error:
        raise SessionError(str(error)) from None
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_submitted():
        conf = _read_launch_conf() | conf
    settings = _settings(conf, formats)
    jars = Jars(conf, settings)
    for key, value in {**settings, **jars.settings()}.items():
        builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        if error_condition(error) != "JAVA_GATEWAY_EXITED":
            raise
        raise SessionError(
            "Java exited while Spark was starting; its output above has the reason. If it could "
            "not resolve io.delta:delta-spark or iceberg-spark-runtime: the first start needs the "
            "network, or a mirror in spark.jars.repositories or spark.jars.ivySettings, or all of "
            "the jars in spark.jars; later starts take the jars from ~/.ivy2.5.2"
        ) from error
    jars.remember(spark)
    if "delta" in formats:
        require_extension(spark)
    return enable(spark)


def _read_launch_conf() -> dict[str, str]:
    """Return the settings that the JVM got from spark-submit and spark-defaults.conf."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _choose_formats(formats: Collection[str] | None, line: SparkLine) -> Collection[str]:
    """Return the formats of a session; raise SessionError for one that cannot be had."""
    missing = [name for name in FORMATS if not getattr(line, name)]
    if formats is None:
        for name in missing:
            log.warning(
                "the session cannot read %s tables: %s",
                FORMATS[name],
                missing_release(FORMATS[name], line),
            )
        return [name for name in FORMATS if name not in missing]
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise SessionError(f"formats are {' and '.join(FORMATS)}, not {unknown[0]}")
    for name in missing:
        if name in formats:
            raise SessionError(missing_release(FORMATS[name], line))
    return formats


def _settings(given: dict[str, Any], formats: Collection[str] = tuple(FORMATS)) -> dict[str, str]:
    """Return the settings for a session with these formats; those in `given` take priority."""
    defaults = {"spark.jars.excludes": ",".join(_BROUGHT_BY_SPARK)}
    if in_notebook():
        # Spark's progress bar is made for a terminal: in a notebook it fills the cell with lines.
        defaults["spark.ui.showConsoleProgress"] = "false"
    packages = _split(given.get("spark.jars.packages", ""))
    extensions = []
    if "iceberg" in formats:
        if "iceberg-spark-runtime" not in f"{packages} {given.get('spark.jars', '')}":
            packages.append(require_spark().iceberg_jar)
        extensions.append(_ICEBERG_EXTENSION)
        defaults |= _iceberg_catalog(given)
    if "delta" in formats:
        if "delta-spark" not in given.get("spark.jars", ""):
            packages = _with_delta(packages)
        extensions.insert(0, DELTA_EXTENSION)
        defaults["spark.sql.catalog.spark_catalog"] = DELTA_CATALOG
    given_extensions = _split(given.get("spark.sql.extensions", ""))
    extensions = list(dict.fromkeys([*given_extensions, *extensions]))
    lists = {"spark.jars.packages": packages, "spark.sql.extensions": extensions}
    return {**defaults, **given, **{key: ",".join(items) for key, items in lists.items() if items}}


def _with_delta(packages: list[str]) -> list[str]:
    from delta.pip_utils import configure_spark_with_delta_pip

    # delta-spark adds the jar for its own version and Spark's, and changes no other setting.
    probe = configure_spark_with_delta_pip(SparkSession.Builder(), extra_packages=packages)
    return _split(probe._options["spark.jars.packages"])


def _iceberg_catalog(given: dict[str, Any]) -> dict[str, str]:
    """Return settings for the catalog `iceberg` in the warehouse; {} if the builder has one."""
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


def enable(spark: SparkSession, *, jars: Sequence[str | Path] = ()) -> Session:
    """Make a session skip files, and return it; further calls do nothing.

    The session may have Delta, Iceberg, both, or neither (for plain Parquet). Spark builds the plan
    rules of a session once, when it first runs SQL. If that has happened, this returns a clone,
    which keeps temporary views and settings and becomes the active session. `jars` are local files
    with table formats of your own (`TableFormat.java`). Raises SessionError, with the fix, if the
    hooks or a format cannot work, and SettingError for an unknown `spark.skipping.` setting.
    """
    require_session(spark)
    _choose_python(spark)
    hooks = find_hooks(spark) or Hooks(spark)
    hooks.load_formats(jars)
    in_clone = not hooks.prove(spark)
    if in_clone:
        spark = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        if not hooks.prove(spark):
            raise SessionError(
                "plan rules cannot be added to this session, not even in a clone: "
                "start a new session with rewrite.session()"
            )
    hooks.follow(spark)
    enabled = Session(spark.sparkContext, spark._jsparkSession)
    _activate(enabled)
    if in_clone:
        log.warning("the session had already run SQL: use the clone that enable returned")
    return enabled


def disable(spark: SparkSession) -> None:
    """Stop skipping files in a session until `enable`."""
    hooks = find_hooks(spark)
    if hooks is not None:
        hooks.detach()


def _choose_python(spark: SparkSession) -> None:
    """Run Python workers on this host with the current interpreter, unless another is set.

    Spark's default is `python3` on the PATH, which may be outside this virtual environment. Workers
    on other hosts are not changed, because this interpreter's path may not exist there.
    """
    context = spark.sparkContext
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def _activate(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session runs"
    classic(jvm).SparkSession.setActiveSession(spark._jsparkSession)
    classic(jvm).SparkSession.setDefaultSession(spark._jsparkSession)
    # SparkSession.builder.getOrCreate() and SparkSession.getActiveSession() return these.
    SparkSession._instantiatedSession = spark
    SparkSession._activeSession = spark
