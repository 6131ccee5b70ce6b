"""Run `file-skipping`: parse the arguments, run the command, and turn errors into exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from providers.errors import SkippingError, first_line
from skipping.cli.arguments import PACKAGE, create_parser
from skipping.cli.output import Output, print_error

SUCCESS, FAILURE, INTERRUPTED = 0, 1, 130
"""Exit codes; argparse ends the process with 2 for wrong arguments."""

_CATALOG_PACKAGES = ("anyio", "httpx", "pyiceberg", "starlette", "uvicorn")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments; return the exit code."""
    as_module = Path(sys.argv[0]).name == "__main__.py"
    parser = create_parser("python -m skipping" if as_module else "file-skipping")
    given, rest = parser.parse_known_args(arguments)
    if given.command in ("serve", "catalog"):
        return _serve(rest) if given.command == "serve" else _serve_catalog(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if reason := _find_fault(given):
        given.subparser.error(reason)
    quiet, verbose = getattr(given, "quiet", False), getattr(given, "verbose", False)
    _set_up_logging(quiet=quiet, verbose=verbose)
    try:
        return _find_command(given.command)(
            given, Output(json=getattr(given, "json", False), quiet=quiet)
        )
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except (SkippingError, ImportError) as error:
        print_error(error)
    except Exception as error:  # of a library, or a bug: one line, like any other error
        print_error(f"{type(error).__name__}: {first_line(error)}")
    if verbose:
        traceback.print_exc()
    return FAILURE


def _find_command(name: str) -> Callable[[argparse.Namespace, Output], int]:
    """Return the function of a command, importing only what it needs."""
    if name == "completion":
        from skipping.cli.completion import print_completion

        return print_completion
    if name in ("refresh", "vacuum", "copy"):
        from skipping.cli import maintenance

        return {
            "refresh": maintenance.refresh,
            "vacuum": maintenance.vacuum,
            "copy": maintenance.copy_store,
        }[name]
    from skipping.cli import reports

    return {
        "list": reports.list_all,
        "describe": reports.describe,
        "analyze": reports.analyze,
        "verify": reports.verify,
    }[name]


def _find_fault(given: argparse.Namespace) -> str | None:
    """Return what is wrong with arguments that argparse accepts."""
    wrong = [each for each in getattr(given, "conf", ()) if "=" not in each]
    if wrong:
        return f"--conf takes key=value, not {wrong[0]}"
    if given.command in ("refresh", "vacuum") and given.all == bool(given.tables):
        return "pass the names of tables, or --all"
    if given.command == "verify":
        if (given.table is None) != (given.where is None) or (given.query is None) == (
            given.table is None
        ):
            return "pass a table and --where, or --query"
        if given.query is not None and given.without_spark:
            return "--query requires a Spark session: leave out --without-spark"
    if getattr(given, "without_spark", False):
        from skipping.cli.tables import find_spark_option

        if option := find_spark_option(given):
            return f"{option} requires a Spark session: leave out --without-spark"
    return None


def _set_up_logging(*, quiet: bool, verbose: bool) -> None:
    logging.basicConfig(
        format="%(asctime)s %(message)s", level=logging.ERROR if quiet else logging.WARNING
    )
    progress = logging.getLogger("skipping.progress")
    progress.setLevel(logging.INFO)  # it logs what is not drawn as a bar
    progress.disabled = quiet
    if verbose:
        for name in ("providers", "skipping", "rewrite"):
            logging.getLogger(name).setLevel(logging.INFO)


def _serve(arguments: Sequence[str]) -> int:
    from skipping.cli.session import resolve_above
    from skipping.requirements import require_spark

    try:
        require_spark()
        code: int = resolve_above("rewrite.serve:main")(arguments)
    except (SkippingError, ImportError) as error:
        print_error(f"cannot start the server: {error}")
        return FAILURE
    return code


def _serve_catalog(arguments: Sequence[str]) -> int:
    try:
        from skipping.catalog.command import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _CATALOG_PACKAGES:
            raise
        print_error(f"the catalog needs {error.name}: pip install '{PACKAGE}[catalog]'")
        return FAILURE
    return run(arguments)
