"""Start and stop the streams of this process, and describe all streams of a store."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import DefinitionError, SkippingError, TableError
from skipping.config.options import IndexOptions
from skipping.model.definition import Definition, IndexId
from skipping.model.identifiers import shown_name, split_name
from skipping.sources.spark import settings_of, store_of
from skipping.sources.stored import stored_name
from skipping.spark_api import classic
from skipping.stores import IndexStore, list_definitions
from skipping.streaming.checkpoints import require_checkpoint
from skipping.streaming.maintainer import STOP_TIMEOUT, Maintainer
from skipping.streaming.protocols import OpenIndex

log = logging.getLogger("skipping")

_maintainers: dict[tuple[str, str], Maintainer] = {}
"""By the location of the store and the name of the table."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Stream:
    """The state of an index that a stream maintains.

    `owner` holds the lease. `is_local` is true if that is this process; otherwise `running`
    is None. `version` is the table's newest version, and `covered` the newest that is indexed; the
    difference is `versions`. `files` counts the files without an entry, and `seconds` is the time
    since the index was last complete. For a table without a log, `version`, `covered` and
    `versions` are None. `batch` is the last micro-batch of this process, `error` the last error.
    """

    table: str
    index: IndexId
    owner: str
    is_local: bool
    running: bool | None
    version: int | None
    covered: int | None
    versions: int | None
    files: int | None
    seconds: float | None
    batch: int | None
    error: str | None


def start_stream(
    spark: SparkSession,
    store: IndexStore,
    name: str,
    *,
    open_index: OpenIndex,
    table: str | None = None,
) -> None:
    """Start the stream of an index; if it is already running, make it poll the table immediately.

    `name` is the name in the index's definition. `table` is the table's name in this session, if
    it differs.
    """
    key = store.location, name
    with _lock:
        existing = _maintainers.get(key)
        if existing is not None and existing.serves(spark):
            existing.wake()
            return
        if existing is not None:
            existing.stop()  # it belongs to an earlier session
        session = _own_session(spark)
        maintainer = Maintainer(session, store, name, open_index=open_index, table=table)
        _maintainers[key] = maintainer
        maintainer.start()


def _own_session(spark: SparkSession) -> SparkSession:
    """Return the session if it is the default session, else a clone of it.

    A client may end its own session, and its stream must continue.
    """
    jvm: Any = spark.sparkContext._jvm
    default = classic(jvm).SparkSession.getDefaultSession()
    if default.isDefined() and default.get().equals(spark._jsparkSession):
        return spark
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def stop_stream(store: IndexStore, name: str) -> None:
    """Stop the stream of an index, if this process has one.

    Waits at most `STOP_TIMEOUT` seconds, because the store may not respond.
    """
    with _lock:
        maintainer = _maintainers.pop((store.location, name), None)
    if maintainer is not None:
        maintainer.stop()


@atexit.register
def stop_all() -> None:
    """Stop all streams and release their leases, so that other processes take over immediately.

    Runs before the JVM ends. Waits at most `STOP_TIMEOUT` seconds in total.
    """
    maintainers = list(_maintainers.values())
    for maintainer in maintainers:
        maintainer.end()
    deadline = time.monotonic() + STOP_TIMEOUT
    for maintainer in maintainers:
        maintainer.stop(timeout=max(0.0, deadline - time.monotonic()))


def start_all(spark: SparkSession, open_index: OpenIndex) -> None:
    """Start the streams of all indexes in the session's store that are defined with a stream.

    If another process holds the lease of an index, this process takes over when the other ends.
    """
    store = store_of(spark, settings_of(spark))
    for definition in _list_live(store):
        if _is_streamed(definition):
            try:
                stored_name(spark, definition)
            except TableError as error:
                log.warning("a skipping index is not maintained by a stream: error=%s", error)
            else:
                start_stream(spark, store, definition.name, open_index=open_index)


def recover(spark: SparkSession, job: str, open_index: OpenIndex) -> None:
    """Restart the stream of an index; raise DefinitionError if it is not defined with a stream.

    `job` is the id of the index, or its name in Flint (`job_name`).
    """
    store = store_of(spark, settings_of(spark))
    for definition in _list_live(store):
        if job in (definition.index, job_name(definition.name)):
            options = IndexOptions.of(dict(definition.options))
            if not options.streamed:
                raise DefinitionError(
                    f"the skipping index of {definition.name} is not maintained by a stream: run "
                    "ALTER SKIPPING INDEX ... WITH (auto_refresh = true)",
                    about="job",
                )
            require_checkpoint(spark, options)
            stored_name(spark, definition)  # raises if this session cannot open the table
            stop_stream(store, definition.name)
            start_stream(spark, store, definition.name, open_index=open_index)
            return
    raise DefinitionError(
        f"there is no job {job}: SHOW SKIPPING INDEXES lists the jobs as flint_index_name",
        about="job",
    )


def job_name(name: str) -> str:
    """Return the name that Flint gives to the index of a table, and to its job.

    Flint joins catalog, namespace and table with `_`, but further parts of a namespace with dots.

    >>> job_name("spark_catalog.default.t"), job_name("ice.a.b.t")
    ('flint_spark_catalog_default_t_skipping_index', 'flint_ice_a_b.t_skipping_index')
    """
    catalog, database, table = split_name(name)
    first, _, rest = f"{database}.{table}".partition(".") if database else ("", "", table)
    return "_".join(["flint", *(part for part in (catalog, first, rest) if part), "skipping_index"])


def streams(spark: SparkSession, open_index: OpenIndex) -> tuple[Stream, ...]:
    """Return the state of every index in the session's store that a stream maintains."""
    store = store_of(spark, settings_of(spark))
    return tuple(
        _describe_stream(spark, store, definition, open_index)
        for definition in _list_live(store)
        if _is_streamed(definition)
    )


def _is_streamed(definition: Definition) -> bool:
    try:
        return IndexOptions.of(dict(definition.options)).streamed
    except DefinitionError:  # invalid options, which CREATE would not have stored
        return False


def _list_live(store: IndexStore) -> list[Definition]:
    return [each.value for each in list_definitions(store) if not each.value.dropped]


def _describe_stream(
    spark: SparkSession, store: IndexStore, definition: Definition, open_index: OpenIndex
) -> Stream:
    state, lease = store.state(definition.index), store.lease(definition.index)
    maintainer = _maintainers.get((store.location, definition.name))
    is_local = maintainer is not None and maintainer.serves(spark) and maintainer.owns
    query = maintainer.query if maintainer is not None else None
    progress = query.lastProgress if query is not None else None
    version = versions = files = seconds = None
    counted = True
    error = state.error or (maintainer.error if maintainer is not None else None)
    try:
        if is_local and maintainer is not None:
            table = maintainer.table
        else:
            table = stored_name(spark, definition)
        index = open_index(spark, table, store=store)
        counted = index.table.has_log
        version, files = index.table.version(), len(index.pending())
        if counted and state.covered is not None and not index.replaced:
            versions = version - state.covered
        if not files and state.covered == version:
            seconds = 0.0
        elif state.at is not None:
            seconds = max(0.0, time.time() - state.at)
    except SkippingError as failure:
        error = error or str(failure)
    return Stream(
        shown_name(definition.name),
        definition.index,
        lease.describe(),
        is_local,
        query is not None and query.isActive if is_local else None,
        version if counted else None,
        state.covered if counted else None,
        versions,
        files,
        seconds,
        progress["batchId"] if progress is not None else None,
        error,
    )
