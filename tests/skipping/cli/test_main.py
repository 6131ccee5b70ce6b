"""`python -m skipping`, as cron runs it: a process of its own, with a session of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.stores.sqlite.store import SqliteStore
from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skipping", *arguments]
    for key, value in {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.skipping.store": f"sqlite:{folder}/store.sqlite",
        "spark.master": "local[2]",
    }.items():
        command += ["--conf", f"{key}={value}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    said = capsys.readouterr().out.strip()
    assert f'\nversion = "{said}"\n' in (ROOT / "pyproject.toml").read_text()


def test_serve_has_arguments_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    assert "--thrift" in capsys.readouterr().out
    assert main(["serve", "--connect", "0.0.0.0:0"]) == 1
    assert "--without-authentication" in capsys.readouterr().err


def test_a_session_without_delta(tmp_path: Path) -> None:
    done = run("refresh", "--all", "--formats", "hudi", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot start a session: formats are delta and iceberg, not hudi" in done.stderr


def test_one_table_all_tables_and_what_fails(spark: SparkSession, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    names = [f"delta.`{tmp_path}/{n}`" for n in "ab"]
    for name in names:
        spark.range(10).write.format("delta").save(name[7:-1])
        SkippingIndex.create(spark, name, "id MIN_MAX", store=store)
        spark.range(10).coalesce(1).write.format("delta").mode("append").save(name[7:-1])
    indexes = [SkippingIndex.on(spark, name, store=store) for name in names]
    assert [len(index.pending()) for index in indexes] == [1, 1]

    one = run("refresh", names[0], folder=tmp_path)
    assert one.returncode == 0, one.stderr
    assert "[1/1] delta.`/" in one.stdout
    assert "1 files, covers version 1" in one.stdout
    assert [len(index.pending()) for index in indexes] == [0, 1]

    # What fails does not keep the others waiting.
    (tmp_path / "a").rename(tmp_path / "gone")
    everything = run("refresh", "--all", folder=tmp_path)
    assert everything.returncode == 1
    assert "[2/2] delta.`/" in everything.stdout
    assert "cannot open table delta.`file:" in everything.stderr
    assert len(indexes[1].pending()) == 0

    advised = run("analyze", str(tmp_path / "b"), "--json", folder=tmp_path)
    assert advised.returncode == 0, advised.stderr
    assert json.loads(advised.stdout)["table"].startswith("delta.`file:")
