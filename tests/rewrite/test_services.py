"""What a server refuses before it starts Spark."""

from __future__ import annotations

import pytest

from providers.errors import SettingError
from rewrite import serve, services
from rewrite.services import Address, Connect

LOOPBACK, ANYWHERE = Address("127.0.0.1", 0), Address("0.0.0.0", 0)
WITH_JAR = {"spark.jars.packages": "org.apache.spark:spark-connect_2.12:3.5.9"}


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "RELEASE", (3, 5))
    monkeypatch.setattr(serve, "RELEASE", (3, 5))


@pytest.mark.usefixtures("old")
def test_require_support_of_connect_on_spark_3_5() -> None:
    with pytest.raises(SettingError, match="has no Spark Connect server: use --thrift"):
        Connect.require_support({}, LOOPBACK)
    Connect.require_support(WITH_JAR, LOOPBACK)
    with pytest.raises(SettingError, match="cannot authenticate clients: let it listen on 127"):
        Connect.require_support(WITH_JAR, ANYWHERE)


@pytest.mark.usefixtures("old")
def test_serve_refuses_connect_on_spark_3_5_even_without_authentication() -> None:
    given = serve._parse(
        [
            "--connect",
            "0.0.0.0:0",
            "--without-authentication",
            "--conf",
            "spark.jars=spark-connect.jar",
        ]
    )
    with pytest.raises(SettingError, match="cannot authenticate clients"):
        serve._require_authentication(given)


@pytest.mark.usefixtures("old")
def test_serve_offers_thrift_on_spark_3_5() -> None:
    given = serve._parse([])
    assert (given.connect, given.thrift) == (None, Address("127.0.0.1", 10000))


def test_connect_is_supported_since_4_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "RELEASE", (4, 0))
    Connect.require_support({}, ANYWHERE)
