"""Define and check the supported releases of Spark, Delta and Iceberg."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from os.path import dirname, join, realpath

SPARK = "4.1"
"""The supported release of Spark; the hooks depend on its plans."""

DELTA = "4.4"
"""The supported release of Delta; delta-spark loads the jar of its own version."""

ICEBERG = ("1.11", "1.12")
"""The supported releases of Iceberg; `rewrite.session` loads the first."""

INSTALL = "pip install 'lakehouse-file-skipping[spark]'"
"""The command that installs all of them."""


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


def require_spark() -> None:
    """Raise ImportError, with the command to install, unless the right PySpark is installed."""
    if find_spec("pyspark") is None:
        raise ImportError(f"this needs Apache Spark {SPARK}: {INSTALL}")
    # A Spark distribution on the path has no package metadata to read the version from.
    from pyspark import __version__ as found

    require_release("PySpark", found, SPARK)


def require_delta() -> None:
    """Raise ImportError, with the command to install, unless the right delta-spark is installed."""
    if find_spec("delta") is None:
        raise ImportError(f"a session with Delta tables needs delta-spark {DELTA}: {INSTALL}")
    try:
        found = version("delta-spark")
    except PackageNotFoundError:
        return  # it is part of a jar, whose version is checked later
    require_release("delta-spark", found, DELTA)


def require_release(what: str, found: str, *needed: str, install: str = INSTALL) -> None:
    """Raise ImportError unless the version `found` belongs to one of the releases `needed`."""
    if ".".join(found.split(".")[:2]) not in needed:
        raise ImportError(
            f"{what} {found} is installed, but this release of lakehouse-file-skipping works only "
            f"with {' or '.join(needed)}: {install}"
        )
