"""The releases of Spark, Delta and Iceberg that this release works with, and checks for them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from os.path import dirname, join, realpath

__all__ = [
    "DELTA",
    "ICEBERG",
    "INSTALL",
    "SPARK",
    "require_delta",
    "require_own",
    "require_release",
    "require_spark",
]

SPARK = "4.1"
"""The release of Spark whose plans are known."""

DELTA = "4.4"
"""The supported release of Delta; delta-spark loads the jar of its own version."""

ICEBERG = ("1.11", "1.12")
"""The releases of Iceberg whose scans are known; a session brings the first."""

INSTALL = "pip install 'lakehouse-file-skipping[spark]'"
"""The command that installs all of them."""


def require_own(package: str) -> None:
    """Raise ImportError if Python finds another package of this name.

    A folder `providers` or `rewrite` next to the user's program hides the package of this project;
    later errors would name neither.
    """
    spec = find_spec(package)
    places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
    ours = join(dirname(dirname(realpath(__file__))), package)
    if ours not in map(realpath, places):
        raise ImportError(
            f"{places[0] if places else 'nothing'} is imported as {package!r}, which "
            f"lakehouse-file-skipping needs from {ours}: rename that folder, or run Python from "
            "another one"
        )


def require_spark() -> None:
    """Raise ImportError with the command to install, unless the right PySpark is installed."""
    if find_spec("pyspark") is None:
        raise ImportError(f"this needs Apache Spark {SPARK}: {INSTALL}")
    # Not the metadata, which an unpacked Spark next to Python does not have.
    from pyspark import __version__ as found

    require_release("PySpark", found, SPARK)


def require_delta() -> None:
    """Raise ImportError with the command to install, unless the right delta-spark is installed."""
    if find_spec("delta") is None:
        raise ImportError(f"a session with Delta tables needs delta-spark {DELTA}: {INSTALL}")
    try:
        found = version("delta-spark")
    except PackageNotFoundError:
        return  # it came with a jar, which then says its version
    require_release("delta-spark", found, DELTA)


def require_release(what: str, found: str, *needed: str, install: str = INSTALL) -> None:
    """Raise ImportError unless a version is a patch of one of some releases."""
    if ".".join(found.split(".")[:2]) not in needed:
        raise ImportError(
            f"{what} {found} is here, and this release works with {' or '.join(needed)} only: "
            f"{install}"
        )
