"""Scenarios of whole sessions, for a process of its own: `python sessions.py FOLDER [NAME ...]`.

They start and stop sessions in one JVM, in this order, and print one JSON object: for each the
traceback, or null. `test_session.py` turns that into tests.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import rewrite
import skipping
from providers.errors import SessionError, SettingError, StatementError
from rewrite.bridge.classes import Classes
from rewrite.bridge.install import Hooks, find_hooks
from skipping.requirements import require_spark
from skipping.spark_api import classic

CREATE = "CREATE SKIPPING INDEX ON t (id MIN_MAX)"
QUERY = "SELECT * FROM t WHERE id = 5"
IN_NETWORK = "SELECT in_network('10.1.0.1', '10.0.0.0/8')"
DELTA = "io.delta.sql.DeltaSparkSessionExtension"
ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

POOLED = (
    "QueryStageCreator",
    "ResultQueryStageExecution",
    "shuffle-exchange",
    "broadcast-exchange",
)
"""Threads of Spark's pools: a new one for each task up to a number, gone after an idle minute."""

SCENARIOS: list[Callable[[Path], None]] = []


def scenario(function: Callable[[Path], None]) -> Callable[[Path], None]:
    SCENARIOS.append(function)
    return function


def builder(folder: Path, **settings: str) -> SparkSession.Builder:
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "ERROR")
    )
    for key, value in settings.items():
        made.config(key.replace("_", "."), value)
    return made


def fill(spark: SparkSession, folder: Path) -> None:
    """The table t, the same for every session: its files stay where they are."""
    path = folder / "t"
    if not path.exists():
        frame = spark.range(0, 40, 1, 4)
        frame.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").save(str(path))
    spark.sql(f"CREATE TABLE IF NOT EXISTS t USING delta LOCATION '{path}'")


def opened(spark: SparkSession, query: str = QUERY) -> int | None:
    df = spark.sql(query)
    assert [row.id for row in df.collect()] == [5]
    return rewrite.explain(df).scans[0].opened


def said(work: Callable[[], Any]) -> tuple[Any, str]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    log = logging.getLogger("skipping")
    log.addHandler(handler)
    try:
        result = work()
        return result, out.getvalue()
    finally:
        log.removeHandler(handler)


def kept_open(process: int) -> int:
    """Descriptors of a process, but for jars of contexts that ended.

    Spark copies a session's jars for its executor, deletes the copies with the context, and does
    not close the class loader: one descriptor a jar, with or without us.
    """
    folder = Path(f"/proc/{process}/fd")
    links = []
    for descriptor in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(descriptor))
    return sum(not link.endswith(".jar (deleted)") for link in links)


@contextlib.contextmanager
def running(spark: SparkSession) -> Iterator[SparkSession]:
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def raises(error: type[Exception], *parts: str) -> Iterator[None]:
    with pytest.raises(error) as caught:
        yield
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in {caught.value}"


@scenario
def settings_of_the_builder_are_kept(folder: Path) -> None:
    os.environ.pop("PYSPARK_PYTHON", None)
    mine = {
        "spark.jars.packages": "io.delta:delta-storage:4.4.0, org.roaringbitmap:shims:0.9.25",
        "spark.sql.extensions": f" {DELTA} ,org.example.Missing",
        "spark.sql.catalog.mine": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.app.name": "mine",
    }
    made = builder(folder)
    for key, value in mine.items():
        made.config(key, value)
    spark, text = said(lambda: rewrite.session(made))
    with running(spark):
        assert text == "", "nothing had to be cloned"
        assert isinstance(spark, rewrite.Session)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        conf = spark.sparkContext.getConf()
        packages = conf.get("spark.jars.packages", "")
        assert packages.count(require_spark().delta_jar) == 1, packages
        assert "delta-storage:4.4.0" in packages, packages
        assert "shims" in packages, packages
        extensions = conf.get("spark.sql.extensions", "")
        assert extensions.split(",") == [DELTA, "org.example.Missing", ICEBERG], extensions
        assert packages.count(require_spark().iceberg_jar) == 1, packages
        assert conf.get("spark.sql.catalog.mine", "").endswith("DeltaCatalog")
        assert spark.sparkContext.appName == "mine"
        fill(spark, folder)
        spark.sql(CREATE)
        assert opened(spark) == 1


