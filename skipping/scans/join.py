"""Join a table with a dimension, whose keys prune the table's files before any is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.errors import DefinitionError
from providers.keys import Keys, of_pandas
from providers.predicate import And, In, Predicate
from providers.values import encode
from skipping.lookup.composites import joined_tuples
from skipping.lookup.query import IndexQuery
from skipping.parser.literals import split_parts
from skipping.scans.base import take_rows
from skipping.scans.engines import EngineScan
from skipping.scans.open import open_scan
from skipping.scans.row_filters import leaf_values
from skipping.tables import Table, TableColumn
from skipping.tables.arrow_types import without_view

_Numbers: TypeAlias = npt.NDArray[np.int64]


def join(
    query: IndexQuery,
    table: Table,
    dimension: Any,
    on: str | Sequence[str] | Mapping[str, str],
    *,
    suffix: str,
    selected_fields: Sequence[str] = ("*",),
    limit: int | None = None,
    **options: Any,
) -> JoinScan:
    """Implement `SkippingIndex.join`; `options` are passed to the scan of the table."""
    names = {on: on} if isinstance(on, str) else on
    pairs = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    rows = as_table(dimension, keys=pairs.values())
    for name in pairs.values():
        if name not in rows.column_names:
            there = ", ".join(rows.column_names)
            raise DefinitionError(f"the dimension has no column {name}: it has {there}")
    if not pairs:
        raise DefinitionError("`on` is empty: name at least one column to join on")
    given = {name: rows[other] for name, other in pairs.items()}
    fact = open_scan(query, table, keys=given, **options)
    tests = fact.key_tests()
    keys = {test.name: test.keys for test in tests}
    indexed = {test.name for test in tests if isinstance(test.predicate, In)}
    known = {
        c.identity: keys[c.name] for c in fact.indexable_columns().values() if c.name in indexed
    }
    tuples = joined_tuples(query.definition, known)
    fact = fact.project_and_prune(fact.arrow_schema.names, And(tuples))
    drop = set(pairs.values())
    joined = JoinScan.of(fact, rows, keys, drop=drop, suffix=suffix, limit=limit)
    return joined if "*" in selected_fields else joined.select(*selected_fields)


def as_table(given: Any, keys: Collection[str] = ()) -> pa.Table:
    """Convert a frame of Polars or pandas, a relation of DuckDB, a table or a scan to Arrow.

    In a pandas frame, NaN stays NaN in the columns `keys` and becomes null in the others. Raises
    TypeError for anything else, DefinitionError for two columns with the same name.
    """
    table = _as_table(given, keys)
    _require_unique(table.column_names)
    plain = pa.schema([f.with_type(without_view(f.type)) for f in table.schema])
    return table if plain.equals(table.schema) else table.cast(plain)


def _require_unique(names: Iterable[Any]) -> None:
    counts = Counter(map(str, names))
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise DefinitionError(f"the dimension has two columns {', '.join(twice)}: rename one")


def _as_table(given: Any, keys: Collection[str]) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    if type(given).__module__.partition(".")[0] == "pandas" and getattr(given, "ndim", 0) == 2:
        _require_unique(given.columns)
        table = pa.Table.from_pandas(given, preserve_index=False)
        for place, name in enumerate(table.column_names):
            if name in keys:
                table = table.set_column(place, name, of_pandas(given.iloc[:, place]))
        return table
    if hasattr(given, "collect") and not hasattr(given, "__arrow_c_stream__"):
        given = given.collect()  # a LazyFrame
    if type(given).__module__.partition(".")[0] == "polars" and hasattr(given, "to_arrow"):
        # As an Arrow stream, Polars exports text as views, which Arrow cannot filter.
        table = given.to_arrow()
        if isinstance(table, pa.Table):
            return table
        given = table
    if hasattr(given, "to_arrow_table") and not hasattr(given, "__arrow_c_stream__"):
        return given.to_arrow_table()
    if not isinstance(given, Mapping | pa.RecordBatch) and not hasattr(given, "__arrow_c_stream__"):
        raise TypeError(f"the dimension is a {type(given).__name__}: give a table or a frame")
    return pa.table(given)


@dataclass(frozen=True, repr=False)
class JoinScan(EngineScan):
    """An inner join of a scan with a dimension.

    Its columns are those of the table, then those of the dimension without its keys. `names` are
    the selected columns.
    """

    fact: Any = field(repr=False)
    dimension: pa.Table = field(repr=False)
    keys: Mapping[str, Keys] = field(repr=False)
    names: tuple[str, ...]
    limit: int | None = None

    @classmethod
    def of(
        cls,
        fact: Any,
        dimension: pa.Table,
        keys: Mapping[str, Keys],
        *,
        drop: set[str],
        suffix: str,
        limit: int | None = None,
    ) -> JoinScan:
        """Join a scan that returns all columns with the dimension, without the latter's `drop`.

        A dimension column gets the suffix if the table has a column of the same name. Raises
        DefinitionError if that name is taken, too, or if the limit is negative.
        """
        if limit is not None and limit < 0:
            raise DefinitionError(f"limit is {limit}: give a number of rows, 0 or more")
        there = fact.arrow_schema.names
        kept = dimension.select([n for n in dimension.column_names if n not in drop])
        named = [f"{name}{suffix}" if name in there else name for name in kept.column_names]
        names = (*there, *named)
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise DefinitionError(f"the join has two columns {', '.join(twice)}: rename one")
        return cls(fact, kept.rename_columns(named), keys, names, limit)

    def __repr__(self) -> str:
        by = ", ".join(self.keys)
        return f"<JoinScan: {self.fact!r} with {len(self.dimension):,} rows by {by}>"

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the rows."""
        fact, dimension = self.fact.arrow_schema, self.dimension.schema
        return pa.schema(
            [(fact if name in fact.names else dimension).field(name) for name in self.names]
        )

    def select(self, *names: str) -> JoinScan:
        """Return the join with these columns only; raise DefinitionError for an unknown one."""
        for name in names:
            if name not in self.names:
                raise DefinitionError(f"no column {name}: there are {', '.join(self.names)}")
        return replace(self, names=names)

    def indexable_columns(self) -> Mapping[str, TableColumn]:
        """See `Scan`: the dimension's columns have no index."""
        found: Mapping[str, TableColumn] = self.fact.indexable_columns()
        return found

    def project_and_prune(self, names: Sequence[str], predicate: Predicate) -> JoinScan:
        """See `Scan`."""
        pruning = predicate if self.limit is None else And(())  # a limit counts all rows
        fact = self.fact.project_and_prune(self.fact.arrow_schema.names, pruning)
        return replace(self.select(*names), fact=fact)

    def plan_files(self) -> Any:
        """Return the table's files that can contain a row of the join, as its scan lists them."""
        return self.fact.plan_files()

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Read the rows, a few files at a time as batches are consumed."""
        rows = take_rows(self._join(), self.limit)
        return pa.RecordBatchReader.from_batches(self.arrow_schema, rows)

    def count(self) -> int:
        """Count the rows."""
        return sum(map(len, self.to_arrow_batch_reader()))

    def _join(self) -> Iterator[pa.RecordBatch]:
        schema, columns = self.arrow_schema, list(self.keys)
        of_fact = self.fact.arrow_schema.names
        # The dimension's keys are sorted, so that each batch is joined by binary search.
        tuples = _Tuples(self.keys.values())
        order = np.argsort(tuples.numbers, kind="stable")
        order = order[np.searchsorted(tuples.numbers[order], 0) :]
        ordered = tuples.numbers[order]
        wanted = dict.fromkeys([name for name in self.names if name in of_fact])
        wanted |= dict.fromkeys(split_parts(name)[0] for name in columns)
        names = [name for name in of_fact if name in wanted]
        with self.fact.select(*names).to_arrow_batch_reader() as reader:
            for batch in reader:
                table = pa.Table.from_batches([batch])
                rows = [k.positions(encode(leaf_values(table, n))) for n, k in self.keys.items()]
                found = tuples.find(rows)
                first = np.searchsorted(ordered, found, "left")
                count = np.where(found < 0, 0, np.searchsorted(ordered, found, "right") - first)
                left = np.repeat(np.arange(len(found)), count)
                offsets = np.arange(len(left)) - np.repeat(np.cumsum(count) - count, count)
                right = order[np.repeat(first, count) + offsets]
                taken = table.take(pa.array(left)), self.dimension.take(pa.array(right))
                yield from pa.table(
                    [taken[name not in of_fact][name] for name in self.names], schema=schema
                ).to_batches()


class _Tuples:
    """The distinct key tuples of a dimension, each as one number.

    Each further column renumbers the tuples, because the product of the columns' positions would
    exceed 64 bits for four columns with 60,000 values each.
    """

    def __init__(self, keys: Iterable[Keys]) -> None:
        first, *others = keys
        self._steps: list[tuple[int, _Numbers]] = []
        self.numbers = first.rows
        """The number of each row of the dimension; -1 where a key is null."""
        for each in others:
            paired = _pair(self.numbers, each.rows, len(each.values))
            known = np.unique(paired[paired >= 0])
            self._steps.append((len(each.values), known))
            self.numbers = _find_places(paired, known)

    def find(self, positions: Sequence[_Numbers]) -> _Numbers:
        """Return the numbers of tuples; -1 for one that the dimension lacks.

        `positions` has one array for each column: the positions of its values.
        """
        found = positions[0]
        for column, (size, known) in zip(positions[1:], self._steps, strict=True):
            found = _find_places(_pair(found, column, size), known)
        return found


def _pair(left: _Numbers, right: _Numbers, size: int) -> _Numbers:
    return np.where((left < 0) | (right < 0), -1, left * size + right)


def _find_places(numbers: _Numbers, known: _Numbers) -> _Numbers:
    if not len(known):
        return np.full(len(numbers), -1, np.int64)
    places = np.searchsorted(known, numbers)
    places[places == len(known)] = 0
    return np.where(known[places] == numbers, places, -1)
