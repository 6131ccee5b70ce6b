"""Run the command `file-skipping`, or `python -m skipping`: maintain indexes from a shell.

    file-skipping refresh [--all | table ...]   index new files, for example from cron
        --without-spark                         tables are paths: Delta tables, Parquet folders
    file-skipping copy FROM TO                  copy a store, as a backup or to another place
    file-skipping serve ...                     run a server that skips files (rewrite.serve)
    file-skipping catalog --upstream URI        run an Iceberg REST catalog that plans scans

Exit codes of refresh: 0 if every index covers the newest version that its table had at the start;
1 if an index could not be refreshed (stderr has the reasons; the others were refreshed); 2 for
wrong arguments. With --all, an index whose table does not exist any more counts as a failure. With
--all --without-spark, tables of other formats than Delta and Parquet are skipped. Exit codes of
copy: 0 if the copy is complete and was read back, else 1.
"""

from __future__ import annotations

import argparse
import logging
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from providers.errors import SkippingError
from skipping.config.settings import PREFIX, Settings
from skipping.index import SkippingIndex
from skipping.model.definition import Definition
from skipping.requirements import require_own, require_spark
from skipping.stores import IndexStore, list_definitions
from skipping.stores.copy import copy
from skipping.stores.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PACKAGE = "lakehouse-file-skipping"
_STORE = f"{PREFIX}store"
_CATALOG_PACKAGES = ("anyio", "httpx", "pyiceberg", "starlette", "uvicorn")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments; return the exit code."""
    as_module = Path(sys.argv[0]).name == "__main__.py"
    parser = argparse.ArgumentParser(
        prog="python -m skipping" if as_module else "file-skipping",
        description="Maintain skipping indexes from a shell.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    refresh = commands.add_parser("refresh", help="index new files")
    refresh.add_argument("tables", nargs="*", metavar="table", help="the name of a table in SQL")
    refresh.add_argument("--all", action="store_true", help="refresh every index in the store")
    refresh.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="key=value",
        help="set a setting of the Spark session, such as "
        "spark.skipping.store=sqlite:/var/lib/skipping.db; may be repeated",
    )
    refresh.add_argument(
        "--formats",
        metavar="names",
        help="the table formats of the session, separated by commas; default: delta,iceberg",
    )
    refresh.add_argument(
        "--without-spark",
        action="store_true",
        help="run without Spark: each table is the path of a Delta table (opened with delta-rs) or "
        "of a Parquet folder. Set the store with --conf spark.skipping.store=..., the only setting "
        "allowed, or with the environment variable SKIPPING_STORE",
    )
    copying = commands.add_parser("copy", help="copy a consistent snapshot of a store")
    copying.add_argument("source", metavar="FROM", help="a store, as in spark.skipping.store")
    copying.add_argument("target", metavar="TO", help="a store without indexes")
    # These parse their own arguments, including --help.
    commands.add_parser("serve", help="serve SQL and Spark Connect clients", add_help=False)
    commands.add_parser("catalog", help="serve an Iceberg catalog that plans scans", add_help=False)
    given, rest = parser.parse_known_args(arguments)
    if given.command == "serve":
        return _serve(rest)
    if given.command == "catalog":
        return _catalog(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    # Show the progress of the refresh in the log, if it is not drawn as a bar.
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("skipping.progress").setLevel(logging.INFO)
    if given.command == "copy":
        return _copy(given.source, given.target)
    if given.all == bool(given.tables):
        refresh.error("pass the names of tables, or --all")
    wrong = [each for each in given.conf if "=" not in each]
    if wrong:
        refresh.error(f"--conf takes key=value, not {wrong[0]}")
    conf = dict(each.split("=", 1) for each in given.conf)
    if given.without_spark:
        if other := sorted({*conf} - {_STORE}) or (["--formats"] if given.formats else []):
            refresh.error(f"{other[0]} requires a Spark session: leave out --without-spark")
        return _refresh_without_spark(conf.get(_STORE), given.tables)
    try:
        spark = _session(conf, given.formats)
    except (SkippingError, ImportError) as error:
        print(f"cannot start a session: {error}", file=sys.stderr)
        return 1
    try:
        if given.tables:
            return _refresh([(n, partial(SkippingIndex.on, spark, n)) for n in given.tables])
        return _refresh([(d.name, partial(_open_definition, spark, d)) for d in _list_all(spark)])
    except SkippingError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()


def _version() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:  # imported from a folder on the path
        return "not installed"


def _session(conf: Mapping[str, str], formats: str | None) -> SparkSession:
    require_spark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("skipping refresh").config(map=dict(conf))
    options = {} if formats is None else {"formats": [f for f in formats.split(",") if f]}
    spark: SparkSession = _resolve_above("rewrite:session")(builder, **options)
    return spark


def _serve(arguments: Sequence[str]) -> int:
    try:
        require_spark()
        code: int = _resolve_above("rewrite.serve:main")(arguments)
    except (SkippingError, ImportError) as error:
        print(f"cannot start the server: {error}", file=sys.stderr)
        return 1
    return code


def _catalog(arguments: Sequence[str]) -> int:
    try:
        from skipping.catalog.command import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _CATALOG_PACKAGES:
            raise
        print(
            f"the catalog needs {error.name}: pip install '{_PACKAGE}[catalog]'",
            file=sys.stderr,
        )
        return 1
    return run(arguments)


def _resolve_above(name: str) -> Any:
    """Import by name: only this command may depend on `rewrite`, the library must not."""
    require_own("rewrite")
    return pkgutil.resolve_name(name)


def _copy(source: str, target: str) -> int:
    from skipping.sources.environment import environment_objects

    try:
        settings = Settings.of_environment(os.environ)
        open = partial(
            open_store,
            objects=environment_objects,
            replicas=settings.store_replica,
            replica_max_bytes=settings.store_replica_max_bytes,
        )
        copied = copy(open(source), open(target))
    except SkippingError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"copied {copied.indexes} indexes with {copied.entries} files to {target}")
    return 0


def _refresh_without_spark(store: str | None, tables: Sequence[str]) -> int:
    """Refresh the indexes of these paths; if there are no paths, all indexes in the store."""
    from skipping.sources.deltalake import delta_path_source
    from skipping.sources.environment import environment_store, stored_root
    from skipping.sources.folder import folder_path, folder_source

    def open(path: str) -> SkippingIndex:
        path = os.path.abspath(path) if os.path.isdir(path) else path
        folder = folder_path(path)
        source: Any = delta_path_source(path) if folder is None else folder_source(folder)
        return SkippingIndex.on(source, store=opened_store)

    opens: dict[str, Any] = {"delta": delta_path_source, "parquet": folder_source}

    def open_definition(definition: Definition) -> SkippingIndex:
        source = opens[definition.table.format](stored_root(settings, definition))
        return SkippingIndex.on(source, store=opened_store)

    try:
        settings = Settings.of_environment(os.environ)
        opened_store = environment_store(replace(settings, store=store or settings.store))
        indexes = [(path, partial(open, path)) for path in tables]
        for definition in () if tables else _definitions(opened_store):
            if definition.table.format not in opens:
                print(
                    f"skipped {definition.name}: refresh an index of {definition.table.format} "
                    "with Spark, or in Python with SkippingIndex.on(table).refresh()",
                    file=sys.stderr,
                )
            else:
                indexes.append((definition.name, partial(open_definition, definition)))
        return _refresh(indexes)
    except (SkippingError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1


def _refresh(indexes: Sequence[tuple[str, Callable[[], SkippingIndex]]]) -> int:
    """Refresh each index, given as (name, function that opens it); continue after a failure.

    Names may repeat: anyone with write access to the store can choose them.
    """
    failed = 0
    for n, (name, open) in enumerate(indexes, start=1):
        start = time.monotonic()
        try:
            index = open()
            before = len(index.files())
            state = index.refresh()
            added = len(index.files()) - before
            seconds = time.monotonic() - start
            print(
                f"[{n}/{len(indexes)}] {index.table.name}: {added} files, "
                f"covers version {state.covered}, {seconds:.1f} s"
            )
        except SkippingError as error:
            failed += 1
            print(f"[{n}/{len(indexes)}] {name}: {error}", file=sys.stderr)
    return 1 if failed else 0


def _list_all(spark: SparkSession) -> list[Definition]:
    from skipping.sources.spark import settings_of, store_of

    return _definitions(store_of(spark, settings_of(spark)))


def _open_definition(spark: SparkSession, definition: Definition) -> SkippingIndex:
    from skipping.sources.stored import stored_name

    return SkippingIndex.on(spark, stored_name(spark, definition))


def _definitions(store: IndexStore) -> list[Definition]:
    """Return the definitions that are not dropped, sorted by name."""
    definitions = [d.value for d in list_definitions(store) if not d.value.dropped]
    return sorted(definitions, key=lambda definition: definition.name)


if __name__ == "__main__":
    sys.exit(main())
