"""The two halves of the bridge read alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rewrite.bridge.authentication import Guarded, make_secret
from rewrite.bridge.classes import Classes
from rewrite.bridge.install import find_hooks
from rewrite.bridge.message_files import Folder
from rewrite.bridge.messages import read_message
from skipping.config.settings import Settings
from tests.rewrite.differential import settings


@pytest.mark.parametrize(
    "text",
    ["5", "0.5s", ".5 S", "200ms", "250000us", "2m", "1min", "1 h", "1d", "0", "", "-1s", "1 week",
     "1.s", "s", "1e3", "9" * 400, "5 s ec", "30 seconds", "40 milliseconds", "\u0663"],
)  # fmt: skip
def test_durations(spark: SparkSession, text: str) -> None:
    """Java waits as long as Python takes the setting to mean; what is wrong is the default."""
    python, _ = Settings.lenient({"spark.skipping.timeout": text})
    with settings(spark, {"spark.skipping.timeout": text}):
        client = _client(spark)
        client.countPlan()
        assert client.budget().remaining() / 1e9 == pytest.approx(python.timeout)


@pytest.mark.parametrize(
    "text",
    ["32m", "32 MB", "32mib", "512k", "1000", "7b", "0", "-1", "-1k", "2t", "1p", "", "m", "1.5m",
     "3 x", "1ki", "9bb", "1i", "1ib"],
)  # fmt: skip
def test_sizes(spark: SparkSession, text: str) -> None:
    python, _ = Settings.lenient({"spark.skipping.dynamic.maxBytes": text})
    with settings(spark, {"spark.skipping.dynamic.maxBytes": text}):
        assert _client(spark).maxBytes() == python.dynamic_max_bytes


def _client(spark: SparkSession) -> Any:
    hooks = find_hooks(spark)
    assert hooks is not None
    return hooks.java.client()


@pytest.mark.smoke
def test_settings(spark: SparkSession) -> None:
    """Only ours cross, whatever is in them."""
    hooks = find_hooks(spark)
    assert hooks is not None
    with settings(spark, {"spark.skipping.store": 'sqlite:/tmp/a "quoted"\\n\u00e9'}):
        name = hooks.java.client().settings().name(spark._jsparkSession.sessionState().conf())
        assert hooks.lookups.settings(name).store == 'sqlite:/tmp/a "quoted"\\n\u00e9'


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("encrypted", ["false", "true"])
def test_messages(spark: SparkSession, size: int, encrypted: str) -> None:
    """What is not small goes by a file of the user's own, which is not left behind."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    header = json.dumps({"lengths": [size]}).encode()
    content = bytes(range(250)) * (size // 250) + b"1" * (size % 250)
    message = len(header).to_bytes(4, "little") + header + content
    folder, secret = Folder(), make_secret()
    asked: list[tuple[str, bytes | str, int | None]] = []

    def answer(envelope: str, given: bytes | str) -> bytes:
        mode = (folder.path / given).stat().st_mode & 0o777 if isinstance(given, str) else None
        asked.append((envelope, given, mode))
        (buffer,) = read_message(folder.read(given) if isinstance(given, str) else given)[1]
        assert buffer == content
        return b"an answer"

    classes = Classes(spark.sparkContext._gateway)
    guarded = Guarded(secret, answer)
    callback = classes.new("bridge.PythonCallback")
    callback.connect(guarded, secret, str(folder.path))
    conf.set("spark.io.encryption.enabled", encrypted)
    try:
        assert callback.call("7", message, classes.new("bridge.Budget", 5.0)) == b"an answer"
    finally:
        conf.remove("spark.io.encryption.enabled")
    ((envelope, given, mode),) = asked
    name, left = envelope.split(" ")
    assert name == "7"
    assert 4_000_000 < int(left) <= 5_000_000
    assert isinstance(given, str) == (size > 10 and encrypted == "false")
    assert mode in (None, 0o600)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert list(folder.path.iterdir()) == []
    folder.remove()
    assert not folder.path.exists()
