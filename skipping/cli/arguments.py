"""Define the arguments of `file-skipping`. This module imports no command."""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, version

PACKAGE = "lakehouse-file-skipping"
STORE = "spark.skipping.store"
SHELLS = ("bash", "zsh", "tcsh")

_EPILOG = """\
Results are printed on stdout, and progress, logs and errors on stderr.
Exit codes: 0 success; 1 failure, the reason is on stderr; 2 wrong arguments.
"""


def create_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command and its subcommands."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Inspect and maintain skipping indexes from a shell.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    output, session, engine = _output(), _session(), _engine()

    commands.add_parser(
        "list", help="list the indexes of a store", parents=[output, session, engine]
    )

    describe = commands.add_parser(
        "describe", help="show the state of an index", parents=[output, session, engine]
    )
    _add_table(describe)

    analyze = commands.add_parser(
        "analyze",
        help="recommend an index for a table, from a sample (needs Spark)",
        parents=[output, session],
    )
    _add_table(analyze)
    analyze.add_argument("--columns", metavar="names", help="only these columns: a,b")
    analyze.add_argument("--files", type=int, metavar="N", help="the number of files to sample")

    verify = commands.add_parser(
        "verify",
        help="check that skipped files have no matching row",
        parents=[output, session, engine],
    )
    _add_table(verify, nargs="?")
    verify.add_argument("--where", metavar="condition", help="a condition on the table, in SQL")
    verify.add_argument("--query", metavar="SQL", help="a query instead of a table (needs Spark)")

    savings = commands.add_parser(
        "savings", help="show what queries did not read", parents=[output, session, engine]
    )
    savings.add_argument("--by", choices=("column", "day"), help="a line for each column or day")

    refresh = commands.add_parser("refresh", help="index new files", parents=[output, session])
    _add_tables(refresh, "refresh every index in the store")
    refresh.add_argument(
        "--without-spark",
        action="store_true",
        help="build in this process; the store comes from --store or SKIPPING_STORE",
    )
    refresh.add_argument(
        "--dry-run", action="store_true", help="show what automatic indexes would decide"
    )

    vacuum = commands.add_parser(
        "vacuum",
        help="remove entries of files that no version of the table needs",
        parents=[output, session, engine],
    )
    _add_tables(vacuum, "vacuum every index in the store, and erase dropped indexes")

    copying = commands.add_parser(
        "copy", help="copy a consistent snapshot of a store", parents=[output]
    )
    copying.add_argument("source", metavar="FROM", help="a store, as in spark.skipping.store")
    copying.add_argument("target", metavar="TO", help="a store without indexes")

    # These parse their own arguments, including --help.
    commands.add_parser("serve", help="serve SQL and Spark Connect clients", add_help=False)
    commands.add_parser("catalog", help="serve an Iceberg catalog that plans scans", add_help=False)

    completion = commands.add_parser("completion", help="print a completion script for a shell")
    completion.add_argument("shell", choices=SHELLS)
    for command in commands.choices.values():
        command.set_defaults(subparser=command)  # reports wrong arguments with its own usage
    return parser


def find_spark_option(given: argparse.Namespace) -> str | None:
    """Return the first option that only a Spark session has, or None."""
    keys = sorted(each.partition("=")[0] for each in given.conf)
    others = [key for key in keys if key != STORE]
    return others[0] if others else ("--formats" if given.formats else None)


def _add_table(parser: argparse.ArgumentParser, **options: str) -> None:
    parser.add_argument(
        "table",
        metavar="table",
        help="a name in SQL, a path, or catalog.namespace.table of PyIceberg",
        **options,  # type: ignore[arg-type]
    )


def _add_tables(parser: argparse.ArgumentParser, all_help: str) -> None:
    parser.add_argument("tables", nargs="*", metavar="table", help="as in describe")
    parser.add_argument("--all", action="store_true", help=all_help)


def _output() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    detail = parser.add_mutually_exclusive_group()
    detail.add_argument(
        "-q", "--quiet", action="store_true", help="no progress, warnings and lines of success"
    )
    detail.add_argument(
        "-v", "--verbose", action="store_true", help="log more; show the traceback of an error"
    )
    return parser


def _session() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--store",
        metavar="address",
        help="where indexes are stored, such as sqlite:/var/lib/skipping.db",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="key=value",
        help="a setting of the Spark session; may be repeated. Settings other than "
        "spark.skipping.store start Spark",
    )
    parser.add_argument(
        "--formats",
        metavar="names",
        help="the table formats of the Spark session, separated by commas; default: delta,iceberg",
    )
    return parser


def _engine() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    engine = parser.add_mutually_exclusive_group()
    engine.add_argument(
        "--spark", action="store_true", help="start Spark even if it is not necessary"
    )
    engine.add_argument(
        "--without-spark", action="store_true", help="fail if this command needs Spark"
    )
    return parser


def _version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:  # imported from a folder on the path
        return "not installed"
