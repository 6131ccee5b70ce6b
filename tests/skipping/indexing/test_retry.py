"""Files that could not be read are counted, tried again, and not tried all the time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from skipping import SkippingIndex
from skipping.model.definition import FIRST_PAUSE, LONGEST_PAUSE, State


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three files, with the values 0, 1 and 2."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("db")
    rows = [pa.table({"x": pa.array([n], pa.int64())}) for n in range(3)]
    made = catalog.create_table("db.t", rows[0].schema)
    for each in rows:
        made.append(each)
    return made


def paths(table: Table) -> dict[int, Path]:
    """The file of each value."""
    tasks = table.scan().plan_files()
    found = [Path(task.file.file_path.removeprefix("file://")) for task in tasks]
    return {pa.parquet.read_table(path)["x"][0].as_py(): path for path in found}


def known(index: SkippingIndex) -> int:
    return sum(flag is True for flag in index.files()["x MIN_MAX"].to_pylist())


def test_what_was_out_of_reach_is_read_by_the_next_refresh(table: Table, tmp_path: Path) -> None:
    file = paths(table)[1]
    away = file.rename(f"{file}.away")
    index = SkippingIndex.create(table, "x MIN_MAX", store=f"sqlite:{tmp_path}/s.db")
    state = index.state
    assert (state.status, state.unread, state.retries) == ("active", 1, 0)
    assert state.error is not None
    assert f"1 file could not be read, and will be tried again: file://{file}: " in state.error
    assert (known(index), len(index.pending())) == (2, 1)
    # Not all the time: who follows the table waits.
    assert len(index.pending(retry=False)) == 0
    state = index.refresh(retry=False)
    assert (state.unread, state.retries) == (1, 0)
    assert index.refresh().retries == 1
    table.append(pa.table({"x": pa.array([7], pa.int64())}))
    index = SkippingIndex.on(table, store=f"sqlite:{tmp_path}/s.db")
    assert (index.refresh(retry=False).unread, known(index)) == (1, 3)
    away.rename(file)
    state = index.refresh()
    assert (state.unread, state.retries, state.error) == (0, 0, None)
    assert (known(index), len(index.pending())) == (4, 0)


def test_a_truncated_file_is_tried_again_and_a_broken_one_is_not(
    table: Table, tmp_path: Path
) -> None:
    files = paths(table)
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:-9])
    files[1].write_bytes(b"x" * len(files[1].read_bytes()))
    index = SkippingIndex.create(table, "x MIN_MAX", store=f"sqlite:{tmp_path}/s.db")
    flags = index.files()["x MIN_MAX"].to_pylist()
    assert sorted(map(str, flags)) == ["False", "None", "True"]
    assert len(index.pending()) == 1
    files[0].write_bytes(whole)
    assert (index.refresh().unread, known(index), len(index.pending())) == (0, 2, 0)


@pytest.mark.parametrize("limit", [1, 2])
def test_steps_of_limited_size_end_though_files_cannot_be_read(
    table: Table, tmp_path: Path, limit: int
) -> None:
    files = paths(table)
    for value in (0, 2):
        files[value].rename(f"{files[value]}.away")
    store = f"sqlite:{tmp_path}/s.db"
    index = SkippingIndex.create(table, "x MIN_MAX", store=store, build=False)
    states = [index.refresh(limit=limit) for _ in range(9)]
    assert all(state.status == "active" for state in states[4:])
    for value in (0, 2):
        Path(f"{files[value]}.away").rename(files[value])
    while index.refresh(limit=limit).left:
        pass
    while index.refresh(limit=limit).unread:
        pass
    assert (known(index), len(index.pending())) == (3, 0)


def test_a_file_that_left_the_table_is_waited_for_no_more(table: Table, tmp_path: Path) -> None:
    paths(table)[1].unlink()
    index = SkippingIndex.create(table, "x MIN_MAX", store=f"sqlite:{tmp_path}/s.db")
    assert index.state.unread == 1
    table.overwrite(pa.table({"x": pa.array([5], pa.int64())}))
    index = SkippingIndex.on(table, store=f"sqlite:{tmp_path}/s.db")
    state = index.refresh()
    assert (state.unread, state.error, len(index.pending())) == (0, None, 0)


def test_pauses_double() -> None:
    for retries, pause in ((0, FIRST_PAUSE), (3, 8 * FIRST_PAUSE), (99, LONGEST_PAUSE)):
        state = State("active", 1, at=1_000.0, unread=2, retries=retries)
        assert not state.is_retry_due(1_000 + pause - 1)
        assert state.is_retry_due(1_000 + pause)
    assert not State("active", 1, at=0.0).is_retry_due(1e12)
