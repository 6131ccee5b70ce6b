"""The jobs of this process: which indexes it keeps, and how those that follow a table stand."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import DefinitionError, NoStore, SkippingError, TableError
from skipping.config.options import IndexOptions
from skipping.model.definition import Definition, IndexId
from skipping.model.identifiers import shown_name, split_name
from skipping.sources.spark import settings_of, store_of
from skipping.sources.stored import stored_name
from skipping.stores import IndexStore
from skipping.streaming.checkpoints import require_checkpoint
from skipping.streaming.maintainer import LEAVING, Maintainer
from skipping.streaming.protocols import OpenIndex

__all__ = [
    "Stream",
    "job_name",
    "keep",
    "keep_all",
    "leave",
    "leave_all",
    "recover",
    "streams",
]

log = logging.getLogger("skipping")

_maintainers: dict[tuple[str, str], Maintainer] = {}
"""By the location of a store and the name of a table."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Stream:
    """How an index that follows its table stands.

    `owner` keeps it, or nobody does; `here`: this process. `running` is None where another process
    has to know. Lags are behind `version`, the table's newest: in versions (None, as `version` and
    `covered`, where a table has no log and so none that count up), in files without an entry, in
    seconds since the index last had everything. `batch` is the last micro-batch of this process,
    `error` what went wrong last.
    """

    table: str
    index: IndexId
    owner: str
    here: bool
    running: bool | None
    version: int | None
    covered: int | None
    versions: int | None
    files: int | None
    seconds: float | None
    batch: int | None
    error: str | None


def keep(
    spark: SparkSession,
    store: IndexStore,
    name: str,
    *,
    open_index: OpenIndex,
    table: str | None = None,
) -> None:
    """Keep the index of a name from here on, or look after it at once where that is so.

    `table` is what the session calls the table, where another catalog had the index made.
    """
    key = store.location, name
    with _lock:
        there = _maintainers.get(key)
        if there is not None and there.serves(spark):
            there.wake()
            return
        if there is not None:
            there.stop()  # of an earlier session
        lasting = _lasting(spark)
        maintainer = Maintainer(lasting, store, name, open_index=open_index, table=table)
        _maintainers[key] = maintainer
        maintainer.start()


def _lasting(spark: SparkSession) -> SparkSession:
    """The session, or a clone of one that is not the process's own: who opened it may end it."""
    jvm: Any = spark.sparkContext._jvm
    own = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
    if own.isDefined() and own.get().equals(spark._jsparkSession):
        return spark
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def leave(store: IndexStore, name: str) -> None:
    """Keep it no more; returns when the job has ended, if this process had one.

    Waits for `LEAVING` seconds at most: the job may be waiting for a store that does not answer.
    """
    with _lock:
        maintainer = _maintainers.pop((store.location, name), None)
    if maintainer is not None:
        maintainer.stop()


@atexit.register
def leave_all() -> None:
    """Keep nothing any more, and give the leases back, so that nobody has to wait for them.

    Java is still there. Waits for `LEAVING` seconds at most.
    """
    maintainers = list(_maintainers.values())
    for maintainer in maintainers:
        maintainer.end()
    deadline = time.monotonic() + LEAVING
    for maintainer in maintainers:
        maintainer.stop(timeout=max(0.0, deadline - time.monotonic()))


def keep_all(spark: SparkSession, open_index: OpenIndex) -> None:
    """Keep every index of the session's store that follows its table.

    Those that another process keeps are kept from here on when it leaves or dies.
    """
    store = store_of(spark, settings_of(spark))
    for definition in _live(store):
        if _is_streamed(definition):
            try:
                stored_name(spark, definition)
            except TableError as error:
                log.warning("the skipping index of an earlier session is not maintained: %s", error)
            else:
                keep(spark, store, definition.name, open_index=open_index)


def recover(spark: SparkSession, job: str, open_index: OpenIndex) -> None:
    """Keep an index again, by the name of its job; raises DefinitionError for none that follows.

    The name is the index's id, or what Flint would call it (`job_name`).
    """
    store = store_of(spark, settings_of(spark))
    for definition in _live(store):
        if job in (definition.index, job_name(definition.name)):
            options = IndexOptions.of(dict(definition.options))
            if not options.streamed:
                raise DefinitionError(
                    f"the skipping index of {definition.name} is not maintained by a stream: "
                    "ALTER SKIPPING INDEX ... WITH (auto_refresh = true)",
                    about="job",
                )
            require_checkpoint(spark, options)
            stored_name(spark, definition)  # raises for one that this session does not open
            leave(store, definition.name)
            keep(spark, store, definition.name, open_index=open_index)
            return
    raise DefinitionError(f"no skipping index has the job {job}", about="job")


def job_name(name: str) -> str:
    """What Flint calls the index of a table, and its job.

    Of a namespace of several parts it puts a dot before all but the first, as Flint does.

    >>> job_name("spark_catalog.default.t"), job_name("ice.a.b.t")
    ('flint_spark_catalog_default_t_skipping_index', 'flint_ice_a_b.t_skipping_index')
    """
    catalog, database, table = split_name(name)
    first, _, rest = f"{database}.{table}".partition(".") if database else ("", "", table)
    return "_".join(["flint", *(part for part in (catalog, first, rest) if part), "skipping_index"])


def streams(spark: SparkSession, open_index: OpenIndex) -> tuple[Stream, ...]:
    """Every index of the session's store that follows its table by a stream, and how it stands."""
    store = store_of(spark, settings_of(spark))
    return tuple(
        _stream(spark, store, definition, open_index)
        for definition in _live(store)
        if _is_streamed(definition)
    )


def _is_streamed(definition: Definition) -> bool:
    try:
        return IndexOptions.of(dict(definition.options)).streamed
    except DefinitionError:  # somebody wrote it there who did not go through CREATE
        return False


def _live(store: IndexStore) -> list[Definition]:
    try:
        return [d.value for d in store.definitions() if not d.value.dropped]
    except NoStore:
        return []


def _stream(
    spark: SparkSession, store: IndexStore, definition: Definition, open_index: OpenIndex
) -> Stream:
    state, lease = store.state(definition.index), store.lease(definition.index)
    maintainer = _maintainers.get((store.location, definition.name))
    here = maintainer is not None and maintainer.serves(spark) and maintainer.owns
    query = maintainer.query if maintainer is not None else None
    progress = query.lastProgress if query is not None else None
    version = versions = files = seconds = None
    counted = True
    error = state.error or (maintainer.error if maintainer is not None else None)
    try:
        if here and maintainer is not None:
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
    except SkippingError as gone:
        error = error or str(gone)
    return Stream(
        shown_name(definition.name),
        definition.index,
        lease.describe(),
        here,
        query is not None and query.isActive if here else None,
        version if counted else None,
        state.covered if counted else None,
        versions,
        files,
        seconds,
        progress["batchId"] if progress is not None else None,
        error,
    )
