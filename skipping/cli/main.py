"""Parse the arguments of `file-skipping`, and run the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from skipping.cli.arguments import create_parser, find_spark_option


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments; return the exit code."""
    as_module = Path(sys.argv[0]).name == "__main__.py"
    parser = create_parser("python -m skipping" if as_module else "file-skipping")
    given, rest = parser.parse_known_args(arguments)
    if rest and given.command not in ("serve", "catalog"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if reason := _find_fault(given):
        given.subparser.error(reason)
    from skipping.cli.run import run  # imports formats and stores, which `--help` does not need

    return run(given, rest)


def _find_fault(given: argparse.Namespace) -> str | None:
    """Return what is wrong with arguments that argparse accepts."""
    wrong = [each for each in getattr(given, "conf", ()) if "=" not in each]
    if wrong:
        return f"--conf takes key=value, not {wrong[0]}"
    if given.command in ("refresh", "vacuum") and given.all == bool(given.tables):
        return "pass the names of tables, or --all"
    if given.command == "verify":
        has_table = given.table is not None
        if has_table != (given.where is not None) or has_table == (given.query is not None):
            return "pass a table and --where, or --query"
        if given.query is not None and given.without_spark:
            return "--query requires a Spark session: leave out --without-spark"
    if getattr(given, "without_spark", False) and (option := find_spark_option(given)):
        return f"{option} requires a Spark session: leave out --without-spark"
    return None