@scenario
def a_catalog_of_the_users_own_is_kept(folder: Path) -> None:
    own = "org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension"
    from rewrite.session import _settings

    given = {"spark.sql.catalog.spark_catalog": own, "spark.jars.excludes": "a:b"}
    made = _settings(given)
    assert made["spark.sql.catalog.spark_catalog"] == own
    assert made["spark.jars.excludes"] == "a:b"
    assert made["spark.sql.catalog.iceberg.warehouse"] == f"{Path.cwd()}/spark-warehouse/iceberg"
    newer = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
    made = _settings({"spark.sql.catalog.iceberg": own, "spark.jars.packages": newer})
    assert made["spark.jars.packages"].count("iceberg") == 2, "group and name of the one given"
    assert made["spark.sql.catalog.iceberg"] == own
    assert "spark.sql.catalog.iceberg.type" not in made


@scenario
def iceberg_is_ready(folder: Path) -> None:
    with running(rewrite.session(builder(folder))) as spark:
        spark.sql("CREATE TABLE iceberg.db.t (id BIGINT) USING iceberg")
        spark.sql("INSERT INTO iceberg.db.t VALUES (5)")
        spark.sql("CREATE SKIPPING INDEX ON iceberg.db.t (id MIN_MAX)")
        assert spark.sql("DESCRIBE SKIPPING INDEX ON iceberg.db.t").count() == 1
        assert (folder / "warehouse" / "iceberg" / "db" / "t" / "metadata").is_dir()


@scenario
def another_session_in_the_same_process(folder: Path) -> None:
    # The first scenario stopped its session; its callbacks and lookups are stale.
    with running(rewrite.session(builder(folder))) as spark:
        fill(spark, folder)
        assert opened(spark) == 1
        spark.sql("DROP SKIPPING INDEX ON t")
        assert opened(spark) == 4
        spark.sql(CREATE)
        assert opened(spark) == 1


@scenario
def enabling_is_idempotent(folder: Path) -> None:
    with running(rewrite.session(builder(folder))) as spark:
        fill(spark, folder)
        hooks = find_hooks(spark)
        listeners = spark.sparkContext._jsc.sc().listenerBus().listeners().size()
        again, text = said(lambda: rewrite.enable(spark))
        assert text == ""
        assert again._jsparkSession.equals(spark._jsparkSession)
        assert find_hooks(again) is hooks
        assert rewrite.session(builder(folder))._jsparkSession.equals(spark._jsparkSession)
        assert spark.sparkContext._jsc.sc().listenerBus().listeners().size() == listeners
        assert opened(again) == 1


@scenario
def a_fresh_session_is_not_cloned(folder: Path) -> None:
    made = builder(folder, spark_sql_extensions=DELTA)
    made.config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    with running(made.getOrCreate()) as plain:
        spark, text = said(lambda: rewrite.enable(plain))
        assert text == ""
        assert spark._jsparkSession.equals(plain._jsparkSession)
        assert SparkSession.builder.getOrCreate() is spark
        assert SparkSession.getActiveSession() is spark
        with raises(StatementError, "a skipping index has no name"):
            SparkSession.active().sql("DROP SKIPPING INDEX t")


@scenario
def a_session_that_has_run_sql_is_cloned(folder: Path) -> None:
    made = builder(folder, spark_sql_extensions=DELTA)
    made.config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    with running(made.getOrCreate()) as used:
        fill(used, folder)
        used.sql("CREATE TEMPORARY VIEW kept AS SELECT 7 AS x")
        used.conf.set("spark.sql.shuffle.partitions", "3")
        spark, text = said(lambda: rewrite.enable(used))
        assert "use the clone that enable returned" in text
        assert not spark._jsparkSession.equals(used._jsparkSession)
        assert spark.table("kept").first() == (7,)
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert SparkSession.builder.getOrCreate() is spark
        assert SparkSession.getActiveSession() is spark
        jvm: Any = spark._jvm
        java = classic(jvm).SparkSession
        assert java.active().equals(spark._jsparkSession)
        assert java.getDefaultSession().get().equals(spark._jsparkSession)
        assert opened(spark) == 1
        assert spark.sql(IN_NETWORK).first() == (True,)
        # The session that was given still works, without the hooks.
        assert used.sql(QUERY).count() == 1
        again, text = said(lambda: rewrite.enable(spark))
        assert text == ""
        assert again._jsparkSession.equals(spark._jsparkSession)


