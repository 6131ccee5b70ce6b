"""Turn expressions over a table's columns, such as `lower(email)`, into columns of an index.

Spark analyzes an expression, and Java (`IndexedExpression.java`) returns its identity, a canonical
text. CREATE does this for the statement's text. A refresh repeats it for the text in the stored
definition, and trusts that text only if its identity is the one in the definition. Queries do not
read the text.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from providers.errors import DefinitionError, first_line
from providers.values import arrow_type, domain_of
from skipping.extensions import Analysed, find_extensions
from skipping.model.definition import Expression
from skipping.parser.literals import split_parts
from skipping.spark_api import parse_type
from skipping.tables import VARIANT, TableColumn
from skipping.tables.spark_schema import nested_schema

_LONGEST = 2_000
"""Maximum length of an expression's text in characters."""

_KEPT = 256
"""Maximum number of cached columns: each analysis takes Spark about 100 ms. The job that computes
the values analyzes again, because settings and functions may have changed.
"""

_computed: OrderedDict[tuple[object, ...], TableColumn] = OrderedDict()
_lock = threading.Lock()

_ZONE, _ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"


class Computing:
    """Turns expressions over a table's columns into columns; see `Columns.compute`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(
        self, sql: str, columns: Mapping[str, TableColumn], kept: Expression | None
    ) -> TableColumn:
        """Return the column of an expression.

        `kept` is the expression in a stored definition. It uses the columns' names at CREATE, and
        finds them by identity. Raises DefinitionError if the expression cannot be indexed.
        """
        if len(sql) > _LONGEST:
            raise DefinitionError(
                f"the expression has {len(sql):,} characters, the maximum is {_LONGEST:,}"
            )
        named = columns if kept is None else _match_identities(kept, columns)
        zone = self._spark.conf.get(_ZONE) or "UTC"
        ansi = (self._spark.conf.get(_ANSI) or "").strip().lower() == "true"
        expression = kept or Expression(sql, zone, ansi, ())
        key = (self._spark.sparkContext.applicationId, expression, tuple(named.items()))
        with _lock:
            if key in _computed:
                return _computed[key]
        made = self._column(expression, named)
        with _lock:
            _computed[key] = made
            while len(_computed) > _KEPT:
                _computed.popitem(last=False)
        return made

    def _column(self, expression: Expression, named: Mapping[str, TableColumn]) -> TableColumn:
        sql = expression.sql
        found = analyse(self._spark, expression, named)
        reads = [named[name] for name in json.loads(found.read())]
        for column in reads:
            if column.refusal is not None and column.type != VARIANT:
                raise DefinitionError(f"{sql} reads {column.refusal}")
            if column.partition:
                raise DefinitionError(
                    f"{sql} reads {column.name}, by which the table is partitioned: "
                    "use only columns that the files contain"
                )
        arrow = arrow_type(found.type())
        if arrow is None or domain_of(arrow) is None:
            raise DefinitionError(f"{sql} is {found.type()}, which cannot be indexed")
        names = tuple((name, named[name].identity) for name in json.loads(found.read()))
        return TableColumn(
            name=sql,
            identity=found.text(),
            type=found.type(),
            expression=replace(expression, reads=names),
            reads=tuple(reads),
        )


def _match_identities(
    kept: Expression, columns: Mapping[str, TableColumn]
) -> dict[str, TableColumn]:
    by_identity = {column.identity: column for column in columns.values()}
    gone = [name for name, identity in kept.reads if identity not in by_identity]
    if gone:
        raise DefinitionError(f"{kept.sql} reads {', '.join(gone)}, which the table no longer has")
    return {name: by_identity[identity] for name, identity in kept.reads}


def analyse(
    spark: SparkSession, expression: Expression, columns: Mapping[str, TableColumn]
) -> Analysed:
    """Analyze an expression, with its own settings, in a separate session.

    Raises DefinitionError if it cannot be indexed.
    """
    extensions = find_extensions()
    if extensions is None:
        raise DefinitionError(f"{expression.sql} needs a session with rewrite.enable(spark)")
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    try:
        own.conf.set("spark.skipping.enabled", "false")
        own.conf.set(_ZONE, expression.zone)
        own.conf.set(_ANSI, str(expression.ansi).lower())
        context = spark.sparkContext
        # An RDD, because Spark would simplify a plan over an empty local relation.
        frame = own.createDataFrame(context.emptyRDD(), _schema(columns))
        identities = {name: column.identity for name, column in columns.items()}
        found = extensions.analyze_expression(frame, expression.sql, identities)
        refusal = found.refusal()
    except (PySparkException, Py4JError) as error:
        raise DefinitionError(f"{expression.sql}: {first_line(error)}") from error
    if refusal is not None:
        raise DefinitionError(f"{expression.sql} cannot be indexed: {refusal}")
    return found


def _schema(columns: Mapping[str, TableColumn]) -> StructType:
    """Return a nested schema of the columns, without those whose type this Spark cannot parse."""
    paths = {name: tuple(split_parts(name)) for name in columns}
    branches = {path[:i] for path in paths.values() for i in range(1, len(path))}
    types: dict[tuple[str, ...], DataType] = {}
    for name, path in paths.items():
        if path not in branches:
            with suppress(PySparkException, Py4JError):
                types[path] = parse_type(columns[name].type)
    return nested_schema(types)
