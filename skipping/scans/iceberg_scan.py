"""Run PyIceberg's scans without the files that an index prunes for their row filter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask

from providers.errors import first_line
from providers.predicate import And, Leaf, Predicate, Unknown, map_leaves
from skipping.filters.pyiceberg import Reading, translate_pyiceberg
from skipping.scans.base import take_rows
from skipping.scans.engines import EngineScan
from skipping.scans.row_filters import RowTest, apply_tests, row_tests, top_level
from skipping.scans.verification import Verification
from skipping.stores import Identity
from skipping.tables import Columns, TableColumn
from skipping.tables.iceberg.pyiceberg import parse_metadata

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("skipping")

Pruned: TypeAlias = Callable[[Predicate, Columns], set[Identity]]
"""Finds the files with no matching row for a predicate on columns."""


class IndexedScan(EngineScan, DataScan):
    """PyIceberg's scan (`to_arrow`, `to_pandas`, `select`, `count`) over fewer files.

    If the index is unavailable, it plans every file, as PyIceberg does, and logs a warning. Keys
    and expressions (`tests`) are evaluated on the rows that PyIceberg's reader returns.
    """

    _find_prunable: Pruned
    tests: tuple[RowTest, ...] = ()
    _engine_predicates: tuple[Predicate, ...] = ()

    @classmethod
    def of(
        cls,
        scan: DataScan,
        find_prunable: Pruned,
        *,
        row_filter: Any = "",
        keys: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a PyIceberg scan without the files that the index prunes.

        `row_filter` may be an expression of Arrow or Polars, `keys` are join keys by column. Raises
        DefinitionError or TypeError if they do not fit the table.
        """
        made = cls._as(scan, find_prunable)
        if isinstance(row_filter, str) and not keys:
            return made
        schema = made.update(selected_fields=("*",)).arrow_schema
        rest, made.tests = row_tests(row_filter, keys, made._columns(), schema)
        if rest != "":
            raise TypeError(
                f"the filter is a {type(rest).__name__}: on an Iceberg table give text, or an "
                "expression of PyIceberg, pyarrow.compute or Polars"
            )
        return made

    @classmethod
    def _as(cls, scan: DataScan, find_prunable: Pruned) -> Self:
        made = cls(
            scan.table_metadata,
            scan.io,
            scan.row_filter,
            scan.selected_fields,
            scan.case_sensitive,
            scan.snapshot_id,
            scan.options,
            scan.limit,
            scan.catalog,
            scan.table_identifier,
        )
        made._find_prunable = find_prunable
        return made

    def __repr__(self) -> str:
        # No count of files, because that reads manifests.
        name = ".".join(self.table_identifier or ())
        about = [f"filter {self.row_filter}", ", ".join(self.selected_fields)]
        about += [] if self.limit is None else [f"limit {self.limit:,}"]
        return f"<IndexedScan of {name}: {'; '.join(about)}>"

    def update(self, **overrides: Any) -> IndexedScan:
        """Return a copy with other settings."""
        made: IndexedScan = super().update(**overrides)
        made._find_prunable, made.tests, made._engine_predicates = (
            self._find_prunable,
            self.tests,
            self._engine_predicates,
        )
        return made

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return schema_to_pyarrow(self.projection())

    def project_and_prune(self, names: Sequence[str], predicate: Predicate) -> IndexedScan:
        """See `Scan`; selected fields of a struct stay selected."""
        given, there = list(self.selected_fields), self.arrow_schema.names
        if "*" in given:
            given = there
        tops = tuple(f"{name}." for name in names)
        kept = [name for name in given if f"{name}.".startswith(tops)]
        made = self.update(selected_fields=tuple(kept or given))
        if predicate != And(()) and self.limit is None:  # a limit counts all rows
            made._engine_predicates = (*self._engine_predicates, predicate)
        return made

    def indexable_columns(self) -> Mapping[str, TableColumn]:
        """See `Scan`."""
        return top_level(self._columns(), self.arrow_schema)

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read the rows; options are PyIceberg's."""
        if not self.tests:
            return DataScan.to_arrow(self, dictionary_columns)
        return self.to_arrow_batch_reader(dictionary_columns).read_all()

    def to_arrow_batch_reader(
        self, dictionary_columns: tuple[str, ...] = ()
    ) -> pa.RecordBatchReader:
        """Read the rows, a few files at a time as batches are consumed; options are PyIceberg's."""
        if not self.tests:
            return DataScan.to_arrow_batch_reader(self, dictionary_columns)
        schema = self.arrow_schema
        read = DataScan.to_arrow_batch_reader(self._widen_to_tests())
        rows = take_rows(self._apply_tests(read, schema), self.limit)
        return pa.RecordBatchReader.from_batches(schema, rows)

    def _widen_to_tests(self) -> IndexedScan:
        """Return the scan without its limit, with the columns that the tests read."""
        schema = self.arrow_schema
        tested = {name for test in self.tests for name in test.columns}
        whole = self.update(selected_fields=("*",)).arrow_schema
        missing = (n for n in tested if n not in schema.names or schema.field(n) != whole.field(n))
        return self.update(selected_fields=(*self.selected_fields, *missing), limit=None)

    def _apply_tests(
        self, read: pa.RecordBatchReader, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        with read:
            for batch in read:
                found = apply_tests(self.tests, pa.Table.from_batches([batch]))
                yield from found.select(schema.names).cast(schema).to_batches()

    def count(self) -> int:
        """Count the matching rows; with keys or an expression, those that `to_arrow` returns."""
        if not self.tests:
            return super().count()
        names = [name for test in self.tests for name in test.columns]
        return sum(map(len, self.project_and_prune(names, And(())).to_arrow_batch_reader()))

    def plan_files(self) -> Iterable[FileScanTask]:
        """Return the tasks of the files that can hold a matching row."""
        return self.prune_tasks(list(super().plan_files()))

    def prune_tasks(self, tasks: Sequence[FileScanTask]) -> Sequence[FileScanTask]:
        """Return the tasks whose file can hold a matching row."""
        return self._prune_with_note(tasks)[0]

    def verify(self) -> Verification:
        """Read the pruned files, too; raise WrongAnswer with the names of those with a match.

        It reads the selected columns of every file that PyIceberg plans, and ignores the limit.
        """
        whole = list(super().plan_files())
        kept, note = self._prune_with_note(whole)
        opened = set(map(id, kept))
        skipped = [task for task in whole if id(task) not in opened]
        wrong = []
        if self._matching(skipped):  # all at once, because files share delete files
            wrong = [(task.file.file_path, self._matching([task])) for task in skipped]
        return Verification.of(
            self._matching(kept), len(kept), len(skipped), [w for w in wrong if w[1]], note
        )

    def _matching(self, tasks: Sequence[FileScanTask]) -> int:
        """Count the matching rows by reading them, never from the metadata."""
        wider = self._widen_to_tests()
        scan = ArrowScan(
            self.table_metadata, self.io, wider.projection(), self.row_filter, self.case_sensitive
        )
        tables = map(pa.Table.from_batches, ([batch] for batch in scan.to_record_batches(tasks)))
        if not self.tests:
            return sum(map(len, tables))
        schema = wider.arrow_schema
        return sum(len(apply_tests(self.tests, table.cast(schema))) for table in tables)

    def _prune_with_note(
        self, tasks: Sequence[FileScanTask]
    ) -> tuple[Sequence[FileScanTask], str | None]:
        """Return the remaining tasks; if the index failed, all tasks and a note that says why."""
        try:
            columns = parse_metadata(self.table_metadata).columns()
            # Keep the NOTs: PyIceberg removes them for planning, which changes the filter.
            bound = bind(self.table_metadata.schema(), self.row_filter, self.case_sensitive)
            reading = self._reading(bound)
            pruned = self._find_prunable(translate_pyiceberg(bound, columns, reading), columns)
            pruned |= self._prune_by_tests(reading)
        except Exception as error:  # reading never fails because of an index
            log.warning("no file is skipped: %s", error)
            return tasks, f"no file is skipped: {first_line(error)}"
        kept = [task for task in tasks if _identity(task) not in pruned or self._counts(task)]
        return kept, None

    def _reading(self, bound: BooleanExpression) -> Reading:
        """Describe how the rows are read that the bound filter is evaluated on."""
        return Reading.of(
            self.table_metadata,
            selected=self.projection().field_ids,
            case_sensitive=self.case_sensitive,
        )

    def _prune_by_tests(self, reading: Reading) -> set[Identity]:
        """Find the files with no row for the tests and the predicates of engines.

        Both apply to rows as PyIceberg returns them, in the schema of the version that is read.
        """
        asked = (*(test.predicate for test in self.tests), *self._engine_predicates)
        columns = self._columns() if asked else Columns(())
        uncertain = {
            column.name
            for column in columns.values()
            if column.physical.backfilled and column.physical.field_id in reading.partitioned
        }

        def certain(leaf: Leaf) -> Predicate:
            # A leaf on tuples has the identity of a multi-column index, which no column has.
            if leaf.column in uncertain or (uncertain and leaf.column not in columns):
                return Unknown(f"{leaf.column}, a partition column with a default")
            return leaf

        gone: set[Identity] = set()
        for predicate in asked:
            gone |= self._find_prunable(map_leaves(predicate, certain), columns)
        return gone

    def _columns(self) -> Columns:
        schema = self.update(selected_fields=("*",)).projection()
        read = self.table_metadata.model_copy(update={"current_schema_id": schema.schema_id})
        return parse_metadata(read).columns()

    def _counts(self, task: FileScanTask) -> bool:
        """Return whether `count` uses a file's row count in the metadata, given its partition."""
        if self.tests or self._engine_predicates:
            return False
        planned_here = not self._should_use_server_side_planning()
        return planned_here and task.residual == AlwaysTrue()


def _identity(task: FileScanTask) -> Identity:
    return task.file.file_path, task.file.file_size_in_bytes, task.file.record_count
