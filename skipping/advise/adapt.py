"""Adapt automatic indexes: measure what recorded queries need, and change the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from providers.errors import DefinitionError
from skipping.advise.analyze import Measured, measure
from skipping.advise.automatic import Candidate, CurrentColumn, decide
from skipping.advise.history import (
    RANGE,
    TEXT,
    VALUES,
    RecordedPredicate,
    attribute_to_columns,
    list_unused_predicates,
)
from skipping.advise.recommend import FOR_TEXT, recommend
from skipping.advise.workload import read_workload
from skipping.config.options import IndexOptions
from skipping.indexing.definitions import add_columns
from skipping.model.decision import Decision
from skipping.model.definition import Definition
from skipping.parser.literals import parse_percent
from skipping.parser.parse import column_specs
from skipping.sources.spark import settings_of
from skipping.tables import Columns, Table

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Changes:
    """The decisions about an automatic index on a day, and the candidates that they add."""

    day: date
    decisions: Sequence[Decision] = ()
    added: Sequence[Candidate] = ()

    def apply(
        self, definition: Definition, columns: Columns, providers: Sequence[str]
    ) -> Definition:
        """Return the definition with these changes, but without those that others overtook.

        Another process may have decided about a column on this day, a user may have added one, and
        the table may have lost one.
        """
        done = {each.identity for each in definition.decisions if each.day == self.day}
        made: list[Decision] = []
        automatic = definition.automatic_columns
        for each in self.decisions:
            key = each.identity, each.kind
            if each.identity in done or (each.action == "drop") != (key in automatic):
                continue
            if each.action == "drop":
                left = tuple(i for i in definition.columns if (i.identity, i.kind) != key)
                last = definition.next_number - 1
                definition = replace(definition, columns=left, numbers=last)
            else:
                (sql,) = (a.sql for a in self.added if (a.identity, a.kind) == key)
                try:
                    definition = add_columns(definition, column_specs(sql), columns, providers)
                except DefinitionError:
                    continue
            made.append(each)
        return definition.decide(made)


def plan_changes(
    spark: SparkSession, table: Table, definition: Definition, *, today: date
) -> Changes:
    """Return what an automatic index decides on a day (in UTC). Writes nothing.

    Reads a sample of the table's files only if the index has no columns, or if recorded queries
    opened files without need. Raises TableError if the table cannot be read.
    """
    patience = max(1, int(settings_of(spark).automatic_patience // _DAY))
    remembered = read_workload(spark, today=today)
    oldest = today - timedelta(patience)
    records = [each for each in remembered.records if oldest <= each.day <= today]
    unused = attribute_to_columns(list_unused_predicates(records, table.id), table.columns())
    share = parse_percent(IndexOptions.of(dict(definition.options)).budget)
    budget = share * (pc.sum(table.files()["size"]).as_py() or 0)
    candidates = _list_by_workload(spark, table, definition, unused, patience)
    if not definition.columns and not any(each.is_worthwhile for each in candidates):
        candidates = _list_by_data(spark, table, budget)
    decisions, added = decide(
        candidates,
        [(r.day, each) for r in records for each in r.tables if each.table == table.id],
        _list_current(definition),
        definition.decisions,
        budget=int(budget),
        today=today,
        patience=patience,
        is_recorded=bool(records) and remembered.problem is None,
    )
    return Changes(today, decisions, added)


def _list_current(definition: Definition) -> list[CurrentColumn]:
    automatic = definition.automatic_columns
    current = []
    for column in definition.columns:
        added = automatic.get((column.identity, column.kind))
        current.append(
            CurrentColumn(
                identity=column.identity,
                column=column.name,
                kind=column.kind,
                bytes=0 if added is None else added.bytes,
                forms=frozenset([TEXT] if column.kind in FOR_TEXT else [VALUES, RANGE]),
                parts=frozenset(column.part_identities),
                since=None if added is None else added.day,
            )
        )
    return current


def _list_by_workload(
    spark: SparkSession,
    table: Table,
    definition: Definition,
    unused: Sequence[RecordedPredicate],
    days: int,
) -> list[Candidate]:
    """Return the candidates for predicates on columns that no user indexed."""
    automatic = definition.automatic_columns
    by_hand = {i.identity for i in definition.columns if (i.identity, i.kind) not in automatic}
    wanted = [each for each in unused if each.identity not in by_hand]
    if not wanted:
        return []
    read = {identity for each in wanted for identity in (each.identity, *each.parts)}
    columns = [column for column in table.columns().values() if column.identity in read]
    measured = measure(spark, table, wanted, columns=columns)
    return _list_candidates(measured, days)


def _list_by_data(spark: SparkSession, table: Table, budget: float) -> list[Candidate]:
    """Return the candidates that ANALYZE recommends if no queries are recorded."""
    measured = measure(spark, table, (), columns=table.columns().values())
    chosen = recommend(measured.columns, measured.files, budget)
    advised = {(column.identity, kind.spelling) for column in chosen for kind in column.all_advised}
    found = _list_candidates(measured, 1)
    return [
        replace(each, benefit=0.0, is_advised=True)
        for each in found
        if (each.identity, each.spelling) in advised
    ]


def _list_candidates(measured: Measured, days: int) -> list[Candidate]:
    return [
        Candidate(
            identity=column.identity,
            column=column.name,
            kind=kind.kind,
            spelling=kind.spelling,
            sql=f"{column.sql} {kind.spelling}",
            bytes=round(measured.files * kind.bytes),
            benefit=kind.benefit / days,
        )
        for column in measured.columns
        for kind in column.kinds
        if column.distinct[1]
    ]
