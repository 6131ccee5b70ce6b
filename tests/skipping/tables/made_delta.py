"""Delta tables that delta-rs makes, and those that are made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable, write_deltalake

from tests.skipping.tables.local import rows

GARBAGE = b"no parquet" * 400


def make(folder: Path, *, files: int = 4, **options: Any) -> DeltaTable:
    for i in range(files):
        write_deltalake(folder, rows(i), mode="append", **options)
    return DeltaTable(folder)


def hand_made(folder: Path, fields: Any, adds: Any = (), protocol: Any = None, **meta: Any) -> Path:
    """A table of one commit; `adds` are files with their partition values."""
    schema = [{"nullable": True, "metadata": {}, **field} for field in fields]
    text = json.dumps({"type": "struct", "fields": schema})
    actions: list[Any] = [
        {"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "made",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": text,
                "partitionColumns": [],
                "configuration": {},
                **meta,
            }
        },
    ]
    for path, partition in adds:
        size = (folder / unquote(path)).stat().st_size if (folder / unquote(path)).exists() else 1
        add = {"path": path, "partitionValues": partition, "size": size}
        actions.append({"add": {**add, "modificationTime": 1, "dataChange": True}})
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    (folder / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return folder


def local(path: str) -> Path:
    return Path(path.removeprefix("file:"))
