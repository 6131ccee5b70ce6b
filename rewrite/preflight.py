"""Check that a session has what the hooks need; the errors name what to install.

Table formats are optional: the checks look for a format's files before they load its classes.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from providers.errors import SessionError
from skipping.requirements import SparkLine, find_line, require_release, require_spark

log = logging.getLogger("skipping")

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


@dataclass(frozen=True, slots=True)
class _Jar:
    """The jar of a table format.

    `probe` is a class in the jar. `version` names the class and method that return its version: a
    static method without arguments, or a method of a Scala object. `name` is a pattern for the
    jar's file name; its groups are the versions of Spark and Scala.
    """

    format: str
    probe: str
    version: tuple[str, str]
    name: str


_DELTA = _Jar(
    "Delta Lake",
    DELTA_EXTENSION,
    ("io.delta.package$", "VERSION"),
    r"delta-spark_(?:(\d+\.\d+)_)?(\d+\.\d+)-",
)
_ICEBERG = _Jar(
    "Iceberg",
    "org.apache.iceberg.spark.SparkCatalog",
    ("org.apache.iceberg.IcebergBuild", "version"),
    r"iceberg-spark-runtime-(\d+\.\d+)_(\d+\.\d+)-",
)


def require_session(spark: SparkSession) -> None:
    """Raise SessionError, with what to install, unless Spark, Java and the jars are supported.

    No table format is required, but one that is present must have a supported release.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise connect_error()
    line = session_line(spark)
    jvm: Any = spark.sparkContext._jvm
    _require_java_release(str(jvm.System.getProperty("java.version")), "this session's", line)
    _require_scala(line, str(jvm.scala.util.Properties.versionNumberString()))
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    has_delta = _require_jar(_DELTA, loader, line)
    _require_jar(_ICEBERG, loader, line)
    if _has_extension(spark) and not has_delta:
        if is_submitted():
            raise SessionError(
                "Delta's jars are not loaded: spark-submit and pyspark start Java before Python. "
                f"Name the jars there: --packages {line.delta_jar}, or spark.jars.packages in "
                "spark-defaults.conf"
            )
        raise SessionError(
            "Delta's jars are not loaded: Java reads spark.jars.packages only when it starts, and "
            "an earlier session of this process started Java without them. Restart Python"
        )
    if has_delta and not _has_extension(spark):
        log.info("Delta is disabled: to use it, set spark.sql.extensions=%s", DELTA_EXTENSION)


def session_line(spark: SparkSession) -> SparkLine:
    """Return the line of a session's Spark; raise SessionError if it is not supported."""
    try:
        line = find_line("Spark", spark.version)
    except ImportError as error:
        raise SessionError(str(error)) from None
    if line != require_spark():  # PySpark may run beside another Spark, in SPARK_HOME
        raise SessionError(
            f"the session's Spark is {spark.version}, but PySpark is {require_spark().spark}: "
            f"pip install 'pyspark=={spark.version}'"
        )
    return line


def _require_scala(line: SparkLine, scala: str) -> None:
    """Raise SessionError unless Spark was built with the Scala of its line."""
    if not scala.startswith(f"{line.scala}."):
        raise SessionError(
            f"this is Spark {line.spark} for Scala {scala}, which is not supported: "
            f"use the Spark {line.spark} for Scala {line.scala}"
        )


def require_extension(spark: SparkSession) -> None:
    """Raise SessionError unless the session was started with Delta's extension."""
    if not _has_extension(spark):
        raise SessionError(
            "the session was started without Delta, which cannot be added later: call "
            "spark.stop(), restart Python, and start with rewrite.session(), or with "
            f"spark.sql.extensions={DELTA_EXTENSION}, "
            f"spark.sql.catalog.spark_catalog={DELTA_CATALOG} and the delta-spark jar. To use the "
            "session without Delta, call rewrite.enable(spark)"
        )


def _has_extension(spark: SparkSession) -> bool:
    # Reading spark.conf would build the session's state before the hooks can be added.
    return DELTA_EXTENSION in (spark.sparkContext.getConf().get("spark.sql.extensions") or "")


def _require_jar(jar: _Jar, loader: Any, line: SparkLine) -> bool:
    """Return whether a format is present; raise SessionError for an unsupported release."""
    # Look for a resource instead of loading the class: to convert its exception,
    # PySpark reads the settings, which builds the plan rules, and then ours cannot be added.
    found = loader.getResource(f"{jar.probe.replace('.', '/')}.class")
    if found is None:
        return False
    file = unquote(str(found)).partition("!")[0].rpartition("/")[2]
    releases = line.iceberg if jar is _ICEBERG else line.delta
    if not releases:
        raise SessionError(f"{file} cannot be used: {missing_release(jar.format, line)}")
    install = line.install
    if jar is _ICEBERG:
        install = f"spark.jars.packages={line.iceberg_jar}, and restart Python"
    built_for = re.search(jar.name, file)
    if built_for and (built_for[1] not in (None, line.spark) or built_for[2] != line.scala):
        raise SessionError(
            f"{file} is not built for Spark {line.spark} and Scala {line.scala}: {install}"
        )
    holder, method = jar.version
    loaded = loader.loadClass(holder)
    instance = loaded.getField("MODULE$").get(None) if holder.endswith("$") else None
    version = loaded.getMethod(method, None).invoke(instance, None)
    try:
        require_release(jar.format, str(version), *releases, install=install)
    except ImportError as error:
        raise SessionError(str(error)) from None
    return True


def missing_release(format: str, line: SparkLine) -> str:
    """Say that a format has no release for a line of Spark."""
    return (
        f"{format} has no release for Spark {line.spark}, so install an older Spark, such as "
        "pyspark==4.1.*, for its tables"
    )


def connect_error() -> SessionError:
    """Return the error for a session of Spark Connect."""
    return SessionError(
        "Spark Connect keeps query plans on its server, where this process cannot change them: "
        "use a classic session (no spark.remote, no SPARK_REMOTE)"
    )


def selects_connect(conf: Mapping[str, Any]) -> bool:
    """Return whether a builder's settings, or the environment, select Spark Connect."""
    modes = (conf.get("spark.api.mode"), os.environ.get("SPARK_API_MODE"))
    return (
        "spark.remote" in conf
        or bool(os.environ.get("SPARK_REMOTE"))
        or "connect" in [mode.lower() for mode in modes if mode]
    )


def is_submitted() -> bool:
    """Return whether spark-submit or the pyspark shell started Java, and then this Python."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_java() -> None:
    """Raise SessionError unless the Java that a new session would start can run Spark."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"at {java}, where JAVA_HOME points" if home else "on the PATH"
        raise SessionError(f"no Java {where}: install a JDK 17 or 21, or set JAVA_HOME to one")
    try:
        run = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise SessionError(
            f"{java} cannot run ({error.strerror}): install a JDK 17 or 21 and set JAVA_HOME to it"
        ) from None
    version = re.search(r'version "([^"]*)', run.stderr)
    _require_java_release(version[1] if version else "", java, require_spark())


def _require_java_release(version: str, java: str, line: SparkLine) -> None:
    # Spark's releases are tested on Java 17 and 21. Hadoop calls Subject.getSubject while Spark
    # starts, which fails from Java 23 on.
    major = re.match(r"\d+", version)
    if major is None or not 17 <= int(major[0]) < 23:
        found = f"is {version}" if version else "does not print its version"
        raise SessionError(
            f"Spark {line.spark} needs a JDK 17 or 21, but {java} {found}: "
            "install one and set JAVA_HOME to it"
        )
