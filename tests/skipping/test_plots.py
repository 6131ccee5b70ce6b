"""Pictures hold what they are to show, for few files and for many."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from pyspark.sql import SparkSession

from providers import And, Compare
from providers.errors import DefinitionError
from rewrite import explain
from rewrite.plots import draw_history, funnel, over_time
from skipping import ScanPlan, SkippingIndex
from skipping.lookup.scan_plan import FunnelStep
from skipping.plots import KEPT, PRUNED, FileMap, draw_files, file_map
from tests.rewrite.differential import make_table

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FILES = 12


def made(files: int) -> FileMap:
    rng = np.random.default_rng(1)
    low = np.sort(rng.uniform(0, 1_000, files))
    high = low + rng.uniform(0, 20, files)
    gone = (low > 500) | (high < 490)
    values = tuple(np.array([a, (a + b) / 2, b]) for a, b in zip(low, high, strict=True))
    return FileMap(low, high, values, gone, ((0.0, "0"), (1e3, "1,000")), files, int((~gone).sum()))


@pytest.mark.parametrize("files", [10, 10_000])
def test_the_file_map(files: int, tmp_path: Path) -> None:
    map = made(files)
    ax = draw_files(map, "dep_time")
    ax.figure.savefig(tmp_path / "map.png")  # type: ignore[union-attr]
    assert ax.get_title(loc="left") == (
        f"{files:,} files: {map.kept:,} to read, {files - map.kept:,} pruned"
    )
    bars = {to_hex(c.get_color()[0]): len(c.get_segments()) for c in ax.collections
            if hasattr(c, "get_segments") and len(c.get_segments())}  # fmt: skip
    if files == 10:
        assert bars.get(KEPT, 0) == map.kept
        assert bars[PRUNED] == files - map.kept
    else:
        # Every file that is kept is drawn, and some of the others.
        assert bars[KEPT] == map.kept
        assert 300 < bars[PRUNED] <= 400
        assert "drawn" in ax.get_ylabel()
    assert (tmp_path / "map.png").stat().st_size < 200_000


def test_names_with_dollars_are_no_formulas(tmp_path: Path) -> None:
    map = replace(made(3), ticks=((0.0, "$0_$"), (1.0, "$\\frac$")))
    ax = draw_files(map, "a$b_$c")
    ax.figure.savefig(tmp_path / "map.png")  # type: ignore[union-attr]
    assert ax.get_xlabel() == "a$b_$c"
    funnelled = funnel(ScanPlan("db.$t_$", total=2, pruned=1))
    funnelled.figure.savefig(tmp_path / "funnel.png")  # type: ignore[union-attr]


def test_the_funnel() -> None:
    steps = (FunnelStep("table", 10_000, 10**9), FunnelStep("statistics", 400, 4 * 10**7))
    scan = ScanPlan("t", total=400, pruned=399, opened=1, format=steps, bytes=4 * 10**7)
    ax = funnel(scan)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        *("table", "statistics", "index", "opened")
    ]
    words = [text.get_text() for text in ax.texts]
    assert words[0] == "10,000 files, 1.0 GB"
    assert words[-1] == "1 file"
    assert ax.get_title(loc="left") == "t"


@pytest.mark.parametrize("scans", [0, 1, 300])
def test_skipping_over_time(scans: int) -> None:
    began = datetime(2024, 1, 1)
    ax = draw_history([(began + timedelta(hours=i), 100, 25) for i in range(scans)])
    assert ax.get_title(loc="left").startswith(f"{scans:,} scans, {'25' if scans else '0'}%")
    assert len(ax.patches) == 2 * scans


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DefinitionError, match=r"lakehouse-file-skipping\[plot\]"):
        draw_files(made(3), "x")


@pytest.fixture(scope="module")
def index(spark: SparkSession) -> Iterator[SkippingIndex]:
    rows = f"""SELECT id div 10 AS _f, id, 's' || id % 7 AS s, null AS never,
        date_from_unix_date(int(id)) AS d FROM range({10 * FILES})"""
    table = make_table(spark, "drawn", rows.replace("null AS never", "int(null) AS never"))
    yield SkippingIndex.create(spark, table, "id MIN_MAX, s VALUE_LIST")
    spark.sql("DROP SKIPPING INDEX ON drawn")
    spark.sql("DROP TABLE drawn")


class TestOfATable:
    def test_why_a_file_survived(self, index: SkippingIndex) -> None:
        found = index.why(And((Compare("id", ">=", 90), Compare("s", "=", "s3"))))
        assert found.column_names == [
            *("path", "size", "ordinal", "pruned", "id >= ?  MIN_MAX", "s = ?  VALUE_LIST")
        ]
        rows = found.to_pylist()
        assert len(rows) == FILES
        assert sum(row["pruned"] for row in rows) == 9
        assert sum(row["id >= ?  MIN_MAX"] for row in rows) == 9
        assert not any(row["s = ?  VALUE_LIST"] for row in rows)
        plan = index.lookup(Compare("id", ">=", 90))
        assert (plan.total, plan.pruned, plan.unknown) == (FILES, 9, 0)

    @pytest.mark.parametrize("column", ["id", "s", "d", "never"])
    def test_a_column_of_each_kind_of_type(self, index: SkippingIndex, column: str) -> None:
        ax = file_map(index, column, Compare("id", "<", 25))
        assert ax.get_title(loc="left") == "12 files: 3 to read, 9 pruned"
        words = [label.get_text() for label in ax.get_xticklabels()]
        first = {"id": "0", "s": "s0", "d": "1970-01-01", "never": "0"}[column]
        assert words[0] == first
        assert file_map(index, column).get_title(loc="left") == "12 files"

    def test_a_query(self, spark: SparkSession, index: SkippingIndex) -> None:
        df = spark.sql("SELECT * FROM drawn WHERE id = 5")
        df.collect()
        assert [text.get_text().split()[0] for text in funnel(explain(df)).texts][-2:] == ["1", "1"]
        ax = over_time(spark, "spark_catalog.default.drawn")
        assert "files skipped" in ax.get_title(loc="left")
