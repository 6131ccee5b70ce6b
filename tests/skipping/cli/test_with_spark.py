"""The commands of `file-skipping` that need a Spark session, in the session that tests share."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.cli import tables
from skipping.cli.session import silence_query_errors


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Delta table of four files with an index, which the session opens."""

    @contextmanager
    def share(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(tables, "start_session", share)
    folder = tmp_path / "t"
    spark.range(0, 40, 1, 4).selectExpr("id", "(7 * id) % 40 AS k").write.format("delta").save(
        str(folder)
    )
    SkippingIndex.create(spark, f"delta.`{folder}`", "k VALUE_LIST")
    return folder


def test_the_commands_in_a_session(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object) -> Any:
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    query = f"SELECT count(*) FROM delta.`{table}` WHERE k = 23"
    assert run("verify", "--query", query) == {
        "rows": 1,
        "opened": 1,
        "opened_without": 4,
        "note": None,
    }
    assert run("verify", table, "--where", "k = 23", "--spark")["opened"] == 1
    advice = run("analyze", table, "--columns", "k,id", "--files", 2)
    assert (advice["files"], advice["sampled_files"]) == (4, 2)
    assert {column["name"] for column in advice["columns"]} == {"k", "id"}
    assert main(["analyze", str(table)]) == 0
    assert "sampled 4" in capsys.readouterr().out
    assert run("describe", table, "--spark")["files"] == "4"
    assert f"delta.`{table}`" in {each["table"] for each in run("list", "--spark")["indexes"]}
    assert run("refresh", f"delta.`{table}`")["indexes"][0]["added"] == 0
    assert run("vacuum", table, "--spark")["failed"] == 0
    assert main(["verify", f"delta.`{table}`", "--where", "nothing = 1", "--spark"]) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: AnalysisException: ")


def test_query_errors_are_not_logged_as_json() -> None:
    logger = pytest.importorskip("pyspark.logger").PySparkLogger.getLogger("SQLQueryContextLogger")
    level = logger.level
    silence_query_errors()
    assert not logger.isEnabledFor(logging.ERROR)
    logger.setLevel(level)
