"""Verify without Spark: what an index leaves out is read, and a wrong entry is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from providers.errors import StoreError, WrongAnswer
from skipping import SkippingIndex
from skipping.scans.verification import Verification
from skipping.stores.memory.store import MemoryStore


@pytest.fixture(params=["iceberg", "delta"])
def table(request: pytest.FixtureRequest, catalog: SqlCatalog, tmp_path: Path) -> Any:
    """Twelve files, whose bounds the table's log has, so that only a list tells them apart."""
    written = [
        pa.table({"k": pa.array([0, i, 100], pa.int64()), "s": [f"s{i}", None, "all"]})
        for i in range(1, 13)
    ]
    if request.param == "iceberg":
        made = catalog.create_table("db.t", schema=written[0].schema)
        for each in written:
            made.append(each)
        return made
    for each in written:
        write_deltalake(tmp_path / "t", each, mode="append")
    return DeltaTable(tmp_path / "t")


def test_the_same_rows(table: Any, store: MemoryStore) -> None:
    index = SkippingIndex.create(table, "k VALUE_LIST, s VALUE_LIST", store=store)
    for asked, rows, opened in (("k = 7", 1, 1), ("k = 0", 12, 12), ("k = 77", 0, 0)):
        found = index.verify(asked)
        assert found == Verification(rows, opened, 12)
    assert str(index.verify("k = 7 OR s = 's9'")) == "same 2 rows, opened 2 of 12 files"
    assert index.verify().rows == 36
    assert index.verify(keys={"k": [7, 9, 500]}) == Verification(2, 2, 12)
    assert index.verify("k < 9", keys={"k": [7, 9]}, selected_fields=("s",)).rows == 1
    assert index.verify(pc.field("k") == 7) == Verification(1, 1, 12)
    assert index.verify("k = 0", limit=1, selected_fields=("s",)).rows == 12, "of all there are"
    assert index.scan("k = 7").verify().opened == 1


def test_a_wrong_entry_is_named(table: Any, store: MemoryStore) -> None:
    index = SkippingIndex.create(table, "k VALUE_LIST", store=store, build=False)
    files = index.table.files().sort_by("path")
    count = len(files)
    values = [[0, 100]] * count  # none knows of what makes its file differ
    entries: dict[str, Any] = {
        "ordinal": pa.array(store.reserve(index.definition.index, count), pa.int64()),
        **{name: files[name] for name in ("path", "size", "stamp")},
        "partition": pa.array([json.dumps({})] * count),
        "s1_known": pa.repeat(True, count),
        "s1_values": pa.array(values, pa.list_(pa.int64())),
        "s1_nulls": pa.repeat(0, count),
    }
    store.write(index.definition.index, pa.table(entries), revision=index.revision)
    assert index.verify("k = 100") == Verification(12, 12, 12)
    with pytest.raises(WrongAnswer) as wrong:
        index.verify("k = 7")
    assert "0 rows with the index, 1 without: the index is wrong" in str(wrong.value)
    (named,) = [line for line in str(wrong.value).splitlines() if line.startswith("  ")]
    path, rows = named.strip().rsplit(": ", 1)
    assert path in files["path"].to_pylist()
    assert rows == "1"
    filesystem, inner = index.table.locate(path)  # type: ignore[attr-defined]
    with filesystem.open_input_file(inner) as file:
        assert 7 in pq.read_table(file)["k"].to_pylist()
    with pytest.raises(WrongAnswer, match=r"12 without(.|\n)*\n  and 2 more$"):
        index.verify("k > 0 AND k < 20")
    with pytest.raises(WrongAnswer, match="0 rows with the index, 2 without"):
        index.verify(keys={"k": [7, 9]})
    index.drop()
    index.vacuum()
    again = SkippingIndex.create(table, "k VALUE_LIST", store=store)
    assert again.verify("k = 7").rows == 1


def test_rows_that_were_deleted_are_no_match(table: Any, store: MemoryStore) -> None:
    """An index of the file as it is now; a vector or a new file says which rows are gone."""
    index = SkippingIndex.create(table, "k VALUE_LIST", store=store)
    table.delete("k = 7")
    if hasattr(table, "update_incremental"):
        table.update_incremental()
    assert index.verify("k = 7").rows == 0
    index.refresh()
    assert index.verify("k = 8") == Verification(1, 1, 12)
    assert index.verify("k = 0").rows == 12


def test_scan_reads_all_files_if_the_store_is_unreachable(
    table: Any,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    index = SkippingIndex.create(table, "k VALUE_LIST", store=store)

    def away(*_: object, **__: object) -> None:
        raise StoreError("it is away")

    monkeypatch.setattr(store, "find_prunable", away)
    assert index.scan("k = 7").to_arrow()["k"].to_pylist() == [7]
    assert len(list(index.scan("k = 7").plan_files())) == 12
    assert "no file is skipped: it is away" in caplog.text
    found = index.verify("k = 7")
    assert found == Verification(1, 12, 12, "no file is skipped: it is away")
    assert str(found) == "same 1 rows, opened 12 of 12 files; no file is skipped: it is away"
