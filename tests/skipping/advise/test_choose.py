"""The choice of index types within a budget, from small files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import providers.bloom_filter
from providers.errors import DefinitionError
from skipping.advise import analyze
from skipping.advise.analyze import Advice, list_kinds
from skipping.advise.choose import Option, choose
from skipping.advise.history import (
    RANGE,
    TEXT,
    VALUES,
    RecordedPredicate,
    attribute_to_columns,
)
from skipping.advise.recommend import ColumnAdvice, KindAdvice, advise, recommend
from skipping.advise.sample import Sample, measure_file
from skipping.tables import Columns, PhysicalColumn, TableColumn

N, ROWS = 12, 60


def make_column(name: str, type: str) -> TableColumn:
    return TableColumn(name, name, type, PhysicalColumn((name,)))


def measure(
    folder: Path,
    column: TableColumn,
    values: Sequence[pa.Array],
    asked: Sequence[RecordedPredicate],
) -> Sample:
    works = list_kinds(column, (), asked)
    rows = []
    for i, part in enumerate(values):
        path = folder / f"{column.name}{i}.parquet"
        pq.write_table(pa.table({column.name: part}), path)
        file = {"file": i, "path": f"file:{path}", "size": path.stat().st_size, "stamp": None}
        rows.append(pa.ipc.open_stream(measure_file(file, works) or b"").read_all())
    return Sample(tuple(works), pa.concat_tables(rows).combine_chunks(), 0)


def measure_column(
    folder: Path,
    type: str,
    values: Sequence[pa.Array],
    asked: Sequence[RecordedPredicate] = (),
    *,
    name: str = "c",
    typical: bool | None = None,
) -> ColumnAdvice:
    sample = measure(folder, make_column(name, type), values, asked)
    return advise(sample, N, asked, typical=typical)


def choose_types(
    column: ColumnAdvice, budget: float = 1e9, existing: Sequence[tuple[str, str]] = ()
) -> list[str]:
    (found,) = recommend([column], N, budget, existing)
    return [kind.spelling for kind in found.all_advised]


def record(condition: str, form: str, *, name: str = "c", keys: float = 1.0) -> RecordedPredicate:
    """Ten scans that opened all files."""
    return RecordedPredicate(condition, name, name, False, form, 10, 10 * N, 10_000, keys)


def numbers(seed: int = 0) -> list[pa.Array]:
    rng = np.random.default_rng(seed)
    return [pa.array(rng.integers(0, 1 << 60, ROWS)) for _ in range(N)]


class TestChoose:
    def test_choose_finds_the_best_subset(self) -> None:
        rng = np.random.default_rng(1)
        for _ in range(20):
            groups = [
                [Option(g, rng.uniform(1, 100), rng.uniform(1, 100)) for _ in range(3)]
                for g in range(5)
            ]
            budget = rng.uniform(50, 200)
            subsets = product(*([None, *group] for group in groups))
            best = max(
                sum(o.benefit for o in subset if o)
                for subset in subsets
                if sum(o.bytes for o in subset if o) <= budget
            )
            found = choose([option for group in groups for option in group], budget)
            assert sum(option.bytes for option in found) <= budget
            assert len({option.group for option in found}) == len(found)
            assert sum(option.benefit for option in found) >= 0.99 * best

    def test_choose_takes_one_large_option_rather_than_a_small_one(self) -> None:
        small, large = Option("a", 2, 1), Option("b", 100, 100)
        assert choose([small, large], 100) == [large]

    def test_choose_takes_nothing_without_benefit_or_room(self) -> None:
        assert choose([Option("a", 0, 1)], 10) == []
        assert choose([Option("a", 5, 11)], 10) == []


@pytest.mark.nightly
class TestRecommend:
    def test_recommend_prefers_a_bloom_filter_for_unique_values(self, tmp_path: Path) -> None:
        column = measure_column(tmp_path, "bigint", numbers())
        assert choose_types(column) == ["BLOOM_FILTER"]
        sizes = {kind.spelling: kind.bytes for kind in column.kinds}
        assert sizes["VALUE_LIST"] > 5 * sizes["BLOOM_FILTER"]

    def test_recommend_leaves_out_measures(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        values = [pa.array(rng.uniform(0, 1, ROWS)) for _ in range(N)]
        assert choose_types(measure_column(tmp_path, "double", values)) == []
        (found,) = recommend([measure_column(tmp_path, "double", values)], N, 1e9)
        assert "no index type saves 5% of the bytes of queries on it" in found.reason
        # A recorded query decides.
        assert choose_types(measure_column(tmp_path, "double", values, [record("c = ?", VALUES)]))

    def test_recommend_keeps_within_the_budget(self, tmp_path: Path) -> None:
        column = measure_column(tmp_path, "bigint", numbers())
        size = N * next(k.bytes for k in column.kinds if k.spelling == "BLOOM_FILTER")
        assert choose_types(column, size) == ["BLOOM_FILTER"]
        (none,) = recommend([column], N, size - 1)
        assert not none.all_advised
        assert "BLOOM_FILTER saves" in none.reason
        assert f"{size:,.0f} bytes exceed the budget" in none.reason

    def test_recommend_uses_recorded_queries_only(self, tmp_path: Path) -> None:
        column = measure_column(tmp_path, "bigint", numbers(), typical=False)
        (found,) = recommend([column], N, 1e9)
        assert not found.all_advised
        assert "no recorded query has a condition on it" in found.reason

    def test_recommend_counts_the_existing_index(self, tmp_path: Path) -> None:
        column = measure_column(tmp_path, "bigint", numbers())
        assert choose_types(column, existing=[("c", "BLOOM_FILTER")]) == []
        assert choose_types(column, existing=[("c", "MIN_MAX")]) == ["BLOOM_FILTER"]
        size = N * next(k.bytes for k in column.kinds if k.spelling == "BLOOM_FILTER")
        assert choose_types(column, size, [("c", "MIN_MAX")]) == []  # MIN_MAX uses the budget
        (none,) = recommend([column], N, size, [("c", "MIN_MAX")])
        assert f"{size:,.0f} bytes do not fit into what is left of the budget" in none.reason

    def test_recommend_counts_an_existing_type_once(self) -> None:
        """ANALYZE measures VALUE_LIST with two limits, but the index has one list."""

        def make(identity: str, *spellings: str) -> ColumnAdvice:
            kind = KindAdvice("", (1.0, 1.0), 1.0, 10.0, 0.0, 3, benefit=900.0, saved=0.9)
            types = tuple(replace(kind, spelling=each) for each in spellings)
            return ColumnAdvice(
                identity, identity, "bigint", "", types, None, (5.0, 5), identity=identity
            )

        listed = make("a", "VALUE_LIST", "VALUE_LIST(10000)")
        _, other = recommend([listed, make("b", "BLOOM_FILTER")], 1, 20, [("a", "VALUE_LIST")])
        assert [kind.spelling for kind in other.all_advised] == ["BLOOM_FILTER"]

    def test_recommend_names_a_missing_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(capacity: int, fpp: float) -> None:
            error = DefinitionError("BLOOM_FILTER needs pybloom-live: pip install it")
            raise error from ImportError()

        monkeypatch.setattr(providers.bloom_filter, "_layout", fail)
        column = make_column("c", "bigint")
        missing = analyze._find_missing(column, ())
        assert missing == {"BLOOM_FILTER": "BLOOM_FILTER needs pybloom-live: pip install it"}
        (found,) = recommend(
            [measure_column(tmp_path, "bigint", numbers())], N, 1e9, missing={"c": missing}
        )
        assert [kind.spelling for kind in found.all_advised] == ["VALUE_LIST"]
        assert "a Bloom filter of about 105 bytes a file may be better" in found.reason
        assert found.reason.endswith("pip install it")


@pytest.mark.nightly
class TestRecord:
    def test_addresses_are_measured_for_networks(self, tmp_path: Path) -> None:
        # As text, each file spans all of 10.
        values = [pa.array([f"10.{i * 16 + n % 16}.{n}.1" for n in range(ROWS)]) for i in range(N)]
        networks = [record("c LIKE '?%'", RANGE)]
        column = measure_column(tmp_path, "string", values, networks)
        kept = {kind.spelling: kind.saved for kind in column.kinds}
        assert kept["ADDRESSES"] > 0.8 > kept["MIN_MAX"]
        assert kept["BLOOM_FILTER"] == 0
        plain = list_kinds(make_column("c", "string"), (), [record("c = ?", VALUES)])
        assert "ADDRESSES" not in {work.indexed.kind for work in plain}

    def test_searches_that_ignore_case_need_folded_ngrams(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(3)
        letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        values = [pa.array(["".join(rng.choice(letters, 12)) for _ in range(8)]) for _ in range(N)]
        condition = "lower(c) LIKE '%?%'"
        found = RecordedPredicate(
            condition, "text", "lower(c)", True, TEXT, 10, 10 * N, 10_000, 1.0
        )
        columns = Columns([make_column("c", "string")])
        (moved,) = attribute_to_columns([found], columns)
        assert (moved.identity, moved.computed, moved.ignores_case) == ("c", False, True)
        other = replace(found, sql="trim(c)")
        assert attribute_to_columns([other], columns) == [other]
        column = measure_column(tmp_path, "string", values, [moved])
        assert choose_types(column) == ["NGRAM(fold => true)"]
        plain = next(kind for kind in column.kinds if kind.spelling == "NGRAM")
        assert (plain.past_scans, plain.benefit) == (0, 0)


@pytest.mark.nightly
class TestAdvice:
    def advice(self, folder: Path, existing: Mapping[str, str] | None = None) -> Advice:
        pairs = frozenset((existing or {}).items())
        columns = [
            measure_column(folder, "bigint", numbers()),
            measure_column(folder, "double", [pa.array([0.5])] * N, name="d"),
        ]
        found = recommend(columns, N, 1e9, pairs)
        return Advice("t", N, 100_000, N, 100_000, tuple(found), 0.1, pairs)

    def test_rows_end_with_the_total_and_the_statement(self, tmp_path: Path) -> None:
        advice = self.advice(tmp_path)
        first, second, total = advice.rows()
        assert first[0:2] == ("c", "bigint")
        assert first[3] == "BLOOM_FILTER"
        assert first[5] == advice.index_bytes
        assert second[3:] == (None,) * 5
        assert total[5:] == (advice.index_bytes, advice.index_bytes / 100_000, advice.ddl)
        assert advice.ddl == "CREATE SKIPPING INDEX ON t (c BLOOM_FILTER)"
        assert str(advice).endswith(f"of the data (budget 10%)\n{advice.ddl}")
        assert {len(row) for row in advice.rows()} == {8}

    def test_the_statement_adds_to_an_existing_index(self, tmp_path: Path) -> None:
        advice = self.advice(tmp_path, {"c": "MIN_MAX"})
        assert advice.ddl == "ALTER SKIPPING INDEX ON t ADD (c BLOOM_FILTER)"
