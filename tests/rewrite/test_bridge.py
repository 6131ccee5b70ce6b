"""The two halves of the bridge read alike."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from rewrite.hooks import installed
from skipping.settings import Settings
from tests.rewrite.differential import settings


@pytest.mark.parametrize(
    "text",
    ["5", "0.5s", ".5 S", "200ms", "250000us", "2m", "1min", "1 h", "1d", "0", "", "-1s", "1 week",
     "1.s", "s", "1e3", "9" * 400, "5 s ec"],
)  # fmt: skip
def test_durations(spark: SparkSession, text: str) -> None:
    """Java waits as long as Python takes the setting to mean; what is wrong is the default."""
    hooks = installed(spark)
    assert hooks is not None
    python, _ = Settings.lenient({"spark.skipping.timeout": text})
    java = hooks.java.seconds(text)
    assert (java if java > 0 else Settings().timeout) == pytest.approx(python.timeout)


def test_settings(spark: SparkSession) -> None:
    """Only ours cross, whatever is in them."""
    hooks = installed(spark)
    assert hooks is not None
    with settings(spark, {"spark.skipping.store": 'sqlite:/tmp/a "quoted"\\n\u00e9'}):
        assert hooks._settings().store == 'sqlite:/tmp/a "quoted"\\n\u00e9'
