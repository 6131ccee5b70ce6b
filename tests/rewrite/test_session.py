"""Sessions as people start them. What needs a JVM of its own stands in `sessions.py`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

import rewrite
from providers.errors import SessionError
from rewrite import preflight
from rewrite.session import _choose_formats, _settings
from skipping.requirements import LINES, require_spark
from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]

SCRIPT = Path(__file__).with_name("sessions.py")
SCENARIOS = re.findall(r"^@scenario\ndef (\w+)", SCRIPT.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("sessions")
    run = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        # No classes are kept there yet: the first session compiles them.
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
        timeout=900,
    )
    assert run.returncode == 0, run.stderr
    outcomes: dict[str, str | None] = json.loads(run.stdout.splitlines()[-1])
    return outcomes


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(outcomes: dict[str, str | None], scenario: str) -> None:
    if outcomes[scenario] is not None:
        pytest.fail(outcomes[scenario] or "", pytrace=False)


# Jupyter's own event loop handling warns on some versions of Python.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_session_hides_sparks_progress_bar_in_a_notebook() -> None:
    cell = (
        "from rewrite.session import _settings\n"
        "for given in {}, {'spark.ui.showConsoleProgress': 'true'}:\n"
        "    print(_settings(given, []).get('spark.ui.showConsoleProgress'))"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    resources = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    assert notebook.cells[0].outputs[0].text.split() == ["false", "true"]
    assert "spark.ui.showConsoleProgress" not in _settings({}, [])


def test_formats_are_those_with_a_release(caplog: pytest.LogCaptureFixture) -> None:
    assert list(_choose_formats(None, LINES["4.1"])) == ["delta", "iceberg"]
    assert not caplog.records
    assert list(_choose_formats(None, LINES["4.2"])) == ["delta"]
    (record,) = caplog.records
    assert record.getMessage() == (
        "the session cannot read Iceberg tables: Iceberg has no release for Spark 4.2, so install "
        "an older Spark, such as pyspark==4.1.*, for its tables"
    )
    with pytest.raises(SessionError, match=r"Iceberg has no release for Spark 4\.2"):
        _choose_formats(["iceberg"], LINES["4.2"])
    assert list(_choose_formats(None, LINES["4.3"])) == []
    with pytest.raises(SessionError, match=r"Delta Lake has no release for Spark 4\.3"):
        _choose_formats(["delta"], LINES["4.3"])


class TestWhatCannotBe:
    @pytest.fixture(autouse=True)
    def nothing_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def start(_: object) -> None:
            raise AssertionError("a session was started")

        monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)

    def refusal(self, builder: Any = None) -> str:
        with pytest.raises(SessionError) as caught:
            rewrite.session(builder)
        return str(caught.value)

    @pytest.mark.parametrize(
        ("variable", "value"), [("SPARK_REMOTE", "sc://host"), ("SPARK_API_MODE", "connect")]
    )
    def test_connect_by_environment(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
    ) -> None:
        monkeypatch.setenv(variable, value)
        assert "Spark Connect keeps query plans on its server" in self.refusal()

    @pytest.mark.parametrize(
        ("key", "value"), [("spark.remote", "sc://host"), ("spark.api.mode", "connect")]
    )
    def test_connect_by_setting(self, key: str, value: str) -> None:
        message = self.refusal(SparkSession.builder.config(key, value))
        assert "use a classic session (no spark.remote" in message

    def test_a_connect_session(self) -> None:
        connect: Any = SimpleNamespace(client=None)
        with pytest.raises(SessionError, match="Spark Connect"):
            rewrite.enable(connect)

    def test_no_java_on_the_path(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert self.refusal() == (
            "no Java on the PATH: install a JDK 17 or 21, or set JAVA_HOME to one"
        )

    def test_no_java_in_java_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert self.refusal() == (
            f"no Java at {tmp_path}/bin/java, where JAVA_HOME points: "
            "install a JDK 17 or 21, or set JAVA_HOME to one"
        )

    @pytest.mark.parametrize(
        ("said", "found"),
        [
            ('openjdk version "11.0.2" 2019-01-15', "is 11.0.2"),
            ('java version "1.8.0_292"', "is 1.8.0_292"),
            ('openjdk version "23" 2024-09-17', "is 23"),
            ('openjdk version "25.0.1" 2025-10-21 LTS', "is 25.0.1"),
            ("Segmentation fault", "does not print its version"),
        ],
    )
    def test_the_wrong_java(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, found: str
    ) -> None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert self.refusal() == (
            f"Spark {require_spark().spark} needs a JDK 17 or 21, but {java} {found}: install one "
            "and set JAVA_HOME to it"
        )

    @pytest.mark.parametrize(
        ("program", "mode", "why"),
        [
            (b"#!/bin/sh\n", 0o644, "Permission denied"),
            (b"\x7fELF of another processor", 0o755, "Exec format error"),
        ],
    )
    def test_a_java_that_cannot_run(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: bytes, mode: int, why: str
    ) -> None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_bytes(program)
        java.chmod(mode)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert self.refusal() == (
            f"{java} cannot run ({why}): install a JDK 17 or 21 and set JAVA_HOME to it"
        )

    def test_a_java_that_prints_other_bytes(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text("#!/bin/sh\nprintf '\\377' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert "does not print its version" in self.refusal()


class TestAnotherRelease:
    """What is needed changes here, since a process loads only one release."""

    def refusal(self, spark: SparkSession) -> str:
        with pytest.raises(SessionError) as caught:
            rewrite.enable(spark)
        return str(caught.value)

    def require(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        """Support another line than that of the session."""
        line = replace(require_spark(), **changes)
        monkeypatch.setattr(preflight, "session_line", lambda spark: line)

    def test_of_spark(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(spark), "version", "3.4.1")
        assert self.refusal(spark) == (
            "Spark 3.4.1 is installed, but this release of lakehouse-file-skipping works only with "
            "3.5, 4.0, 4.1, 4.2 or 4.3: "
            "pip install 'lakehouse-file-skipping[spark]' 'pyspark==4.1.*'"
        )

    def test_of_spark_beside_pyspark(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = "4.0.1" if require_spark().spark != "4.0" else "3.5.1"
        monkeypatch.setattr(type(spark), "version", other)
        refused = self.refusal(spark)
        assert refused.startswith(f"the session's Spark is {other}, but PySpark is ")
        assert refused.endswith(f": pip install 'pyspark=={other}'")

    @pytest.mark.parametrize(
        ("format", "what", "install"),
        [
            ("delta", "Delta Lake ", "pip install 'lakehouse-file-skipping[spark]' 'pyspark==4.1"),
            ("iceberg", "Iceberg 1.", "spark.jars.packages=org.apache.iceberg:iceberg-spark-"),
        ],
    )
    def test_of_a_format(
        self,
        spark: SparkSession,
        monkeypatch: pytest.MonkeyPatch,
        format: str,
        what: str,
        install: str,
    ) -> None:
        self.require(monkeypatch, **{format: ("0.5", "0.6")})
        refused = self.refusal(spark)
        assert refused.startswith(what)
        assert f"works only with 0.5 or 0.6: {install}" in refused

    @pytest.mark.parametrize("format", ["delta", "iceberg"])
    def test_of_no_release_of_a_format(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, format: str
    ) -> None:
        self.require(monkeypatch, **{format: ()})
        assert re.search(
            rf"{format}-spark\S* cannot be used: .* has no release for Spark", self.refusal(spark)
        )

    def test_of_a_format_for_another_scala(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.require(monkeypatch, scala="2.11")
        monkeypatch.setattr(preflight, "_require_scala", lambda *_: None)
        assert re.search(
            r"delta-spark_.*\.jar is not built for Spark \S+ and Scala 2\.11: pip install",
            self.refusal(spark),
        )

    def test_of_spark_for_another_scala(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.require(monkeypatch, scala="2.11")
        refused = self.refusal(spark)
        assert refused.startswith(f"this is Spark {require_spark().spark}")
        assert refused.endswith("for Scala 2.11")

    @pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "25.0.1"])
    def test_of_java(self, spark: SparkSession, version: str) -> None:
        system: Any = spark._jvm.System  # type: ignore[union-attr]
        real = system.setProperty("java.version", version)
        try:
            wanted = f"needs a JDK 17 or 21, but this session's is {version}: install"
            assert wanted in self.refusal(spark)
        finally:
            system.setProperty("java.version", real)


def test_jars_that_cannot_be_had_say_what_to_do(tmp_path: Path) -> None:
    # Every address is that of a proxy which is not there, as without a network.
    program = f"""
