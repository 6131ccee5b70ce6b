"""Run a command of `file-skipping`, and turn its errors into exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from providers.errors import SkippingError
from skipping.cli import maintenance, reports
from skipping.cli.arguments import PACKAGE
from skipping.cli.completion import print_completion
from skipping.cli.output import Output, print_error
from skipping.cli.session import resolve_above
from skipping.requirements import require_spark

SUCCESS, FAILURE, INTERRUPTED = 0, 1, 130
"""Exit codes; argparse ends the process with 2 for wrong arguments."""

_COMMANDS: dict[str, Callable[[argparse.Namespace, Output], int]] = {
    "list": reports.list_all,
    "describe": reports.describe,
    "analyze": reports.analyze,
    "verify": reports.verify,
    "savings": reports.show_savings,
    "refresh": maintenance.refresh,
    "vacuum": maintenance.vacuum,
    "copy": maintenance.copy_store,
    "completion": print_completion,
}
_CATALOG_PACKAGES = ("anyio", "httpx", "pyiceberg", "starlette", "uvicorn")


def run(given: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run the parsed command; `rest` are the arguments that `serve` and `catalog` parse."""
    if given.command == "serve":
        return _serve(rest)
    if given.command == "catalog":
        return _serve_catalog(rest)
    quiet, verbose = getattr(given, "quiet", False), getattr(given, "verbose", False)
    _set_up_logging(quiet=quiet, verbose=verbose)
    output = Output(json=getattr(given, "json", False), quiet=quiet, verbose=verbose)
    try:
        return _COMMANDS[given.command](given, output)
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        output.fail(error)
        return FAILURE


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
    try:
        require_spark()
        code: int = resolve_above("rewrite.serve:main")(arguments)
    except (SkippingError, ImportError) as error:
        print_error(f"cannot start the server: {error}")
        return FAILURE
    return code


def _serve_catalog(arguments: Sequence[str]) -> int:
    try:
        from skipping.catalog.command import main as serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _CATALOG_PACKAGES:
            raise
        print_error(f"the catalog needs {error.name}: pip install '{PACKAGE}[catalog]'")
        return FAILURE
    return serve(arguments)
