"""What a sample says of a table, against the table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from providers.bloom_filter import FPP
from providers.predicate import Compare, Leaf
from skipping.advise.analyze import list_kinds
from skipping.advise.baseline import TableItself
from skipping.advise.history import RANGE, TEXT, VALUES, RecordedPredicate
from skipping.advise.recommend import ColumnAdvice, KindAdvice, advise, recommend
from skipping.advise.sample import BYTES, Sample, choose_files, measure_file
from skipping.tables import FILES, Partitioning, PhysicalColumn, TableColumn

pytestmark = pytest.mark.nightly

N = 120
ROWS = 200


def columns() -> dict[str, tuple[str, list[pa.Array]]]:
    """Columns that lie in a way of their own: name, Spark type, and the values of each file."""
    rng = np.random.default_rng(3)
    return {
        # File i holds its own 200 numbers.
        "clustered": ("bigint", [pa.array(range(i * ROWS, (i + 1) * ROWS)) for i in range(N)]),
        # Each of 400 texts is in 3 files, which are far apart.
        "scattered": (
            "string",
            [pa.array([f"k{i % 40 * 10 + n}" for n in range(10)] * 20) for i in range(N)],
        ),
        # One of four in every row.
        "everywhere": ("int", [pa.array(rng.integers(0, 4, ROWS), pa.int32()) for _ in range(N)]),
        # No value twice, in no order.
        "unique": ("bigint", list(map(pa.array, rng.permutation(N * ROWS).reshape(N, ROWS)))),
        "nothing": ("date", [pa.nulls(ROWS, pa.date32())] * N),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("advice")
    made = []
    for i in range(N):
        path = folder / f"{i}.parquet"
        pq.write_table(pa.table({name: values[i] for name, (_, values) in columns().items()}), path)
        made.append({"file": i, "path": f"file:{path}", "size": path.stat().st_size, "stamp": None})
    return made


def advice(
    files: Sequence[Mapping[str, object]], name: str, type: str, bounded: int | None = None
) -> ColumnAdvice:
    works = list_kinds(TableColumn(name, name, type, PhysicalColumn((name,)), bounded=bounded), ())
    found = [measure_file(file, works) for file in files]
    rows = [pa.ipc.open_stream(blob).read_all() for blob in found if blob is not None]
    sample = Sample(tuple(works), pa.concat_tables(rows).combine_chunks(), found.count(None))
    return choose_types(advise(sample, N))


def choose_types(column: ColumnAdvice, budget: float = 1e9) -> ColumnAdvice:
    """The column with the index types that are recommended within a budget."""
    (found,) = recommend([column], N, budget)
    return found


def kinds(advised: ColumnAdvice) -> dict[str, KindAdvice]:
    return {kind.spelling: kind for kind in advised.kinds}


@pytest.fixture(scope="module")
def found(files: list[dict[str, object]]) -> dict[str, ColumnAdvice]:
    return {name: advice(files, name, type) for name, (type, _) in columns().items()}


class TestTheWholeTable:
    @pytest.mark.parametrize(
        ("name", "kind", "one"),
        [
            ("clustered", "MIN_MAX", 1),
            ("clustered", "VALUE_LIST", 1),
            ("scattered", "VALUE_LIST", 3),
            ("everywhere", "VALUE_LIST", N),
            ("everywhere", "MIN_MAX", N),
            ("unique", "VALUE_LIST", 1),
        ],
    )
    def test_files_for_one_key_are_those_that_hold_it(
        self, found: dict[str, ColumnAdvice], name: str, kind: str, one: int
    ) -> None:
        assert kinds(found[name])[kind].kept[0] == pytest.approx(one)

    def test_more_keys_keep_more(self, found: dict[str, ColumnAdvice]) -> None:
        for column in ("clustered", "scattered", "unique"):
            one, ten, hundred = kinds(found[column])["VALUE_LIST"].kept
            assert one < ten < hundred <= N
        assert kinds(found["scattered"])["VALUE_LIST"].kept[1] <= 30
        # The false positives of a hundred keys leave few more files.
        listed, filtered = (
            kinds(found["clustered"])[kind].kept[2] for kind in ("VALUE_LIST", "BLOOM_FILTER")
        )
        assert listed <= filtered <= 1.1 * listed

    def test_a_filter_keeps_what_its_rate_says(self, found: dict[str, ColumnAdvice]) -> None:
        one = kinds(found["unique"])["BLOOM_FILTER"].kept[0]
        assert 1 <= one <= 1 + 4 * FPP * N

    def test_how_it_lies(self, found: dict[str, ColumnAdvice]) -> None:
        depths = {name: c.clustering.depth for name, c in found.items() if c.clustering}
        assert depths["clustered"] == 1
        assert depths["everywhere"] == depths["unique"] == N
        assert found["clustered"].distinct == (ROWS, ROWS)
        assert found["scattered"].distinct == (10, 10)

    def test_what_sorting_would_do(self, found: dict[str, ColumnAdvice]) -> None:
        assert found["clustered"].sorted[0] == pytest.approx(1, abs=0.3)
        assert found["unique"].sorted[0] == pytest.approx(1, abs=0.3)
        assert found["unique"].sorted[1] == pytest.approx(10, abs=2)
        # A quarter of the rows each.
        assert found["everywhere"].sorted[0] == pytest.approx(N / 4, abs=3)

    def test_what_it_costs(self, found: dict[str, ColumnAdvice]) -> None:
        assert kinds(found["clustered"])["MIN_MAX"].bytes == 24
        list_of_texts = kinds(found["scattered"])["VALUE_LIST"].bytes
        assert 10 * len("k1") < list_of_texts < 200
        assert kinds(found["unique"])["VALUE_LIST"].bytes > ROWS * 8
        for column in found.values():
            assert all(0 < kind.seconds < 5 for kind in column.kinds)

    def test_what_is_advised(self, found: dict[str, ColumnAdvice]) -> None:
        chosen = {name: c.advised and c.advised.spelling for name, c in found.items()}
        assert chosen["clustered"] == "MIN_MAX"
        assert chosen["scattered"] == "MIN_MAX"  # a list saves 5 % more, with 8 times the bytes
        assert chosen["everywhere"] is None
        assert (chosen["unique"] or "").startswith("BLOOM_FILTER")  # a list is much larger
        assert chosen["nothing"] is None
        assert "NGRAM" not in kinds(found["scattered"])  # which is text, and asked for its values
        assert found["nothing"].reason == "it has only nulls"
        assert re.search("if sorted by it, (29|3[0-2]) for 1 key", found["everywhere"].reason)
        assert re.search("keeps 1 for 1 key and (9|10) for 10 keys", found["clustered"].reason)


class TestBounds:
    """What the table's own log would keep, if it has bounds of the column."""

    def test_no_kind_is_advised_that_keeps_no_fewer(self, files: list[dict[str, object]]) -> None:
        column = advice(files, "clustered", "bigint", bounded=32)
        assert column.bounds == pytest.approx(kinds(column)["MIN_MAX"].kept)
        assert column.advised is None
        assert re.search(
            "the table's own bounds keep 1 for 1 key and (9|10) for 10 keys of 120 files, "
            "and no index type keeps fewer$",
            column.reason,
        )

    def test_a_kind_that_keeps_fewer_is(self, files: list[dict[str, object]]) -> None:
        column = advice(files, "scattered", "string", bounded=32)
        assert column.advised is not None
        assert column.advised.spelling == "VALUE_LIST"
        assert column.bounds == pytest.approx(kinds(column)["MIN_MAX"].kept)
        assert column.bounds[0] > 2 * column.advised.kept[0]
        assert re.search("keeps 3 for 1 key.*, the table's own bounds [0-9]+ and", column.reason)

    def test_cut_texts_keep_what_begins_alike(self, files: list[dict[str, object]]) -> None:
        whole, two, one = (
            advice(files, "scattered", "string", bounded=n).bounds for n in (32, 2, 1)
        )
        assert all(a < b for a, b in zip(whole[:1], two[:1], strict=True))
        assert set(one) == {N}

    def test_bounds_say_nothing_of_nan(self, tmp_path: Path) -> None:
        made = []
        for i in range(4):
            path = tmp_path / f"{i}.parquet"
            pq.write_table(pa.table({"v": [float("nan")]}), path)
            made.append(
                {"file": i, "path": f"file:{path}", "size": path.stat().st_size, "stamp": None}
            )
        works = list_kinds(TableColumn("v", "v", "double", PhysicalColumn(("v",)), bounded=32), ())
        rows = [pa.ipc.open_stream(measure_file(f, works) or b"").read_all() for f in made]
        assert advise(Sample(tuple(works), pa.concat_tables(rows), 0), 4).bounds == (4, 4, 4)


