"""What is put into a Spark session and its clones, and how to find it again."""

from __future__ import annotations

import json
import threading
import time

from py4j.protocol import Py4JError
from pyspark.errors import ParseException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from providers.errors import SessionError, SkippingError
from rewrite.bridge import Answers, Statements, table_key
from rewrite.counters import Counting
from rewrite.java import Classes
from rewrite.shadow import Shadow
from skipping.lookup import Lookup
from skipping.session import settings_of, store_of
from skipping.settings import Settings

__all__ = ["Hooks", "installed"]

_BUSIEST, _LAZIEST = 0.2, 60.0
"""Seconds between two looks at the store, whatever `cache.ttl` is."""

_LOGGED = 60.0
"""Seconds between two lines of counters in the log."""

_hooks: dict[tuple[str, int], Hooks] = {}
"""By application and extensions: the one object that a session shares with all its clones."""


def installed(spark: SparkSession) -> Hooks | None:
    """The hooks that were put into a session or one it is a clone of."""
    return _hooks.get(_key(spark))


def _forget(hooks: Hooks) -> None:
    for key in [k for k, found in _hooks.items() if found is hooks]:
        del _hooks[key]


def _key(spark: SparkSession) -> tuple[str, int]:
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session runs"
    extensions = spark._jsparkSession.extensions()
    return spark.sparkContext.applicationId, jvm.System.identityHashCode(extensions)


class Hooks:
    """One installation: the Java half, and a thread that tells it which tables have an index.

    The thread does so about every `cache.ttl`, so that a scan of any other table never leaves
    Java. It ends with the Spark context.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Compile the Java and inject it.

        A session that has run SQL has built its rules; it only passes these on to its clones.
        """
        context = spark.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        classes = Classes(context._gateway)
        self._spark = spark
        self._lookups: dict[Settings, Lookup] = {}
        self._watching = False
        self.counting = Counting()
        self.shadow = Shadow(lambda: self._spark)
        self.java = classes.new("Skipping", Answers(self._lookup, self.shadow))
        extensions = spark._jsparkSession.extensions()
        extensions.injectColumnar(classes.new("PruneScans$Inject", self.java))
        extensions.injectResolutionRule(classes.new("JoinKeys$Inject", self.java))
        extensions.injectParser(classes.new("Statements$Inject", Statements(context)))
        context._jsc.sc().addSparkListener(self.java.executions())
        _hooks[_key(spark)] = self

    def prove(self, spark: SparkSession) -> bool:
        """Plan a query and parse a statement: whether both hooks work in this session.

        Raises SessionError where only one does: something else took the other's place.
        """
        state = spark._jsparkSession.sessionState()
        try:
            command = state.sqlParser().parsePlan("SHOW SKIPPING INDEXES")
            parses = command.getClass().getName() == "rewrite.jvm.Command"
        except ParseException:
            parses = False
        before = self.java.plans()
        spark.range(1)._jdf.queryExecution().executedPlan()
        plans: bool = self.java.plans() > before
        if parses != plans:
            what = "SQL parser" if plans else "plan rule"
            raise SessionError(
                f"another extension hides the {what} of file skipping: "
                "start the session with rewrite.session()"
            )
        return plans

    def follow(self, spark: SparkSession) -> None:
        """Answer, and watch the store that this session's settings name.

        Raises SettingError for settings that are wrong.
        """
        store_of(spark, settings_of(spark))
        self._spark = spark
        self.java.setAttached(True)
        self._tell()
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="skipping", daemon=True).start()

    def detach(self) -> None:
        """Let every query pass."""
        self.java.setAttached(False)

    def _lookup(self, settings: Settings) -> Lookup:
        if settings not in self._lookups:
            lookup = Lookup(
                store_of(self._spark, settings),
                ttl=settings.cache_ttl,
                providers=settings.providers,
                values=settings.explain_values,
            )
            lookup.on_change = self._tell
            self._lookups[settings] = lookup
        return self._lookups[settings]

    def _watch(self) -> None:
        logged = time.monotonic()
        try:
            while not self._stopped():
                time.sleep(min(max(self._settings().cache_ttl, _BUSIEST), _LAZIEST))
                self._tell()
                if time.monotonic() - logged >= _LOGGED:
                    logged = time.monotonic()
                    self.counting.log(self.java)
        except (Py4JError, OSError):
            pass  # Java has ended
        _forget(self)

    def _settings(self) -> Settings:
        # Not spark.conf.getAll, which fetches every setting of Spark's, each by itself.
        conf = self._spark._jsparkSession.sessionState().conf()
        settings, _ = Settings.lenient(json.loads(self.java.settings(conf)))
        return settings

    def _stopped(self) -> bool:
        return self._spark.sparkContext._jsc is None

    def _tell(self) -> None:
        # A change in a store reaches every Lookup of the process, those of earlier sessions too.
        if self._stopped():
            return
        try:
            tables = self._lookup(self._settings()).indexed(fresh=True)
        except SkippingError:
            # What Java knows stays: it goes on asking, and the answer says what is wrong.
            return
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None, "the session runs"
        known = jvm.java.util.HashMap()
        for table, definition in tables.items():
            columns = jvm.java.util.ArrayList()
            for column in definition.columns:
                columns.add(column.identity)
            known.put(table_key(table), columns)
        self.java.setIndexed(known)
