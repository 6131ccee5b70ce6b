"""Networks as conditions on text: which addresses they hold, as `ipaddress` has it."""

from __future__ import annotations

import ipaddress
import random

import pytest

from providers import Or, Predicate
from providers.predicate import Leaf
from skipping import in_network
from skipping.filters.sql import as_predicate
from skipping.parser.condition import Negation, parse_condition
from skipping.parser.errors import StatementError
from skipping.tables import Columns, TableColumn
from tests.providers.spark_oracle import matches

COLUMNS = Columns((TableColumn("ip", "ip", "string"),))


def holds(predicate: Predicate, text: str) -> bool:
    legs = predicate.legs if isinstance(predicate, Or) else (predicate,)
    assert all(isinstance(leg, Leaf) for leg in legs)
    return any(matches(leg, [text]) for leg in legs)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", range(33))
def test_a_network_has_its_addresses_and_no_others(length: int) -> None:
    rng = random.Random(length)
    for _ in range(3):
        base = ipaddress.IPv4Address(rng.getrandbits(32))
        network = ipaddress.ip_network((base, length), strict=False)
        asked = as_predicate(in_network("ip", str(network)), COLUMNS)
        ends = [int(network[0]), int(network[-1]), int(base)]
        near = [end + by for end in ends for by in (-256, -1, 0, 1, 65536)]
        for number in [n for n in near if 0 <= n < 2**32] + [rng.getrandbits(32)]:
            address = ipaddress.IPv4Address(number)
            assert holds(asked, str(address)) == (address in network), (network, address)


def test_condition_refuses_rlike() -> None:
    with pytest.raises(StatementError, match="unexpected RLIKE"):
        parse_condition("ip RLIKE '(?i)^2001:db8:'")


@pytest.mark.parametrize("network", ["10.1.64.0/19", "10.1.0.0/16", "10.1.2.4/31"])
def test_a_text_may_call_it(network: str) -> None:
    called = f"IN_NETWORK (ip, '{network}')"
    assert parse_condition(called) == parse_condition(in_network("ip", network))
    assert parse_condition(f"NOT {called}") == Negation(parse_condition(called))
    assert parse_condition(f"in_network = 1 OR {called}")  # a column may have its name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("in_network(ip, '10.1.0.1/16')", "is not an IPv4 network"),
        ("in_network(ip, '2001:db8::/32')", "for IPv6 compare prefixes"),
        ("in_network(ip, '10.1.0.0/16', 2)", "unexpected ,"),
        ("in_network(ip)", "unexpected [)]"),
        ("in_network(5, '10.1.0.0/16')", "must be a text column"),
        ("in_network(DATE '2024-01-01', '10.1.0.0/16')", "must be a text column"),
        ("in_network(lower(ip), '10.1.0.0/16')", "lower is a function"),
        (" OR ".join(["in_network(ip, '0.0.0.0/1')"] * 8), "more than 1,000 tests"),
    ],
)
def test_a_wrong_call_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatementError, match=message):
        parse_condition(text)


@pytest.mark.parametrize(
    "given",
    [
        "10.1.0.1/16",
        "2001:db8::/32",
        "::ffff:10.1.0.0/112",
        "fe80::%1/10",
        "10.1",
        "x",
        "",
        "10.0.0.0/33",
    ],
)
def test_in_network_refuses_what_is_not_ipv4(given: str) -> None:
    with pytest.raises(ValueError, match="is not an IPv4 network"):
        in_network("ip", given)
