"""The two halves of the bridge read alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rewrite.filters import read_message
from rewrite.hooks import installed
from rewrite.java import Classes
from skipping.settings import Settings
from tests.rewrite.differential import settings


@pytest.mark.parametrize(
    "text",
    ["5", "0.5s", ".5 S", "200ms", "250000us", "2m", "1min", "1 h", "1d", "0", "", "-1s", "1 week",
     "1.s", "s", "1e3", "9" * 400, "5 s ec"],
)  # fmt: skip
def test_durations(spark: SparkSession, text: str) -> None:
    """Java waits as long as Python takes the setting to mean; what is wrong is the default."""
    python, _ = Settings.lenient({"spark.skipping.timeout": text})
    assert units(spark).seconds(text, 2.0) == pytest.approx(python.timeout)


@pytest.mark.parametrize(
    "text",
    ["32m", "32 MB", "32mib", "512k", "1000", "7b", "0", "-1", "-1k", "2t", "1p", "", "m", "1.5m",
     "3 x", "1ki", "9bb", "1i", "1ib"],
)  # fmt: skip
def test_sizes(spark: SparkSession, text: str) -> None:
    python, _ = Settings.lenient({"spark.skipping.dynamic.maxBytes": text})
    assert units(spark).bytes(text, 32 << 20) == python.dynamic_max_bytes


def units(spark: SparkSession) -> Any:
    return Classes(spark.sparkContext._gateway).new("Units")


def test_settings(spark: SparkSession) -> None:
    """Only ours cross, whatever is in them."""
    hooks = installed(spark)
    assert hooks is not None
    with settings(spark, {"spark.skipping.store": 'sqlite:/tmp/a "quoted"\\n\u00e9'}):
        assert hooks._settings().store == 'sqlite:/tmp/a "quoted"\\n\u00e9'


class Reader:
    """What Java calls: keeps what it got."""

    class Java:
        implements = ("java.util.function.Function",)

    def apply(self, message: bytes | str) -> bytes:
        self.file = Path(message) if isinstance(message, str) else None
        self.mode = self.file.stat().st_mode & 0o777 if self.file else None
        (self.content,) = read_message(message)[1]
        return b"an answer"


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("encrypted", ["false", "true"])
def test_messages(spark: SparkSession, size: int, encrypted: str) -> None:
    """What is not small goes by a file of the user's own, which is not left behind."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    header = json.dumps({"lengths": [size]}).encode()
    content = bytes(range(250)) * (size // 250) + b"1" * (size % 250)
    reader = Reader()
    callback = Classes(spark.sparkContext._gateway).new("Callback", reader)
    conf.set("spark.io.encryption.enabled", encrypted)
    try:
        answer = callback.call(len(header).to_bytes(4, "little") + header + content)
    finally:
        conf.remove("spark.io.encryption.enabled")
    assert answer == b"an answer"
    assert reader.content == content
    assert (reader.file is not None) == (size > 10 and encrypted == "false")
    if reader.file is not None:
        assert reader.mode == 0o600
        assert not reader.file.exists()
