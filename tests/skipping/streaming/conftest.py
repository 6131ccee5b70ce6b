"""Tables that a stream follows, quickly."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from providers.errors import NoStore
from skipping import SkippingIndex
from skipping.sources.spark import settings_of, store_of
from tests.rewrite.differential import same_rows
from tests.skipping.export import export, scratch

_numbers = itertools.count()
QUICK = "auto_refresh = true, refresh_interval = '200ms'"


def append(spark: SparkSession, name: str, *, files: int = 1, start: int = 0) -> None:
    """Ten rows a file, `id` clustered, no bounds of Delta's own."""
    spark.range(start, start + 10 * files, 1, files).selectExpr(
        "id", "cast(id % 7 AS string) AS s"
    ).write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").mode(
        "append"
    ).saveAsTable(name)


def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Wait for something that happens in another thread."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.05)


def caught_up(spark: SparkSession, name: str) -> bool:
    """Whether the index of a table covers what the table is now."""
    index = SkippingIndex.on(spark, name)
    if index.replaced:
        return False
    state = index.state
    return (state.status, state.covered) == ("active", index.table.version())


def same_as_scratch(spark: SparkSession, name: str, folder: Path) -> None:
    """Assert that what the index keeps is what one built from scratch would keep."""
    index = SkippingIndex.on(spark, name)
    place = folder / "scratch"
    place.mkdir(exist_ok=True)
    assert export(index) == scratch(spark, index, place)


def row_changes(name: str) -> dict[str, list[str]]:
    """What is done first to a table of 40 rows whose columns are `id` (INT), `s` and `n`."""
    return {
        "append": [f"INSERT INTO {name} SELECT id, 'x', id FROM range(100, 120)"],
        "delete": [f"DELETE FROM {name} WHERE id % 10 = 3"],
        "update": [f"UPDATE {name} SET s = 'updated' WHERE id % 10 = 4"],
        "merge": [
            f"MERGE INTO {name} t USING (SELECT cast(id AS int) AS id FROM range(90, 110)) u"
            " ON t.id = u.id WHEN MATCHED THEN UPDATE SET s = 'merged'"
            " WHEN NOT MATCHED THEN INSERT (id, s, n) VALUES (u.id, 'new', 0)"
        ],
    }


EXPIRES_ALL = "older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1"
"""Arguments of Iceberg's expire_snapshots; before Spark 4 it takes no `now()`."""


def schema_changes(name: str) -> dict[str, list[str]]:
    """What is done to a table whose columns are `id` (INT), `s` and `n`, in any format."""
    return {
        "rename a column": [
            f"ALTER TABLE {name} RENAME COLUMN s TO word",
            f"INSERT INTO {name} VALUES (300, 'renamed', 1)",
        ],
        "widen": [
            f"ALTER TABLE {name} ALTER COLUMN id TYPE BIGINT",
            f"INSERT INTO {name} VALUES (5000000000, 'wide', 1)",
        ],
        "drop a column and make it again": [
            f"ALTER TABLE {name} DROP COLUMN n",
            f"ALTER TABLE {name} ADD COLUMN n STRING",
            f"INSERT INTO {name} VALUES (301, 'again', 'text')",
        ],
    }


def follow(spark: SparkSession, name: str, folder: Path, commits: dict[str, list[str]]) -> None:
    """Do these commits to a table with a stream, one after another, and check after each."""
    spark.sql(
        f"CREATE SKIPPING INDEX ON {name} (id MIN_MAX, s VALUE_LIST, n VALUE_LIST) WITH ({QUICK})"
    )
    for what, statements in commits.items():
        print(what)
        for statement in statements:
            spark.sql(statement).collect()
        checked(spark, name, folder)


def checked(spark: SparkSession, name: str, folder: Path) -> None:
    """Assert that the stream catches up, keeps what a new index would, and loses no row."""
    until(lambda: caught_up(spark, name))
    same_as_scratch(spark, name, folder)
    text = next(c for c in ("s", "word") if c in spark.table(name).columns)
    for condition in ("id = 14 OR id > 250", f"{text} = 'merged' OR n = '10' OR id IS NULL"):
        same_rows(spark, f"SELECT * FROM {name} WHERE {condition}")


@pytest.fixture
def place(spark: SparkSession) -> Iterator[Path]:
    """A folder where the session lets streams keep their places."""
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
    folder = Path(warehouse) / f"checkpoints{next(_numbers)}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def t(spark: SparkSession) -> Iterator[str]:
    name = f"stream{next(_numbers):02}"
    append(spark, name, files=4)
    yield name
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert not [q.name for q in spark.streams.active if q.name.endswith(name)]
    with suppress(NoStore):  # no test has made an index in the session's own
        kept = store_of(spark, settings_of(spark)).definitions()
        assert not [d for d in kept if not d.value.dropped and name in d.value.name]
