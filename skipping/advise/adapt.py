"""Adapt automatic indexes: measure what recorded queries need, and change the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from providers.errors import DefinitionError
from skipping.advise.analyze import Measured, measure
from skipping.advise.automatic import Candidate, CurrentColumn, Evidence, decide
from skipping.advise.history import (
    RANGE,
    TEXT,
    VALUES,
    RecordedPredicate,
    attribute_to_columns,
    find_cased_column,
    list_unused_predicates,
)
from skipping.advise.recommend import FOR_TEXT, recommend
from skipping.advise.workload import RememberedWorkload, read_workload
from skipping.config.options import IndexOptions
from skipping.indexing.definitions import add_columns
from skipping.model.decision import Decision
from skipping.model.definition import Definition, State
from skipping.model.workload import MOST_RECORDS, TableWorkload, WorkloadRecord
from skipping.parser.literals import parse_percent
from skipping.parser.parse import column_specs
from skipping.sources.spark import settings_of
from skipping.tables import Columns, Table

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What is known about an automatic index and its table on a day.

    `missed` is the number of recorded scans with conditions that pruned no file.
    """

    evidence: Evidence
    missed: int

    def decide(self, definition: Definition) -> tuple[Sequence[Decision], Sequence[Candidate]]:
        """Return the decisions for a definition, and the columns that they add."""
        if not definition.is_automatic:
            return (), ()
        current = _list_current(definition, self.evidence.files)
        return decide(self.evidence, current, definition.decisions)

    def apply(
        self, definition: Definition, columns: Columns, providers: Sequence[str]
    ) -> Definition:
        """Return the definition with the decisions for it.

        Others may have changed it since the evidence was collected. Candidates that the index
        cannot have, for example because the table has lost the column, are left out.
        """
        decisions, added = self.decide(definition)
        gone = {(each.identity, each.kind) for each in decisions if each.action == "drop"}
        left = [i for i in definition.columns if (i.identity, i.kind) not in gone]
        last = definition.next_number - 1
        changed = replace(definition, columns=tuple(left), numbers=last) if gone else definition
        for candidate in added:
            try:
                specs = column_specs(candidate.sql)
                changed = add_columns(changed, specs, columns, providers, by_user=False)
            except DefinitionError:
                others = [each for each in self.evidence.candidates if each != candidate]
                evidence = replace(self.evidence, candidates=others)
                return replace(self, evidence=evidence).apply(definition, columns, providers)
        return changed.decide(decisions)


def is_due(
    spark: SparkSession, table: Table, definition: Definition, state: State, *, today: date
) -> bool:
    """Return whether a refresh should decide: once a day, or if recorded misses have doubled.

    So refreshes that are frequent do not sample the table each time.
    """
    if state.adapted != today.isoformat():
        return True
    unused = _read_queries(spark, table, today)[1]
    return sum(each.scans for each in unused) >= max(1, 2 * state.missed)


def collect_evidence(
    spark: SparkSession, table: Table, definition: Definition, *, today: date
) -> Adaptation:
    """Measure what an automatic index needs on a day (in UTC). Writes nothing.

    Reads a sample of the table's files only if recorded queries opened files without need, or if
    the index is new. Raises TableError if the table cannot be read.
    """
    remembered, unused, patience = _read_queries(spark, table, today)
    live = table.files(where=definition.where)
    share = parse_percent(IndexOptions.of(dict(definition.options)).budget)
    columns = table.columns()
    evidence = Evidence(
        today=today,
        candidates=_list_by_workload(spark, table, definition, unused, patience),
        workload=[
            (record.day, _attribute(each, columns))
            for record in remembered.records
            for each in record.tables
            if each.table == table.id
        ],
        budget=share * (pc.sum(live["size"]).as_py() or 0),
        files=len(live),
        patience=patience,
        is_recorded=definition.enabled and _is_recorded(remembered, table, today, patience),
    )
    adaptation = Adaptation(evidence, sum(each.scans for each in unused))
    is_new = not definition.columns and not definition.decisions
    if is_new and not adaptation.decide(definition)[1]:
        by_data = _list_by_data(spark, table, definition, evidence.budget)
        adaptation = replace(adaptation, evidence=replace(evidence, candidates=by_data))
    return adaptation


def _read_queries(
    spark: SparkSession, table: Table, today: date
) -> tuple[RememberedWorkload, list[RecordedPredicate], int]:
    """Return the workload, the predicates of the last days that pruned no file, and these days."""
    patience = max(1, int(settings_of(spark).automatic_patience // _DAY))
    remembered = read_workload(spark, today=today)
    first = today - timedelta(patience - 1)
    records = [each for each in remembered.records if first <= each.day <= today]
    unused = list_unused_predicates(records, table.id)
    return remembered, attribute_to_columns(unused, table.columns()), patience


def _is_recorded(remembered: RememberedWorkload, table: Table, today: date, patience: int) -> bool:
    """Return whether the workload of the last days is known, and has queries on the table.

    Otherwise drivers may not record theirs, or nobody may read the table for a while.
    """
    first = today - timedelta(patience)
    records: Sequence[WorkloadRecord] = remembered.records
    return (
        remembered.problem is None
        and len(records) < MOST_RECORDS
        and any(each.day <= first for each in records)
        and any(
            counted.table == table.id and counted.queries
            for each in records
            if each.day >= first
            for counted in each.tables
        )
    )


def _attribute(counted: TableWorkload, columns: Columns) -> TableWorkload:
    """Return the counts with those of searches in `lower(c)` and `upper(c)` as counts of `c`."""
    predicates = []
    for each in counted.predicates:
        column = find_cased_column(each, columns)
        predicates.append(each if column is None else replace(each, identity=column.identity))
    return replace(counted, predicates=tuple(predicates))


def _list_current(definition: Definition, files: int) -> list[CurrentColumn]:
    automatic = definition.automatic_columns
    current = []
    for column in definition.columns:
        added = automatic.get((column.identity, column.kind))
        grown = files / added.files if added is not None and added.files else 1.0
        current.append(
            CurrentColumn(
                identity=column.identity,
                column=column.name,
                kind=column.kind,
                bytes=0 if added is None else round(grown * added.bytes),
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
    measured = measure(spark, table, wanted, columns=columns, where=definition.where)
    return _list_candidates(measured, days)


def _list_by_data(
    spark: SparkSession, table: Table, definition: Definition, budget: float
) -> list[Candidate]:
    """Return the candidates that ANALYZE recommends if no queries are recorded."""
    columns = table.columns().values()
    measured = measure(spark, table, (), columns=columns, where=definition.where)
    chosen = recommend(measured.columns, measured.files, budget)
    advised = {f"{column.sql} {kind.spelling}" for column in chosen for kind in column.all_advised}
    return [
        replace(each, benefit=0.0, is_advised=True)
        for each in _list_candidates(measured, 1)
        if each.sql in advised
    ]


def _list_candidates(measured: Measured, days: int) -> list[Candidate]:
    return [
        Candidate(
            identity=column.identity,
            column=column.name,
            kind=kind.kind,
            sql=f"{column.sql} {kind.spelling}",
            bytes=round(measured.files * kind.bytes),
            benefit=kind.benefit / days,
            for_text=kind.for_text,
        )
        for column in measured.columns
        for kind in column.kinds
        if column.distinct[1]
    ]