@scenario
def new_and_cloned_sessions_skip_too(folder: Path) -> None:
    with running(rewrite.session(builder(folder))) as spark:
        fill(spark, folder)
        other = spark.newSession()
        assert isinstance(other, rewrite.Session)
        clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        for session in (other, clone):
            assert find_hooks(session) is find_hooks(spark)
            assert opened(session) == 1
            assert session.sql(IN_NETWORK).first() == (True,)
        other.conf.set("spark.skipping.enabled", "false")
        assert (opened(other), opened(spark)) == (4, 1)


@scenario
def sixteen_sessions_at_once_each_with_its_own_store(folder: Path) -> None:
    with running(rewrite.session(builder(folder))) as spark:
        fill(spark, folder)
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON t")
        sessions = [spark.newSession() for _ in range(16)]
        for i, session in enumerate(sessions):
            session.conf.set("spark.skipping.store", f"sqlite:{folder}/of {i}.sqlite")
            session.conf.set("spark.skipping.timeout", f"{60 + i}s")
            if i % 2 == 0:
                session.sql(CREATE)
        expected = [1 if i % 2 == 0 else 4 for i in range(16)]
        with ThreadPoolExecutor(16) as pool:
            for _ in range(3):
                assert list(pool.map(opened, sessions)) == expected
        # One that changes changes alone, at once.
        sessions[1].sql(CREATE)
        sessions[0].sql("DROP SKIPPING INDEX ON t")
        expected[:2] = [4, 1]
        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(opened, sessions)) == expected
        spark.sql(CREATE)


@scenario
def stopping_and_starting_leaves_nothing(folder: Path) -> None:
    held = []
    for _ in range(4):
        with running(rewrite.session(builder(folder))) as spark:
            fill(spark, folder)
            assert opened(spark) == 1
            assert spark.sql(QUERY).count() == 1, "nobody explains it"
            hooks = weakref.ref(find_hooks(spark))
            own = hooks()._folder.path
        end = time.monotonic() + 20
        while hooks() is not None or own.exists():
            gc.collect()
            assert time.monotonic() < end, gc.get_referrers(hooks())
            time.sleep(0.1)
        held.append(holds())
        # What a context that ended has of Netty ends a moment later, on a busy machine many.
        while len(held) > 2 and grown(held) > 4 and time.monotonic() < end + 40:
            time.sleep(0.5)
            held[-1] = holds()
    assert grown(held) <= 4, held
    assert not rewrite.bridge.install._hooks
    gateway: Any = SparkContext._gateway
    injected = Classes(gateway).find("SkippingExtension").getField("INJECTED").get(None)
    most = injected.size()
    end = time.monotonic() + 120
    while injected.size() == most:  # idle threads of Spark's know their session for a minute
        gateway.jvm.System.gc()
        assert time.monotonic() < end, most
        time.sleep(1)


def grown(held: list[tuple[int, ...]]) -> int:
    """By how much more of anything there is now than after the second."""
    return max(b - a for a, b in zip(held[1], held[-1], strict=True))


def holds() -> tuple[int, ...]:
    """Threads of Python and of Java, descriptors of both, and objects that Java knows."""
    gateway: Any = SparkContext._gateway
    for _ in range(2):
        gateway.jvm.System.gc()
        time.sleep(0.3)
    process = gateway.jvm.java.lang.ProcessHandle.current().pid()
    names = [thread.getName() for thread in gateway.jvm.Thread.getAllStackTraces().keySet()]
    return (
        threading.active_count(),
        sum(not name.startswith(POOLED) for name in names),
        len(os.listdir("/proc/self/fd")),
        kept_open(process),
        len(gateway.gateway_property.pool),
    )


@scenario
def disable_passes_through_until_enable(folder: Path) -> None:
    with running(rewrite.session(builder(folder))) as spark:
        fill(spark, folder)
        rewrite.disable(spark)
        assert opened(spark) == 4
        # Statements still run.
        assert spark.sql("DESCRIBE SKIPPING INDEX ON t").count() == 1
        rewrite.enable(spark)
        assert opened(spark) == 1


