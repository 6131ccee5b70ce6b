"""Networks as conditions on text: which addresses they hold, as `ipaddress` has it."""

from __future__ import annotations

import ipaddress
import random

import pytest

from providers import Or, Predicate
from providers.predicate import Leaf
from skipping import in_network
from skipping.lookup.conditions import as_predicate
from skipping.tables import Columns, TableColumn
from tests.providers.spark_oracle import matches

COLUMNS = Columns((TableColumn("ip", "ip", "string", ("ip",)),))


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


@pytest.mark.parametrize("text", ["10.1.0.1/16", "2001:db8::/32", "10.1", "x", "", "10.0.0.0/33"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no IPv4 network"):
        in_network("ip", text)