import rewrite
from pyspark.sql import SparkSession
rewrite.session(SparkSession.builder.config("spark.jars.ivy", {str(tmp_path)!r}))
"""
    proxy = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=9 -Dhttps.proxyHost=127.0.0.1"
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"{proxy} -Dhttps.proxyPort=9"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert run.returncode == 1
    (last,) = [
        line for line in run.stderr.splitlines() if line.startswith("providers.errors.SessionError")
    ]
    assert "Java exited while Spark was starting" in last
    assert "the first start needs the network" in last
    assert "spark.jars.repositories" in last
    assert "unresolved dependency: io." in run.stderr, "which depends on what the machine has"


def test_a_plain_start_prints_little_and_nothing_that_looks_like_a_fault(tmp_path: Path) -> None:
    program = """
import rewrite
from pyspark.sql import SparkSession
spark = rewrite.session(SparkSession.builder.master("local[1]"))
spark.sql("CREATE TABLE t USING delta AS SELECT 5L AS id")
spark.sql("CREATE SKIPPING INDEX ON t (id MIN_MAX)")
print(spark.sql("SELECT id FROM t WHERE id = 5").collect())
spark.stop()
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("PYSPARK_PYTHON", None)
    told = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        run = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout == "[Row(id=5)]\n"
        told.append(run.stderr)
    first, second = told
    assert "resolution report" in first, "Ivy was asked, once"
    assert "resolution report" not in second
    assert not re.search(r"ERROR|Exception|Traceback|\n\tat ", second), second
    assert len(second.splitlines()) < 20, second


def test_jars_come_too_late_for_a_java_that_runs(tmp_path: Path) -> None:
    program = """
import rewrite
from pyspark.sql import SparkSession
plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
plain.config("spark.driver.host", "127.0.0.1").getOrCreate().stop()
rewrite.session(SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1"))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert run.returncode == 1
    (last,) = [
        line for line in run.stderr.splitlines() if line.startswith("providers.errors.SessionError")
    ]
    assert "Delta's jars are not loaded" in last
    assert "Restart Python" in last
