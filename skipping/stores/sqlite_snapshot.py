"""What is read of an SQLite store within one transaction, and the tests asked of it.

SCALAR fields are read into Arrow for the one evaluator there is, BYTES row by row: those of many
files are more than should be in memory. TERMS tests go through the inverted index: what counts is
how many of a file's terms are among those asked for.

    Contains(keys), ContainsRange     hits > 0
    ContainsOther(keys)               hits < terms of the file

so not even "some other term" reads more of the index than its keys.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import StoreError
from providers.evaluate import disproved_rows, holds
from providers.index_predicate import (
    BitsSet,
    Compare,
    Contains,
    ContainsOther,
    ContainsRange,
    Escapes,
    Overlaps,
    Test,
)
from skipping.stores.entries import answerable, is_scalar
from skipping.stores.sqlite_entries import (
    Numbers,
    fields_of,
    from_sql,
    ordinals_of,
    to_sql,
    unpacked,
)

__all__ = ["Snapshot"]

_BATCH = 4_096


class Snapshot:
    """The fields of one index within one read transaction; each is fetched once."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        index: int,
        *,
        below: int = 2**31,
        deadline: float = math.inf,
    ) -> None:
        self._connection = connection
        self._deadline = deadline
        self._fields = fields_of(connection, index)
        self._types = {name: type for name, (_, type) in self._fields.items()}
        self._below = below
        self._known: dict[str, Numbers] = {}
        self._columns: dict[str, pa.Array] = {}

    def column(self, name: str, ordinals: Numbers) -> pa.Array:
        """A SCALAR field or known flag of these ordinals (sorted); nulls where nobody wrote it."""
        if name not in self._fields:
            return pa.nulls(len(ordinals))
        field, type = self._fields[name]
        if not is_scalar(type):
            raise StoreError(f"{name} is no SCALAR field: a catalogue has only those")
        return self._scalars(field, type, ordinals)

    def _scalars(self, field: int, type: pa.DataType, ordinals: Numbers) -> pa.Array:
        if not len(ordinals):
            return pa.array([], type)
        rows = self._connection.execute(
            "SELECT ordinal, value FROM scalar WHERE field = ? AND ordinal BETWEEN ? AND ?"
            " ORDER BY ordinal",
            (field, int(ordinals[0]), int(ordinals[-1])),
        ).fetchall()
        if not rows:
            return pa.nulls(len(ordinals), type)
        there, values = zip(*rows, strict=True)
        numbers = np.array(there, np.int64)
        at = np.searchsorted(numbers, ordinals)
        missing = np.append(numbers, -1)[at] != ordinals
        return from_sql(values, type).take(pa.array(at, mask=missing))

    def disproved(self, test: Test) -> BitMap:
        """The ordinals below the bound that the test disproves; none if it cannot be answered."""
        self._in_time()
        if not answerable(test, self._types):
            return BitMap()
        ordinals = self._known_ordinals(test.sketch)
        if isinstance(test, Contains | ContainsOther | ContainsRange):
            rows = ~self._terms_hold(test, ordinals)
        elif isinstance(test, BitsSet):
            rows = ~self._bits_hold(test, ordinals)
        else:
            rows = disproved_rows(test, self._table(test, ordinals))
        self._in_time()
        return BitMap(ordinals[rows])

    def _in_time(self) -> None:
        # SQLite is interrupted; this is for the work on Arrow's side.
        if time.monotonic() >= self._deadline:
            raise StoreError("the store did not answer in time")

    def _known_ordinals(self, sketch: str) -> Numbers:
        if sketch not in self._known:
            field, _ = self._fields[f"{sketch}_known"]
            self._known[sketch] = ordinals_of(
                self._connection,
                "SELECT ordinal FROM scalar WHERE field = ? AND ordinal < ? AND value = 1"
                " ORDER BY ordinal",
                (field, self._below),
            )
        return self._known[sketch]

    def _table(self, test: Compare | Overlaps | Escapes, ordinals: Numbers) -> pa.Table:
        columns = {f"{test.sketch}_known": pa.array(np.ones(len(ordinals), np.bool_))}
        for field in (test.field,) if isinstance(test, Compare) else (test.low, test.high):
            name = f"{test.sketch}_{field}"
            if name not in self._columns:
                self._columns[name] = self.column(name, ordinals)
            columns[name] = self._columns[name]
        return pa.table(columns)

    def _bits_hold(self, test: BitsSet, ordinals: Numbers) -> npt.NDArray[np.bool_]:
        names = [f"{test.sketch}_{name}" for name in (test.field, test.layout)]
        field, _ = self._fields[names[0]]
        layouts = self.column(names[1], ordinals)
        held = np.ones(len(ordinals), np.bool_)
        for row in self._connection.execute(
            "SELECT ordinals, ends, data FROM bytes WHERE field = ?", (field,)
        ):
            self._in_time()
            files, values = unpacked(*row)
            at = np.searchsorted(ordinals, files)
            asked = np.append(ordinals, -1)[at] == files
            at = at[asked]
            if len(at):
                values = values if len(at) == len(values) else values.filter(pa.array(asked))
                columns = [values, layouts.take(pa.array(at))]
                held[at] = holds(test, pa.table(columns, names))
        return held

    def _terms_hold(
        self, test: Contains | ContainsOther | ContainsRange, ordinals: Numbers
    ) -> npt.NDArray[np.bool_]:
        field, _ = self._fields[f"{test.sketch}_{test.field}"]
        if isinstance(test, Contains):
            held: npt.NDArray[np.bool_] = self._hits(self._of(field, test.keys), ordinals) > 0
            return held
        if isinstance(test, ContainsRange) and (test.low is not None or test.high is not None):
            held = self._hits(self._within(field, test), ordinals) > 0
            return held
        terms = self._scalars(field, pa.int64(), ordinals)
        counts = pc.fill_null(terms, 0).to_numpy(zero_copy_only=False)
        if isinstance(test, ContainsRange):
            held = counts > 0
        else:
            held = counts > self._hits(self._of(field, test.keys), ordinals)
        return held

    def _hits(self, rows: Iterable[tuple[bytes]], ordinals: Numbers) -> Numbers:
        """How many of the rows name each ordinal."""
        hits = np.zeros(len(ordinals), np.int64)
        rows = iter(rows)
        while batch := list(islice(rows, _BATCH)):
            self._in_time()
            found = np.frombuffer(b"".join([row[0] for row in batch]), "<u4")
            at = np.searchsorted(ordinals, found)
            at = at[np.append(ordinals, -1)[at] == found]
            hits += np.bincount(at, minlength=len(ordinals))
        return hits

    def _of(self, field: int, keys: pa.Array) -> Iterable[tuple[bytes]]:
        # A key twice would count its files twice.
        values = to_sql(pc.unique(keys.drop_null()))
        if self._has_fewer_terms(field, len(values)):
            wanted = set(values)
            terms = self._connection.execute(
                "SELECT value, ordinals FROM terms WHERE field = ?", (field,)
            )
            return ((ordinals,) for value, ordinals in terms if value in wanted)
        self._connection.execute("CREATE TEMP TABLE IF NOT EXISTS keys (value)")
        self._connection.execute("DELETE FROM temp.keys")
        self._connection.executemany(
            "INSERT INTO temp.keys VALUES (?)", ((value,) for value in values)
        )
        return self._connection.execute(
            "SELECT t.ordinals FROM temp.keys k"
            " CROSS JOIN terms t ON t.field = ? AND t.value = k.value",
            (field,),
        )

    def _has_fewer_terms(self, field: int, keys: int) -> bool:
        """Whether reading all terms of a field takes less than looking up so many keys."""
        if keys < _BATCH:
            return False
        ((terms,),) = self._connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM terms WHERE field = ? LIMIT ?)", (field, keys)
        )
        return bool(terms < keys)

    def _within(self, field: int, test: ContainsRange) -> sqlite3.Cursor:
        sql = "SELECT ordinals FROM terms WHERE field = ?"
        values: list[int | bytes] = [field]
        for bound, op in (
            (test.low, ">=" if test.includes_low else ">"),
            (test.high, "<=" if test.includes_high else "<"),
        ):
            if bound is not None:
                sql += f" AND value {op} ?"
                values.append(bound.encode() if isinstance(bound, str) else bound)
        return self._connection.execute(sql, values)