class TestAsked:
    """What queries asked in vain, and what a partitioned table plans to read by itself."""

    def sample(self, files: list[dict[str, object]], name: str, divided_by: str = "") -> Sample:
        type, _ = columns()[name]
        divisions = (divided_by,) if divided_by else ()
        column = TableColumn(
            name,
            name,
            type,
            PhysicalColumn((name,)),
            partitioning=Partitioning(transforms=divisions),
        )
        asked = [self.asked(name, TEXT)] if type == "string" else []
        works = list_kinds(column, (), asked)
        rows = [pa.ipc.open_stream(measure_file(f, works) or b"").read_all() for f in files]
        return Sample(tuple(works), pa.concat_tables(rows).combine_chunks(), 0)

    def asked(self, name: str, form: str, keys: float = 1.0) -> RecordedPredicate:
        """Ten scans that opened all files."""
        return RecordedPredicate(f"{name} = ?", name, name, False, form, 10, 10 * N, 1_000, keys)

    def test_what_would_have_been_saved(self, files: list[dict[str, object]]) -> None:
        sample = self.sample(files, "clustered")
        asked = [self.asked("clustered", VALUES), self.asked("clustered", RANGE)]
        found = kinds(advise(sample, N, asked))
        # One file for a value, a tenth of them for a range.
        saved = 10 * (N - 1) + 10 * (N - N / 10 - 1)
        assert found["MIN_MAX"].past_scans == 20
        assert found["MIN_MAX"].saved_files == pytest.approx(saved, rel=0.02)
        assert found["MIN_MAX"].saved_bytes == pytest.approx(1_000 * saved / (10 * N), rel=0.02)
        # It has no opinion on ranges.
        assert found["BLOOM_FILTER"].saved_files == pytest.approx(10 * (N - 2), rel=0.03)
        many = kinds(advise(sample, N, [self.asked("clustered", VALUES, 100.0)]))
        assert many["MIN_MAX"].saved_files == pytest.approx(
            10 * (N - found["MIN_MAX"].kept[2]), rel=0.01
        )

    def test_text_that_was_searched_for(self, files: list[dict[str, object]]) -> None:
        asked = [self.asked("scattered", TEXT), self.asked("scattered", VALUES)]
        advised = choose_types(advise(self.sample(files, "scattered"), N, asked))
        values, search = advised.all_advised
        assert (values.spelling, values.past_scans) == ("MIN_MAX", 10)
        assert (search.spelling, search.past_scans) == ("NGRAM", 10)
        # `k12` is part of `k120`, too.
        assert 3 <= search.kept[0] < 0.3 * N
        assert search.saved_files == pytest.approx(10 * (N - search.kept[0]))

    def test_what_the_table_plans_itself(self, files: list[dict[str, object]]) -> None:
        sample = self.sample(files, "clustered", "bucket(4, clustered)")
        planned: list[Leaf] = []

        def plan(leaf: Leaf) -> int:
            planned.append(leaf)
            return N // 4 if isinstance(leaf, Compare) else N

        advised = choose_types(advise(sample, N, baseline=TableItself(sample, N, plan)))
        assert advised.bounds == (N / 4, N, N)
        assert "the table's own partitions (bucket(4, clustered)) 30 and 120" in advised.reason
        assert advised.advised is not None
        assert len(planned) == 13  # and 3 ranges
        nothing_more = choose_types(
            advise(sample, N, baseline=TableItself(sample, N, lambda leaf: 1))
        )
        assert nothing_more.advised is None
        says_nothing = TableItself(sample, N, lambda leaf: None)
        assert advise(sample, N, baseline=says_nothing).bounds == ()


