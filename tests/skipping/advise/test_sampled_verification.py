"""Files that were pruned, read again: wrong is what holds a match, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from providers import And, Compare, In, IsNull, Or, Predicate, StartsWith, Unknown
from providers.predicate import map_leaves
from skipping.advise.sampled_verification import Verification, verify_files
from skipping.indexing.definitions import number_columns
from skipping.lookup.binding import Binding
from skipping.model.definition import Definition, TableId
from skipping.parser.parse import parse
from skipping.parser.statements import Create
from skipping.stores import IDENTITY
from skipping.tables import Columns, PhysicalColumn, TableColumn

COLUMNS = Columns(
    [
        TableColumn(name, name, type, PhysicalColumn((name,)))
        for name, type in (("n", "bigint"), ("s", "string"))
    ]
)


@pytest.fixture
def files(tmp_path: Path) -> pa.Table:
    """Ten files: file i has n = 10 i ... 10 i + 9, and s = 'f<i>' in all rows but a null."""
    rows = []
    for i in range(10):
        path = tmp_path / f"{i}.parquet"
        s = [None if i == 7 and k == 0 else f"f{i}" for k in range(10)]
        pq.write_table(pa.table({"n": range(10 * i, 10 * i + 10), "s": s}), path)
        rows.append({"ordinal": i, "path": f"file:{path}", "size": path.stat().st_size})
    return pa.Table.from_pylist(rows, IDENTITY)


def check(files: pa.Table, predicate: Predicate, columns: Columns = COLUMNS) -> Verification:
    # Kinds do not matter: what they keep is not used.
    statement = parse("CREATE SKIPPING INDEX ON t (n MIN_MAX, s BLOOM_FILTER, (n, s) VALUE_LIST)")
    assert isinstance(statement, Create)
    indexed = number_columns(statement.columns, COLUMNS, ())
    definition = Definition("i", TableId("delta", "", ""), "t", indexed)
    bound = Binding(COLUMNS)
    asked = map_leaves(predicate, bound.leaf)
    return verify_files(files, definition, columns, asked, bound.columns, dated=False)


def numbers(found: Verification) -> list[int]:
    return sorted(int(Path(path).stem) for path in found.wrong)


@pytest.mark.parametrize(
    ("predicate", "wrong"),
    [
        (Compare("n", "=", 35), [3]),
        (Compare("n", "=", 35_000), []),
        (Compare("n", "<", 20), [0, 1]),
        (And((Compare("n", ">", 50), Compare("s", "=", "f8"))), [8]),
        (And((Compare("n", ">", 90), Compare("s", "=", "f8"))), []),
        (And((Compare("n", "=", 71), Compare("s", "=", "f7"))), [7]),
        (And((Compare("n", "=", 70), Compare("s", "=", "f7"))), []),  # no row has both
        (Or((Compare("n", "=", 5), StartsWith("s", "f9"))), [0, 9]),
        (IsNull("s"), [7]),
        (In.of("s", pa.array(["f2", "f4", "x"])), [2, 4]),
        (And((Compare("n", "=", 35), Unknown("f(x)"))), [3]),
        (Or((Compare("n", "=", 35), Unknown("f(x)"))), []),
    ],
)
def test_what_holds_a_match_is_wrong(
    files: pa.Table, predicate: Predicate, wrong: list[int]
) -> None:
    found = check(files, predicate)
    assert numbers(found) == wrong
    if "Unknown" not in repr(predicate):
        assert found.files == 10


def test_what_cannot_be_read_is_passed_over(files: pa.Table) -> None:
    paths = [Path(path.removeprefix("file:")) for path in files["path"].to_pylist()]
    paths[3].unlink()
    paths[4].write_bytes(b"garbage")
    found = check(files, Compare("n", ">=", 0))
    assert found.files == 8
    assert numbers(found) == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_column_that_is_gone_leaves_nothing_to_check(files: pa.Table) -> None:
    """Without it a disproof by it could not be found again, and every file would look wrong."""
    left = Columns([COLUMNS["s"]])
    predicate = And((Compare("n", "=", 3), Compare("s", "=", "f8")))
    assert check(files, predicate, left) == Verification(0, ())
    assert check(files.slice(0, 0), Compare("n", "=", 3)) == Verification(0, ())
