"""What is put into a Spark session and its clones, and how to find it again."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import DefinitionError, SessionError, SkippingError
from rewrite.bridge.authentication import Guarded, authenticate, make_secret, seal
from rewrite.bridge.callbacks import Answers, Statements, describe_indexes
from rewrite.bridge.compiler import Classes
from rewrite.bridge.counters import Counting
from rewrite.bridge.message_files import Folder
from rewrite.bridge.shadow import Shadow
from skipping.config.settings import Settings
from skipping.lookup.lookup import Lookup
from skipping.sources.spark import settings_of, store_of
from skipping.tables.bounds import rules_as_json

__all__ = ["Hooks", "analysed", "find_hooks"]

log = logging.getLogger("skipping")

_BUSIEST, _LAZIEST = 0.2, 60.0
"""Seconds between two looks at the store, whatever `cache.ttl` is."""

_PATIENCE = 10.0
"""Seconds that a look at the store may take."""

_KEPT = 64
"""Kinds of settings, and stores, that are remembered: those used last."""

_LOGGED = 60.0
"""Seconds between two lines of counters in the log."""

_hooks: dict[tuple[str, int], Hooks] = {}
"""By application and extensions: the one object that a session shares with all its clones."""


def find_hooks(spark: SparkSession) -> Hooks | None:
    """The hooks that were put into a session or one it is a clone of."""
    return _hooks.get(_key(spark))


def analysed(frame: DataFrame, sql: str, identities: Mapping[str, str]) -> Any:
    """What a text over the columns of a frame is as an indexed expression
    (`IndexedExpression.java`).

    Raises DefinitionError without hooks: their Java is what does it.
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
    """One installation: the Java half, and a thread that tells it which tables have an index.

    The thread does so about every `cache.ttl` of a session, so that its scans of any other table
    never leave Java. It ends with the Spark context, and so does all that is kept here.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Compile the Java and inject it.

        A session that has run SQL has built its rules; it only passes these on to its clones.
        """
        for earlier in set(_hooks.values()):
            if earlier._stopped():
                earlier.close()
        context = spark.sparkContext
        authenticate(context._gateway)
        classes = Classes(context._gateway)
        self._spark = spark
        self._lock = threading.Lock()
        self._named: OrderedDict[str, Settings] = OrderedDict()
        self._lookups: OrderedDict[Settings, Lookup] = OrderedDict()
        self._looked = weakref.WeakKeyDictionary[Lookup, float]()
        self._watching = False
        self._folder = Folder()
        self.counting = Counting()
        self.shadow = Shadow(_weak(self._session))
        # Java keeps callbacks as long as it likes: they must not keep this object and its Java.
        answers = Answers(_weak(self._asked), self._folder, self.shadow)
        self._warn = answers.warn
        secret = make_secret()
        asks = Guarded(secret, lambda *message: answers.apply(*message))
        states = Guarded(secret, Statements(context).apply)
        self.java = classes.new("SkippingExtension", asks, states, secret, str(self._folder.path))
        self.java.setBoundRules(rules_as_json())
        self.java.inject(spark._jsparkSession.extensions(), context._jsc.sc())
        seal(asks)
        seal(states)
        _hooks[_key(spark)] = self

    def prove(self, spark: SparkSession) -> bool:
        """Plan a query and parse a statement: whether both hooks work in this session.

        Raises SessionError where only one does: something else took the other's place.
        """
        state = spark._jsparkSession.sessionState()
        try:
            command = state.sqlParser().parsePlan("SHOW SKIPPING INDEXES")
            parses = command.getClass().getName() == "rewrite.jvm.parser.SkippingCommand"
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
        self.java.register(spark._jsparkSession)
        self.java.setAttached(True)
        self._tell()
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="skipping", daemon=True).start()

    def detach(self) -> None:
        """Let every query pass."""
        self.java.setAttached(False)

    def close(self) -> None:
        """Give back what is kept for a session that has ended."""
        _forget(self)
        self.shadow.stop()
        self._folder.remove()
        with self._lock:
            self._lookups.clear()
            self._named.clear()

    def _session(self) -> SparkSession:
        return self._spark

    def _asked(self, name: str) -> tuple[Settings, Lookup]:
        """The settings of a name that Java has given them, and the lookup that they ask for."""
        settings = self._settings(name)
        return settings, self._lookup(settings)

    def _settings(self, name: str) -> Settings:
        with self._lock:
            if name in self._named:
                self._named.move_to_end(name)
                return self._named[name]
        text = self.java.settings().of(name)
        if text is None:
            raise SessionError("the session's settings are no longer known")
        settings, complaints = Settings.lenient(json.loads(text))
        for complaint in complaints:
            self._warn(complaint)
        with self._lock:
            _keep(self._named, name, settings)
        return settings

    def _lookup(self, settings: Settings) -> Lookup:
        # Alike in all that a lookup needs.
        like = replace(settings, shadow=0.0)
        with self._lock:
            if like in self._lookups:
                self._lookups.move_to_end(like)
                return self._lookups[like]
        lookup = Lookup(
            store_of(self._spark, settings),
            ttl=settings.cache_ttl,
            providers=settings.providers,
            values=settings.explain_values,
        )
        held = weakref.WeakMethod(self._tell)

        def tell() -> None:
            told = held()
            if told is not None:  # else its session has ended, and it is about to go
                told([lookup])

        lookup.on_change = tell
        with self._lock:
            if like not in self._lookups:
                _keep(self._lookups, like, lookup)
            return self._lookups[like]

    def _watch(self) -> None:
        logged = time.monotonic()
        while not self._stopped():
            time.sleep(_BUSIEST)
            try:
                if due := self._due():
                    self._tell(due)
                if time.monotonic() - logged >= _LOGGED:
                    logged = time.monotonic()
                    self.counting.log(self.java)
            except Exception as error:
                if self._stopped() or not self._java_runs():
                    break
                self._warn(f"the store is watched on after {type(error).__name__}: {error}")
        self.close()

    def _due(self) -> set[Lookup]:
        """Who is to look at a store again, each by the `cache.ttl` of its own sessions."""
        now, due = time.monotonic(), set()
        with self._lock:
            for settings, lookup in self._lookups.items():
                patience = min(max(settings.cache_ttl, _BUSIEST), _LAZIEST)
                if now - self._looked.get(lookup, -math.inf) >= patience:
                    self._looked[lookup] = now
                    due.add(lookup)
        return due

    def _java_runs(self) -> bool:
        try:
            self.java.plans()
        except (Py4JError, OSError):
            return False
        return True

    def _stopped(self) -> bool:
        return self._spark.sparkContext._jsc is None

    def _tell(self, only: Collection[Lookup] | None = None) -> None:
        """Tell Java which tables have an index, for each store that a session of this one names.

        Or only for what changed, or is due: another, which may be slow, is nothing to it.
        """
        # A change in a store reaches every Lookup of the process, those of earlier sessions too.
        if self._stopped():
            return
        known = self.java.settings()
        current = known.name(self._spark._jsparkSession.sessionState().conf())
        told: dict[Lookup, str | None] = {}
        for name in dict.fromkeys([current, *known.names()]):
            try:
                lookup = self._lookup(self._settings(name))
                if only is not None and lookup not in only:
                    continue
                if lookup not in told:
                    told[lookup] = None
                    tables = lookup.indexed(fresh=True, timeout=_PATIENCE)
                    told[lookup] = json.dumps(describe_indexes(tables))
                if told[lookup] is not None:
                    self.java.setIndexed(name, told[lookup])
            except SkippingError:
                # What Java knows stays: it goes on asking, and the answer says what is wrong.
                continue
            except Py4JNetworkError:
                raise
            except Exception as error:
                self._warn(f"a store cannot be watched: {type(error).__name__}: {error}")


def _weak(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, for as long as there is its object."""
    held = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        found = held()
        if found is None:
            raise SessionError("the session has ended")
        return found(*arguments)

    return call


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _keep(kept: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Remember a value, and forget that which was not used for longest."""
    kept[key] = value
    while len(kept) > _KEPT:
        kept.popitem(last=False)