class TestAPart:
    """Thirty of the files tell of all."""

    @pytest.mark.parametrize(
        ("name", "kind", "k"),
        [
            ("clustered", "MIN_MAX", 0),
            ("clustered", "MIN_MAX", 1),
            ("clustered", "MIN_MAX", 2),
            ("unique", "VALUE_LIST", 0),
            ("unique", "VALUE_LIST", 2),
            ("everywhere", "VALUE_LIST", 0),
            ("scattered", "VALUE_LIST", 0),
            ("scattered", "VALUE_LIST", 1),
        ],
    )
    def test_the_estimate_is_near(
        self, files: list[dict[str, object]], name: str, kind: str, k: int
    ) -> None:
        type, _ = columns()[name]
        some = np.random.default_rng(1).choice(N, 30, replace=False)
        whole = kinds(advice(files, name, type))[kind].kept[k]
        part = kinds(advice([files[i] for i in some], name, type))[kind].kept[k]
        assert part == pytest.approx(whole, rel=0.25, abs=2.5)

    def test_the_choice_is_bounded_and_always_the_same(self) -> None:
        def table(sizes: list[int]) -> pa.Table:
            rows = [(f"file:/{i}", size, None, [], "parquet") for i, size in enumerate(sizes)]
            return pa.table(
                [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), FILES, strict=True)],
                schema=FILES,
            )

        many = table([10] * 1_000)
        assert len(choose_files(many, 64)) == 64
        assert choose_files(many, 64) == choose_files(many, 64)
        assert len(set(choose_files(many, 64)["path"].to_pylist())) == 64
        assert len(choose_files(table([BYTES // 4] * 50), 64)) == 4
        assert len(choose_files(table([BYTES * 2] * 3), 64)) == 1
        assert len(choose_files(table([1, 2]), 64)) == 2


def test_a_list_past_its_cap_is_tried_longer(tmp_path: Path) -> None:
    made = []
    for i in range(4):
        path = tmp_path / f"{i}.parquet"
        pq.write_table(pa.table({"v": pa.array(range(i * 3_000, (i + 1) * 3_000))}), path)
        made.append({"file": i, "path": f"file:{path}", "size": path.stat().st_size, "stamp": None})
    works = list_kinds(TableColumn("v", "v", "bigint", PhysicalColumn(("v",))), ())
    rows = [pa.ipc.open_stream(measure_file(f, works) or b"").read_all() for f in made]
    found = kinds(advise(Sample(tuple(works), pa.concat_tables(rows), 0), 4))
    # Its bounds are left, and these files follow each other.
    assert (found["VALUE_LIST"].known, found["VALUE_LIST"].kept[0]) == (0, 1)
    assert (found["VALUE_LIST(10000)"].known, found["VALUE_LIST(10000)"].kept[0]) == (1, 1)
    assert measure_file({**made[0], "size": 1}, works) is None
