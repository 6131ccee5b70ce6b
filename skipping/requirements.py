"""Define and check the supported releases of Spark, Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from os.path import dirname, join, realpath


@dataclass(frozen=True, slots=True)
class SparkLine:
    """A release line of Spark, and the supported releases of the table formats on it.

    A format without a release for this line has none here. `delta_jar` is the Maven coordinate of
    Delta's jar; Iceberg's is that of its first release.
    """

    spark: str
    scala: str
    delta: tuple[str, ...] = ()
    iceberg: tuple[str, ...] = ()
    delta_jar: str = ""

    @property
    def iceberg_jar(self) -> str:
        """The Maven coordinate of Iceberg's jar."""
        name = f"iceberg-spark-runtime-{self.spark}_{self.scala}"
        return f"org.apache.iceberg:{name}:{self.iceberg[0]}.0"

    @property
    def install(self) -> str:
        """The command that installs everything for this line."""
        if not self.delta:  # the extra requires delta-spark, which is for other lines
            return f"pip install lakehouse-file-skipping 'pyspark[sql]=={self.spark}.*'"
        return f"pip install 'lakehouse-file-skipping[spark]' 'pyspark=={self.spark}.*'"


_ICEBERG = ("1.11", "1.12")

LINES = {
    line.spark: line
    for line in (
        SparkLine("3.5", "2.12", ("3.3",), _ICEBERG, "io.delta:delta-spark_2.12:3.3.3"),
        SparkLine("4.0", "2.13", ("4.4", "4.0"), ("1.11",), "io.delta:delta-spark_4.0_2.13:4.4.0"),
        SparkLine("4.1", "2.13", ("4.4",), _ICEBERG, "io.delta:delta-spark_4.1_2.13:4.4.0"),
        SparkLine("4.2", "2.13", ("4.4",), (), "io.delta:delta-spark_4.2_2.13:4.4.0"),
        SparkLine("4.3", "2.13"),
    )
}
"""The supported lines of Spark: there is a jar with our rules for each."""

INSTALL = LINES["4.1"].install
"""The command for those who have no Spark yet."""


def require_own(package: str) -> None:
    """Raise ImportError if this name is another package than the one of this project.

    A folder `providers` or `rewrite` next to the user's program hides the package of this project;
    a later error would not say so.
    """
    spec = find_spec(package)
    paths = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
    ours = join(dirname(dirname(realpath(__file__))), package)
    if ours not in map(realpath, paths):
        found = f"Python finds {package!r} at {paths[0]}" if paths else f"there is no {package!r}"
        raise ImportError(
            f"{found}, but lakehouse-file-skipping needs it from {ours}: rename the other folder, "
            "or run Python from another folder"
        )


def require_spark() -> SparkLine:
    """Return the line of the installed PySpark; raise ImportError, with the fix, without one."""
    if find_spec("pyspark") is None:
        raise ImportError(f"this needs Apache Spark {_one_of(list(LINES))}: {INSTALL}")
    # A Spark distribution on the path has no package metadata to read the version from.
    from pyspark import __version__ as found

    return find_line("PySpark", found)


def find_line(what: str, found: str) -> SparkLine:
    """Return the line of a Spark version; raise ImportError if it is not supported."""
    require_release(what, found, *LINES)
    return LINES[_line_of(found)]


def require_delta() -> None:
    """Raise ImportError, with the command to install, unless the right delta-spark is installed."""
    line = require_spark()
    if find_spec("delta") is None:
        raise ImportError(
            f"a session with Delta tables needs delta-spark {line.delta[0]}: {line.install}"
        )
    try:
        found = version("delta-spark")
    except PackageNotFoundError:
        return  # it is part of a jar, whose version is checked later
    require_release("delta-spark", found, *line.delta, install=line.install)


def require_release(what: str, found: str, *needed: str, install: str = INSTALL) -> None:
    """Raise ImportError unless the version `found` belongs to one of the releases `needed`."""
    if _line_of(found) not in needed:
        raise ImportError(
            f"{what} {found} is installed, but this release of lakehouse-file-skipping works only "
            f"with {_one_of(needed)}: {install}"
        )


def _line_of(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _one_of(releases: Sequence[str]) -> str:
    *first, last = releases
    return f"{', '.join(first)} or {last}" if first else last
