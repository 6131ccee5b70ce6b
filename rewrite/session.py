"""Sessions that skip files: build one, or put the hooks into one that is there."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import SessionError
from rewrite.bridge.callbacks import find_original_error
from rewrite.bridge.install import Hooks, find_hooks
from skipping.requirements import DELTA, SPARK, require_delta, require_release

__all__ = ["Session", "disable", "enable", "session"]

log = logging.getLogger("skipping")

_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_ICEBERG_JAR = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
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
        try:
            return super().sql(*args, **kwargs)
        except PySparkException as error:
            ours = find_original_error(error)
            if ours is None:
                raise
            raise ours from None


def session(builder: SparkSession.Builder | None = None) -> Session:
    """A working Delta and Iceberg session with file skipping; `builder` may hold any settings.

    Sets the jars, the extensions, the catalogs and the workers' interpreter where you did not: the
    session's own catalog is Delta's, and `iceberg` is Iceberg's, in the warehouse directory. Raises
    SessionError where a session cannot be had: Spark Connect, no suitable JDK, no jars.
    """
    builder = builder or SparkSession.builder
    given: dict[str, Any] = builder._options
    if _asks_for_connect(given):
        raise SessionError(_CONNECT)
    try:
        require_delta()
    except ImportError as error:
        raise SessionError(str(error)) from None
    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in _settings(given).items():
        builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SessionError(
            "Java ended while Spark was starting; its reason stands above. If it could not "
            "resolve io.delta:delta-spark or iceberg-spark-runtime, the first start needs the "
            "network (or a mirror in spark.jars.repositories); later ones take the jars from "
            "~/.ivy2.5.2"
        ) from error
    return enable(spark)


def _settings(given: dict[str, Any]) -> dict[str, str]:
    """What a Delta and Iceberg session needs, beside what the builder has."""
    from delta.pip_utils import configure_spark_with_delta_pip

    packages = _listed(given.get("spark.jars.packages", ""))
    if "iceberg-spark-runtime" not in f"{packages} {given.get('spark.jars', '')}":
        packages.append(_ICEBERG_JAR)
    # delta-spark knows the jar that fits its own version and Spark's; it only writes that setting.
    probe = configure_spark_with_delta_pip(SparkSession.Builder(), extra_packages=packages)
    extensions = _listed(given.get("spark.sql.extensions", ""))
    extensions += [e for e in (_DELTA_EXTENSION, _ICEBERG_EXTENSION) if e not in extensions]
    return {
        **_iceberg_catalog(given),
        "spark.sql.catalog.spark_catalog": _DELTA_CATALOG,
        "spark.jars.excludes": ",".join(_BROUGHT_BY_SPARK),
        **given,
        "spark.jars.packages": probe._options["spark.jars.packages"],
        "spark.sql.extensions": ",".join(extensions),
    }


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


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def enable(spark: SparkSession) -> Session:
    """Put the hooks into a session; does nothing where they are.

    A session that has run SQL has its plan rules built, so a clone is returned: it keeps temporary
    views and settings, and becomes the active session. Raises SessionError where the hooks cannot
    work, with what to do about it, and SettingError for an unknown `spark.skipping.` setting.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise SessionError(_CONNECT)
    # The server's, which a client of another release may have started.
    _require_release("Spark", spark.version, SPARK)
    _require_delta(spark)
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


def _require_delta(spark: SparkSession) -> None:
    # Not spark.conf: asking it builds the session's state, and the hooks would come too late.
    if _DELTA_EXTENSION not in spark.sparkContext.getConf().get("spark.sql.extensions", ""):
        raise SessionError(
            "the session has no Delta, and a running one cannot get it: spark.stop(), restart "
            "Python, and start with rewrite.session(), or with "
            f"spark.sql.extensions={_DELTA_EXTENSION}, "
            f"spark.sql.catalog.spark_catalog={_DELTA_CATALOG} and the delta-spark jar"
        )
    jvm: Any = spark.sparkContext._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass(_DELTA_EXTENSION)
        package = loader.loadClass("io.delta.package$").getField("MODULE$").get(None)
    except Py4JError as error:
        raise SessionError(
            "Delta's jars are not loaded: Java takes spark.jars.packages only when it starts, and "
            "an earlier session of this process started it without them: restart Python"
        ) from error
    # The jar's, which spark.jars or a cluster may bring beside delta-spark.
    _require_release("Delta Lake", package.VERSION(), DELTA)


def _require_release(what: str, found: str, needed: str) -> None:
    try:
        require_release(what, found, needed)
    except ImportError as error:
        raise SessionError(str(error)) from None


def _activate(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session runs"
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    jvm.org.apache.spark.sql.classic.SparkSession.setDefaultSession(spark._jsparkSession)
    # What SparkSession.builder.getOrCreate() and SparkSession.getActiveSession() give.
    SparkSession._instantiatedSession = spark
    SparkSession._activeSession = spark


_CONNECT = (
    "Spark Connect keeps query plans on its server, out of reach of this process: "
    "use a classic session (no spark.remote, no SPARK_REMOTE)"
)


def _asks_for_connect(given: Mapping[str, Any]) -> bool:
    modes = (given.get("spark.api.mode"), os.environ.get("SPARK_API_MODE"))
    return (
        "spark.remote" in given
        or bool(os.environ.get("SPARK_REMOTE"))
        or "connect" in [mode.lower() for mode in modes if mode]
    )


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"at {java}, where JAVA_HOME points" if home else "on the PATH"
        raise SessionError(f"no Java {where}: install a JDK 17 or 21, or set JAVA_HOME to one")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "((\d+)[^"]*)', said)
    # Spark's releases are tested on 17 and 21. From 23 on Java refuses Subject.getSubject, which
    # Hadoop calls while Spark starts.
    if version is None or not 17 <= int(version[2]) < 23:
        found = f"is {version[1]}" if version else "does not tell its version"
        raise SessionError(
            f"Spark 4.1 needs a JDK 17 or 21, {java} {found}: install one and set JAVA_HOME to it"
        )
