"""Install the hooks in a Spark session and its clones, and find them again."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import DefinitionError, SessionError
from rewrite.bridge.authentication import Guarded, authenticate, make_secret, seal
from rewrite.bridge.background_verification import BackgroundVerification
from rewrite.bridge.callbacks import Answers, Statements
from rewrite.bridge.classes import Classes
from rewrite.bridge.counters import Counting
from rewrite.bridge.lookup_cache import LookupCache
from rewrite.bridge.message_files import Folder
from rewrite.bridge.store_watcher import StoreWatcher
from rewrite.bridge.workload_writer import WorkloadWriter
from skipping.config.settings import Settings
from skipping.extensions import find_extensions
from skipping.lookup.lookup import Lookup
from skipping.sources.spark import settings_of, store_of
from skipping.tables.bounds import rules_as_json

_hooks: dict[tuple[str, int], Hooks] = {}
"""By application and extensions; a session and its clones share one extensions object."""


def find_hooks(spark: SparkSession) -> Hooks | None:
    """Return the hooks of a session, also if it is a clone; None without `rewrite.enable`."""
    return _hooks.get(_key(spark))


def analyze_expression(frame: DataFrame, sql: str, identities: Mapping[str, str]) -> Any:
    """Analyze SQL over the columns of a frame as an indexed expression (`IndexedExpression.java`).

    Raises DefinitionError without hooks, because their Java does the analysis.
    """
    hooks = find_hooks(frame.sparkSession)
    if hooks is None:
        raise DefinitionError(
            "an expression needs a session that skips files: spark = rewrite.enable(spark)"
        )
    return hooks.java.expression(frame._jdf, sql, json.dumps(dict(identities)))


def _forget(hooks: Hooks) -> None:
    for key in [k for k, found in _hooks.items() if found is hooks]:
        del _hooks[key]


def _key(spark: SparkSession) -> tuple[str, int]:
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session runs"
    extensions = spark._jsparkSession.extensions()
    return spark.sparkContext.applicationId, jvm.System.identityHashCode(extensions)


class Hooks:
    """One installation in a session and its clones: the Java objects, and the callbacks for them.

    It lives as long as the Spark context.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Load the Java and inject it.

        A session that has run SQL has built its plan rules already: only its clones get ours.
        """
        for earlier in set(_hooks.values()):
            if earlier._has_ended():
                earlier.close()
        context = spark.sparkContext
        authenticate(context._gateway)
        classes = self._classes = Classes(context._gateway)
        self._spark = spark
        self._folder = Folder()
        self.counting = Counting()
        # Java references the callbacks for an unknown time: weak references let this object go.
        session = _weak(self._session)
        self.verification = BackgroundVerification(session)
        answers = Answers(
            _weak(self._get_lookup),
            self._folder,
            self.verification,
            _weak(self._render_section),
        )
        secret = make_secret()
        asks = Guarded(secret, lambda *message: answers.apply(*message))
        states = Guarded(secret, Statements(context).apply)
        extensions = spark._jsparkSession.extensions()
        # Spark has injected one if spark.sql.extensions names it.
        injected = classes.find("SkippingExtension").getField("INJECTED").get(None)
        known = injected.get(extensions)
        self.java: Any = None if known is None else known.get()
        if self.java is None:
            self.java = classes.new("SkippingExtension")
            self.java.apply(extensions)
        self.lookups = LookupCache(
            session,
            lambda name: self.java.client().settings().of(name),
            answers.warn,
            _weak(self._publish, default=None),
        )
        self.workload = WorkloadWriter(self.java, self.lookups)
        self._watcher = StoreWatcher(
            self.java,
            self._session,
            self.lookups,
            self.counting,
            self.workload,
            warn=answers.warn,
            on_end=self.close,
        )
        self.java.setBoundRules(rules_as_json())
        self.java.connect(asks, states, secret, str(self._folder.path), context._jsc.sc())
        seal(asks)
        seal(states)
        _hooks[_key(spark)] = self

    def load_formats(self, jars: Iterable[str | Path]) -> None:
        """Find the table formats in some jars, next to those known; raises SessionError."""
        self._classes.load_formats(self.java, jars)

    def prove(self, spark: SparkSession) -> bool:
        """Plan a query and parse a statement; return whether both hooks work in this session.

        Raises SessionError if only one works, because another extension replaced the other.
        """
        state = spark._jsparkSession.sessionState()
        try:
            command = state.sqlParser().parsePlan("SHOW SKIPPING INDEXES")
            parses = command.getClass().getName() == "rewrite.jvm.parser.SkippingCommand"
        except ParseException:
            parses = False
        before = self.java.client().plans()
        spark.range(1)._jdf.queryExecution().executedPlan()
        plans: bool = self.java.client().plans() > before
        if parses != plans:
            what = "SQL parser" if plans else "plan rule"
            raise SessionError(
                f"another extension hides the {what} of file skipping: "
                "start the session with rewrite.session()"
            )
        return plans

    def follow(self, spark: SparkSession) -> None:
        """Serve a session: register it, and watch the store in its settings.

        Raises SettingError for wrong settings.
        """
        store_of(spark, settings_of(spark))
        self._spark = spark
        self.java.register(spark._jsparkSession)
        self.java.client().attach(True)
        self._watcher.publish()
        self._watcher.start()

    def publish(self, spark: SparkSession) -> None:
        """Send Java the tables that have an index in the store of this session now."""
        self._watcher.publish_for(spark)

    def detach(self) -> None:
        """Stop skipping files in all sessions, until `follow`."""
        self.java.client().attach(False)

    def close(self) -> None:
        """Release the threads, files and caches of a session that has ended."""
        _forget(self)
        self.verification.stop()
        self._folder.remove()
        self.lookups.clear()

    def _session(self) -> SparkSession:
        return self._spark

    def _get_lookup(self, name: str) -> tuple[Settings, Lookup]:
        return self.lookups.get(name)

    def _render_section(self, name: str, seconds: float) -> str:
        extensions = find_extensions()
        assert extensions is not None, "rewrite/__init__.py sets them"
        return extensions.render_section(self._spark, name, seconds)

    def _publish(self, lookup: Lookup) -> None:
        self._watcher.publish([lookup])

    def _has_ended(self) -> bool:
        return self._spark.sparkContext._jsc is None


_RAISE = object()


def _weak(method: Callable[..., Any], *, default: Any = _RAISE) -> Callable[..., Any]:
    """Return a function that calls a method while its object lives.

    After that it returns `default`, or raises SessionError without one.
    """
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        method = reference()
        if method is None:
            if default is _RAISE:
                raise SessionError("the session has ended")
            return default
        return method(*arguments)

    return call
