"""A composite is compared with the best index types of its columns, and with the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipping.advise.analyze import list_kinds
from skipping.advise.baseline import ColumnKinds
from skipping.advise.history import VALUES, RecordedPredicate
from skipping.advise.recommend import ColumnAdvice, advise, best_works, recommend
from skipping.advise.sample import Sample, measure_file
from skipping.tables import PhysicalColumn, TableColumn
from skipping.tables.composites import combine

pytestmark = pytest.mark.nightly

N = 24
A, B, OWN = (
    TableColumn(name, name, "bigint", PhysicalColumn((name,))) for name in ("a", "my b", "own")
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Every file has all of `a` and all of `my b`, and of (a, my b) 24 that no other has; `own` are
    values that no other file has."""
    folder = tmp_path_factory.mktemp("together")
    made: list[dict[str, object]] = []
    for i in range(N):
        path = folder / f"{i}.parquet"
        n = np.arange(N)
        pq.write_table(pa.table({"a": n, "my b": (n + i) % N, "own": n + N * i}), path)
        made.append({"file": i, "path": f"file:{path}", "size": path.stat().st_size, "stamp": None})
    return made


def measure(column: TableColumn, files: Sequence[dict[str, object]]) -> Sample:
    works = list_kinds(column, ())
    found = [measure_file(file, works) for file in files]
    rows = [pa.ipc.open_stream(blob).read_all() for blob in found if blob is not None]
    return Sample(tuple(works), pa.concat_tables(rows).combine_chunks(), found.count(None))


def advice(
    files: Sequence[dict[str, object]],
    *columns: TableColumn,
    asked: Sequence[RecordedPredicate] = (),
) -> ColumnAdvice:
    tuples = measure(combine(columns), files)
    samples = [measure(column, files) for column in columns]
    alone = best_works([(advise(sample, N), sample) for sample in samples])
    (found,) = recommend([advise(tuples, N, asked, ColumnKinds(tuples, N, alone))], N, 1e9)
    return found


def asked(opened: int, keys: float = 1.0) -> RecordedPredicate:
    """Ten scans."""
    return RecordedPredicate(
        "(a, my b) IN (?)", "", "", False, VALUES, 10, opened, 1_000, keys, ("a", "my b")
    )


def test_tuples_that_only_a_composite_tells_apart(files: list[dict[str, object]]) -> None:
    found = advice(files, A, B, asked=[asked(10 * N)])
    assert found.advised is not None
    assert (found.sql, found.advised.spelling) == ("(a, `my b`)", "BLOOM_FILTER")
    assert found.bounds == (N, N, N)
    (listed,) = [kind for kind in found.kinds if kind.spelling == "VALUE_LIST"]
    assert listed.kept[0] == pytest.approx(1)
    assert listed.kept[1] == pytest.approx(8.5, abs=1.5)  # ten draws of 24 files
    assert listed.past_scans == 10
    assert listed.saved_files == pytest.approx(10 * (N - 1))
    assert listed.saved_bytes == pytest.approx(1_000 * (N - 1) / N)
    assert listed.bytes > N * 16  # tuples of two numbers
    assert {kind.spelling for kind in found.kinds} == {"VALUE_LIST", "BLOOM_FILTER"}
    assert (found.clustering, found.sorted) == (None, ())
    assert "the best index types of its columns 24 and 24" in found.reason
    assert "(a, my b) IN (?) had no index 10 times" in found.reason


def test_none_where_a_column_alone_keeps_no_more(files: list[dict[str, object]]) -> None:
    found = advice(files, A, OWN, asked=[asked(10 * N)])
    assert found.bounds == pytest.approx(found.kinds[-1].kept)
    assert found.advised is None
    assert all(kind.saved_files == pytest.approx(0, abs=10) for kind in found.kinds)
    assert "the best index types of its columns keep 1 for 1 key" in found.reason


def test_what_its_columns_would_have_saved_is_not_counted(files: list[dict[str, object]]) -> None:
    """Of three columns one leaves a file in six, so of 24 files that were opened 20 are its own."""
    sixth = TableColumn("sixth", "sixth", "bigint", PhysicalColumn(("sixth",)))
    made = []
    for file in files:
        path = Path(str(file["path"]).removeprefix("file:"))
        with_sixth = path.with_name(f"sixth{path.name}")
        number = int(path.stem)
        values = pa.array([number % 6] * N)
        pq.write_table(pq.read_table(path).append_column("sixth", values), with_sixth)
        size = with_sixth.stat().st_size
        made.append({**file, "path": f"file:{with_sixth}", "size": size})
    found = advice(made, A, B, sixth, asked=[asked(10 * N)])
    assert found.advised is not None
    assert found.bounds[0] == pytest.approx(4)
    assert found.advised.saved_files == pytest.approx(10 * (4 - 1), rel=0.1)
    # With an index of that column there were no more to begin with.
    found = advice(made, A, B, sixth, asked=[asked(10 * 4)])
    assert found.advised is not None
    assert found.advised.saved_files == pytest.approx(10 * (4 - 1), rel=0.1)


def test_a_part_of_the_files_tells_of_all(files: list[dict[str, object]]) -> None:
    some = [files[i] for i in np.random.default_rng(2).permutation(N)[:10]]
    found = advice(some, A, B)
    assert found.advised is not None
    assert found.advised.kept[0] == pytest.approx(1, abs=0.5)
    assert found.bounds[0] == pytest.approx(N)


def test_a_file_that_one_column_was_not_read_in_is_kept(files: list[dict[str, object]]) -> None:
    tuples = measure(combine((A, OWN)), files)
    own, less = measure(OWN, files), measure(OWN, files[: N // 2])
    (work,) = [w for w in own.work if w.indexed.kind == "MIN_MAX"]
    (first,) = [w for w in measure(A, files).work if w.indexed.kind == "MIN_MAX"]
    alone = [(first, measure(A, files)), (work, own)]
    whole = advise(tuples, N, (), ColumnKinds(tuples, N, alone)).bounds[0]
    part = advise(tuples, N, (), ColumnKinds(tuples, N, [alone[0], (work, less)])).bounds[0]
    assert whole == pytest.approx(1)
    assert part == pytest.approx(1 + N / 2, abs=1)
