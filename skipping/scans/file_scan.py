"""Scan a Delta table or Parquet folder without Spark: matching rows, from files that can match.

Arrow reads the rows (`TableSnapshot`). The scan then evaluates the filter as Spark would: NaN is
the largest value and equals itself, -0.0 equals 0.0, and null is neither true nor false. A column
that cannot be read exactly raises a TableError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from providers.errors import DefinitionError, TableError, first_line
from providers.predicate import And, Predicate, leaves
from providers.rows import matching_rows
from providers.values import arrow_type, domain_of, encode
from skipping.lookup.query import IndexQuery
from skipping.parser.literals import split_parts
from skipping.scans.base import take_rows
from skipping.scans.engines import EngineScan
from skipping.scans.row_filters import (
    RowTest,
    apply_tests,
    find_prunable,
    leaf_values,
    row_tests,
    top_level,
)
from skipping.scans.verification import Verification
from skipping.stores import Identity, identities
from skipping.tables import TableColumn, TableSnapshot
from skipping.tables.filesystem import Locate

log = logging.getLogger("skipping")

_AT_ONCE = 8
"""Files that are read at a time."""


@dataclass(frozen=True, repr=False)
class FileScan(EngineScan):
    """The matching rows of one version of a table, and the `files` (FILES) that can contain one.

    Its methods are named like those of PyIceberg's scans.
    """

    live: TableSnapshot
    files: pa.Table
    predicate: Predicate
    locate: Locate = field(repr=False)
    index: IndexQuery = field(repr=False)
    tests: tuple[RowTest, ...] = ()
    selected_fields: tuple[str, ...] = ("*",)
    limit: int | None = None
    note: str | None = None
    total: int = 0

    @classmethod
    def of(
        cls,
        live: TableSnapshot,
        index: IndexQuery,
        locate: Locate,
        *,
        row_filter: Any = "",
        keys: Mapping[str, Any] | None = None,
        selected_fields: Sequence[str] = ("*",),
        limit: int | None = None,
    ) -> FileScan:
        """Scan a version without the files that the index prunes; if the lookup fails, scan all.

        Raises StatementError, DefinitionError or TypeError for a filter or keys that do not fit the
        table.
        """
        if limit is not None and limit < 0:
            raise DefinitionError(f"limit is {limit}: give a number of rows, 0 or more")
        rest, tests = row_tests(row_filter, keys, live.columns, live.arrow_schema)
        given = index.bind(rest, live.columns) if rest != "" else And(())
        files = live.files()
        scan = cls(live, files, given, locate, index, tests, limit=limit, total=len(files))
        scan = scan.select(*selected_fields)
        if rest != "":
            scan = scan._prune(lambda: index.find_prunable(rest, live.columns))
        return scan._prune(lambda: find_prunable(index, tests, live.columns)) if tests else scan

    def __repr__(self) -> str:
        about = [f"{len(self.files):,} of {self.total:,} files", ", ".join(self.selected_fields)]
        about += [] if self.limit is None else [f"limit {self.limit:,}"]
        about += [] if self.note is None else [self.note]
        return f"<FileScan: {'; '.join(about)}>"

    def _prune(self, find: Callable[[], set[Identity]]) -> FileScan:
        try:
            gone = find()
            kept = [file not in gone for file in identities(self.files)]
            return replace(self, files=self.files.filter(pa.array(kept, pa.bool_())))
        except Exception as error:  # reading never fails because of an index
            log.warning("no file is skipped: %s", error)
            return replace(self, note=f"no file is skipped: {first_line(error)}")

    def project_and_prune(self, names: Sequence[str], predicate: Predicate) -> FileScan:
        """See `Scan`."""
        scan = self.select(*names)
        if predicate == And(()) or self.limit is not None:  # a limit counts all rows
            return scan
        return scan._prune(lambda: self.index.find_prunable(predicate, self.live.columns))

    def indexable_columns(self) -> Mapping[str, TableColumn]:
        """See `Scan`."""
        return top_level(self.live.columns, self.live.arrow_schema)

    def select(self, *field_names: str) -> FileScan:
        """Return the scan of these top-level columns; raise DefinitionError for an unknown one."""
        there = self.live.arrow_schema.names
        for name in field_names:
            if name not in (*there, "*"):
                raise DefinitionError(f"no column {name}: there are {', '.join(there)}")
        return replace(self, selected_fields=field_names)

    def plan_files(self) -> list[str]:
        """Return the fully qualified paths of the files that can contain a matching row."""
        paths: list[str] = self.files["path"].to_pylist()
        return paths

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.arrow_schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the rows."""
        whole = self.live.arrow_schema
        if "*" in self.selected_fields:
            return whole
        return pa.schema([whole.field(name) for name in self.selected_fields])

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Read the rows, a few files at a time as batches are consumed."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def count(self) -> int:
        """Count the matching rows."""
        return sum(len(batch) for batch in self._narrow()._batches())

    def verify(self) -> Verification:
        """Read the pruned files, too; raise WrongAnswer with the names of those with a match.

        It reads the filter's columns of every file of the version, and ignores the limit.
        """
        scan = replace(self._narrow(), limit=None)
        _ = scan.live.vectors, scan._filtered
        opened = set(self.plan_files())
        skipped = [p for p in self.live.files()["path"].to_pylist() if p not in opened]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            counts = pool.map(lambda path: len(scan._rows(path)), skipped)
            wrong = [found for found in zip(skipped, counts, strict=True) if found[1]]
        return Verification.of(scan.count(), len(opened), len(skipped), wrong, self.note)

    def _narrow(self) -> FileScan:
        """Return this scan with the filter's columns only, or with one column to count rows."""
        named = dict.fromkeys([*map(_top, self._filtered.values()), *self._tested])
        return replace(
            self, selected_fields=tuple(named) or tuple(self.live.arrow_schema.names[:1])
        )

    @property
    def _tested(self) -> Iterator[str]:
        return (name for test in self.tests for name in test.columns)

    @cached_property
    def _filtered(self) -> Mapping[str, TableColumn]:
        by_identity = {column.identity: column for column in self.live.columns.values()}
        return {leaf.column: by_identity[leaf.column] for leaf in leaves(self.predicate)}

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return take_rows(self._read_files(), self.limit)

    def _read_files(self) -> Iterator[pa.RecordBatch]:
        paths = self.plan_files()
        _ = self.live.vectors, self._filtered  # compute them once, not in each thread
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for start in range(0, len(paths), _AT_ONCE):
                for rows in pool.map(self._rows, paths[start : start + _AT_ONCE]):
                    yield from rows.to_batches()

    def _rows(self, path: str) -> pa.Table:
        try:
            return self._matching(path)
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"cannot read {path}: {first_line(error)}") from error

    def _matching(self, path: str) -> pa.Table:
        filtered = map(_top, self._filtered.values())
        tops = dict.fromkeys([*self.schema.names, *filtered, *self._tested])
        whole = self.live.read(path, list(tops), self.locate)
        if (kept := self.live.vectors.get(path)) is not None:
            # Rows past the end of the deletion vector are live.
            mask = pa.concat_arrays([kept, pa.repeat(True, len(whole) - len(kept))])
            whole = whole.filter(mask)
        values = {id: _values(whole, column) for id, column in self._filtered.items()}
        found = whole.filter(matching_rows(self.predicate, values, len(whole)))
        return apply_tests(self.tests, found).select(self.schema.names)


def _values(table: pa.Table, column: TableColumn) -> pa.Array:
    values, spark = leaf_values(table, column.name), arrow_type(column.type)
    if spark is not None and domain_of(values.type) != domain_of(spark):
        values = values.cast(spark)  # a Dataset may have a partition column as text
    return encode(values)


def _top(column: TableColumn) -> str:
    return split_parts(column.name)[0]