@scenario
def a_hook_that_something_hides_is_named(folder: Path) -> None:
    with running(rewrite.session(builder(folder))) as spark:
        hooks = find_hooks(spark)
        assert hooks is not None
        real, hooks.java = hooks.java, _Frozen()
        try:
            with raises(SessionError, "another extension hides the plan rule", "rewrite.session()"):
                hooks.prove(spark)
        finally:
            hooks.java = real
        prove, Hooks.prove = Hooks.prove, lambda *_: False  # type: ignore[method-assign]
        try:
            with raises(SessionError, "plan rules cannot be added to this session"):
                rewrite.enable(spark)
        finally:
            Hooks.prove = prove  # type: ignore[method-assign]


class _Frozen:
    """Plans that are never seen."""

    def client(self) -> _Frozen:
        return self

    def plans(self) -> int:
        return 0


@scenario
def unknown_settings_are_named(folder: Path) -> None:
    with running(rewrite.session(builder(folder))) as spark:
        fill(spark, folder)
        warnings: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("skipping").addHandler(handler)
        spark.conf.set("spark.skipping.cache.tll", "1s")
        hint = "unknown setting spark.skipping.cache.tll: did you mean spark.skipping.cache.ttl?"
        with raises(SettingError, hint):
            rewrite.enable(spark)
        with raises(SettingError, hint):
            spark.sql("SHOW SKIPPING INDEXES")
        with raises(SettingError, hint):
            skipping.sql(spark, "REFRESH SKIPPING INDEX ON t")
        # Reads go on, and it is said once: by a read, or by the watch on the store before it.
        assert [opened(spark), opened(spark)] == [1, 1]
        assert warnings == [hint]


@scenario
def a_remote_warehouse_names_the_setting(folder: Path) -> None:
    remote = "s3a://bucket/warehouse"
    made = builder(folder).config("spark.sql.warehouse.dir", remote)
    made.config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    made.config("spark.sql.catalog.lake.type", "hadoop")
    made.config("spark.sql.catalog.lake.warehouse", remote)
    with raises(SettingError, f"{remote}/_skipping", "catalog lake", "set spark.skipping.store"):
        rewrite.session(made)
    SparkSession.builder.getOrCreate().stop()
    store = f"sqlite:{folder}/elsewhere.sqlite"
    made = builder(folder).config("spark.sql.warehouse.dir", "s3a://bucket/warehouse")
    with running(rewrite.session(made.config("spark.skipping.store", store))) as spark:
        assert spark.sql("SHOW SKIPPING INDEXES").collect() == []


@scenario
def without_delta_only_that_is_missing(folder: Path) -> None:
    # What the JVM was started with stays a default; only an empty setting undoes it.
    made = builder(folder, spark_sql_extensions="")
    made.config("spark.sql.catalog.spark_catalog", "")
    with running(made.getOrCreate()) as spark:
        with raises(SessionError, "without Delta", "spark.stop()", "rewrite.session()", DELTA):
            rewrite.session(builder(folder))
        path = str(folder / "plain")
        enabled = rewrite.enable(spark)
        enabled.range(0, 40, 1, 4).write.parquet(path)
        enabled.sql(f"CREATE SKIPPING INDEX ON parquet.`{path}` (id VALUE_LIST)")
        assert opened(enabled, f"SELECT * FROM parquet.`{path}` WHERE id = 5") == 1


@scenario
def without_python_queries_go_on(folder: Path) -> None:
    # Last: what is forgotten does not come back.
    with running(rewrite.session(builder(folder))) as spark:
        fill(spark, folder)
        assert opened(spark) == 1
        gateway: Any = SparkContext._gateway
        # Callbacks into a process that has forgotten its objects; Java gets an error for each.
        gateway.gateway_property.pool.dict.clear()
        for query in (QUERY, "SELECT id, 'skipping' AS flint FROM t WHERE id = 5"):
            df = spark.sql(query)
            assert [row.id for row in df.collect()] == [5]
        scan = rewrite.explain(df).scans[0]
        assert scan.opened == 4
        assert "asking the index failed" in (scan.reason or ""), scan.reason
        # Which error it is depends on the objects that PySpark itself has forgotten.
        with pytest.raises((PySparkException, Py4JError)):
            spark.sql("SHOW SKIPPING INDEXES")


def main(folder: Path, *names: str) -> None:
    results: dict[str, str | None] = {}
    for function in SCENARIOS:
        if names and function.__name__ not in names:
            continue
        try:
            function(folder)
            results[function.__name__] = None
        except (Exception, pytest.fail.Exception):
            results[function.__name__] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
