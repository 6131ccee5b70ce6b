"""Sessions of a user's own that have one table format, or none: `alone.py` runs in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rewrite
from providers.errors import SessionError
from rewrite.session import _settings

pytestmark = [pytest.mark.process, pytest.mark.nightly]

SCRIPT = Path(__file__).with_name("alone.py")
ALWAYS = ["DeltaFormat", "DeltaSource", "IcebergFormat"]  # Java loads them to find the formats
ICEBERG = [f"Iceberg{part}" for part in ("Identity", "Reflection", "Source", "Statistics", "Tasks")]


def run(folder: Path, name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), name],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def formats(seen: dict[str, Any]) -> list[str]:
    return sorted({Path(name).stem.partition("$")[0] for name in seen["loaded"]})


@pytest.mark.parametrize(
    ("name", "classes"), [("iceberg", ICEBERG), ("parquet", []), ("delta", [])]
)
def test_one_format(tmp_path: Path, name: str, classes: list[str]) -> None:
    seen = run(tmp_path, name)
    assert seen["found"] == {"delta": name == "delta", "iceberg": name == "iceberg"}
    assert ("delta" in seen["jars"], "iceberg" in seen["jars"]) == tuple(seen["found"].values())
    assert formats(seen) == sorted(ALWAYS + classes)
    assert seen["python"] == sys.executable
    (whole,) = seen["whole"]
    assert whole >= 4
    assert (seen["described"], seen["shown"]) == (2, 1)
    assert seen["rows"] == [[3, 803], [3, 803]]
    assert seen["read"] == [1]
    assert seen["bound"] == [[3, 803], [804], [1]]
    assert sorted(seen["join"]) == [1, 1], "the fact by the keys, and the dimension has one file"
    assert seen["streamed"] == [1], "the stream has indexed what was written"
    assert seen["new"] == ([9999] if name == "parquet" else [-1])
    if name == "delta":
        assert seen["refusal"] is None
    else:
        assert "the session was started without Delta" in seen["refusal"]
        assert "session without Delta, call rewrite.enable(spark)" in seen["refusal"]


def test_what_a_session_is_given() -> None:
    assert not any("delta" in value.lower() for value in _settings({}, ["iceberg"]).values())
    plain = _settings({"spark.jars.packages": "a:b:1"}, [])
    assert plain["spark.jars.packages"] == "a:b:1"
    assert not any("iceberg" in key or "extensions" in key for key in plain)
    jars = "/jars/delta-spark_4.1_2.13-4.4.0.jar,/jars/iceberg-spark-runtime-4.1_2.13-1.11.0.jar"
    brought = _settings({"spark.jars": jars})
    assert brought["spark.jars"] == jars
    assert "spark.jars.packages" not in brought, "nothing has to be fetched"
    with pytest.raises(SessionError, match="formats are delta and iceberg, not hudi"):
        rewrite.session(formats=["hudi"])
