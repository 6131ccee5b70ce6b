"""Networks as conditions on text: which addresses they hold, as `ipaddress` has it."""

from __future__ import annotations

import ipaddress
import random
import re

import pytest

from providers import Or, Predicate, Unknown
from providers.predicate import InNetworks, Leaf, leaves, negate
from providers.simplify import simplify
from skipping import in_network
from skipping.filters.networks import network_predicate
from skipping.filters.sql import as_predicate
from skipping.parser.condition import LONGEST, Negation, parse_condition
from skipping.parser.errors import StatementError
from skipping.parser.networks import network_of
from skipping.tables import Columns, TableColumn
from tests.providers import test_addresses as addresses
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


def spelled(rng: random.Random, number: int) -> str:
    """An IPv6 address in some spelling: zeros in front, upper case, `::` for some of the zeros, the
    end as IPv4 has it; now and then one that is none."""
    groups = [number >> 112 - 16 * i & 0xFFFF for i in range(8)]
    texts = [rng.choice([f"{g:x}", f"{g:X}", f"{g:03x}", f"{g:04X}"]) for g in groups]
    if rng.random() < 0.4:
        octets = list(map(str, (number & 0xFFFFFFFF).to_bytes(4, "big")))
        if rng.random() < 0.1:
            octets[rng.randrange(4)] += rng.choice("0.")
        texts[6:] = [rng.choice(["", "", "", "", "0"]) + ".".join(octets)]
    count = len(texts)
    zeros = [(a, b) for a in range(8) for b in range(a + 1, 9) if not any(groups[a:b])]
    zeros = [(a, b) for a, b in zeros if count == 8 or b < count]
    if zeros and rng.random() < 0.7:
        a, b = rng.choice(zeros)
        text = ":".join(texts[:a]) + "::" + ":".join(texts[b:])
    else:
        text = ":".join(texts)
    if rng.random() < 0.1:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([":", "0", ".", "", "::", "f", "g", " "]) + text[at + 1 :]
    return text


def is_in(text: str, network: ipaddress.IPv6Network) -> bool:
    try:
        return ipaddress.IPv6Address(text) in network
    except ValueError:
        return False


def pattern(network: ipaddress.IPv6Network) -> str:
    return in_network("ip", str(network)).removeprefix("(ip RLIKE '").removesuffix("')")


@pytest.mark.parametrize("length", [*range(0, 128, 5), 16, 32, 48, 64, 96, 112, 127, 128])
def test_all_spellings_of_a_network_of_ipv6_and_no_others(length: int) -> None:
    rng = random.Random(length)
    for _ in range(4):
        some = [0, 0, 0, 1, 0xDB8, 0x2001, 0xFFFF, 0x0A01, rng.getrandbits(16)]
        groups = [rng.choice(some) for _ in range(8)]
        base = int.from_bytes(b"".join(group.to_bytes(2, "big") for group in groups), "big")
        network = ipaddress.IPv6Network((base, length), strict=False)
        wanted = pattern(network)
        assert network_of(wanted) == (network[0].packed, network[-1].packed)
        ends = [int(network[0]), int(network[-1]), base]
        near = [end + by for end in ends for by in (-1, 0, 1)] + [base ^ 1 << rng.randrange(128)]
        for number in [n for n in near if 0 <= n < 1 << 128]:
            for text in (spelled(rng, number) for _ in range(5)):
                found = re.search(wanted, text) is not None
                assert found == is_in(text, network), (network, text)


@pytest.mark.parametrize(
    ("network", "texts"),
    [
        ("::ffff:0:0/96", {"::ffff:1.2.3.4", "::FFFF:a01:203", "0:0:0:0:0:ffff:255.255.255.255"}),
        ("::ffff:10.0.0.0/104", {"::ffff:10.2.3.4", "0::ffff:a02:304", "::0:ffff:10.0.0.0"}),
        ("64:ff9b::/96", {"64:ff9b::1.2.3.4", "64:ff9b::", "64:ff9b:0::0:1.2.3.4", "64:ff9b::1"}),
        ("::/0", {"::", "::1.2.3.4", "1::", "1:2:3:4:5:6:7::", "1:2:3:4:5:6:9.8.7.6", "fe80::1"}),
    ],
)
def test_ends_as_ipv4_has_them(network: str, texts: set[str]) -> None:
    wanted = ipaddress.IPv6Network(network)
    none = {
        "1.2.3.4",
        "::1.2.3",
        "::01.2.3.4",
        "::1.2.3.256",
        "1:2:3:4:5:6:7:1.2.3.4",
        "::1.2.3.4:5",
    }
    none |= {"1:2:3:4:5:6::1.2.3.4", "::1.2.3.4.5", ":1.2.3.4", "::1.2.3.4::", "::\u0661.2.3.4", ""}
    for text in texts | none | {"2001:db8::1", "::ffff:11.2.3.4", "64:ff9c::1.2.3.4"}:
        assert (re.search(pattern(wanted), text) is not None) == is_in(text, wanted), text
    assert all(is_in(text, wanted) for text in texts)


def test_several_networks_fit_into_one_text() -> None:
    rng = random.Random(4)
    bases = [0, 1 << 127, 0xFFFF << 32, (1 << 128) - 1, 0x20010DB8 << 96, rng.getrandbits(128)]
    nets = {ipaddress.IPv6Network((b, n), strict=False) for b in bases for n in range(129)}
    texts = sorted({in_network("ip", str(net)) for net in nets}, key=len)
    assert len(texts[-1]) < LONGEST / 8 - len(" OR ")
    assert all(network_of(pattern(net)) is not None for net in nets)
    leaf = simplify(as_predicate(" OR ".join(texts[-8:]), COLUMNS))
    (asked,) = leaves(leaf)
    assert isinstance(asked, InNetworks)
    apart = [in_network("ip", f"2001:db8:{n:x}::/48") for n in range(1, 32, 2)]
    (asked,) = leaves(simplify(as_predicate(" OR ".join(apart[:12]), COLUMNS)))
    assert isinstance(asked, InNetworks)
    assert len(asked.starts) == 12


def test_only_its_own_expression_is_that_of_a_network() -> None:
    wanted = pattern(ipaddress.IPv6Network("2001:db8::/32"))
    others = [wanted + "x", wanted.replace("db8", "db9", 1), wanted[:-1], "", "(?i)^(?:x/1){0}"]
    for other in others:
        assert network_of(other) is None
    with pytest.raises(StatementError, match="RLIKE takes what in_network writes"):
        as_predicate("ip RLIKE '^2001:'", COLUMNS)


def test_what_nothing_says_of_a_negation_is_unknown() -> None:
    condition = in_network("ip", "2001:db8::/32")
    asked = as_predicate(f"{condition} OR {in_network('ip', 'fe80::/10')}", COLUMNS)
    (leaf,) = leaves(simplify(asked))
    assert isinstance(leaf, InNetworks)
    assert len(leaf.starts) == 2
    assert isinstance(simplify(as_predicate(f"NOT {condition}", COLUMNS)), Unknown)
    assert isinstance(simplify(negate(asked)), Unknown)


def test_no_text_that_the_expression_takes_is_lost() -> None:
    rng = random.Random(8)
    skipped_in_all = 0
    for _ in range(40):
        files = [[addresses.text(rng) for _ in range(rng.choice([1, 4, 20]))] for _ in range(6)]
        kept = addresses.index(files, n=rng.choice([2, 4, 16]))
        for base in (0x20010DB8 << 96, 0xFFFF << 32 | 0x0A010203, rng.getrandbits(64), 1 << 112):
            network = ipaddress.IPv6Network((base, rng.choice([8, 16, 32, 100, 120])), strict=False)
            leaf = network_predicate("x", pattern(network))
            assert leaf is not None
            skipped = kept.skipped_raw(leaf)
            for i in skipped:
                assert not any(re.search(pattern(network), each) for each in files[i]), network
            skipped_in_all += len(skipped)
    assert skipped_in_all > 200


@pytest.mark.parametrize("network", ["10.1.64.0/19", "10.1.0.0/16", "10.1.2.4/31", "2001:db8::/32"])
def test_a_text_may_call_it(network: str) -> None:
    called = f"IN_NETWORK (ip, '{network}')"
    assert parse_condition(called) == parse_condition(in_network("ip", network))
    assert parse_condition(f"NOT {called}") == Negation(parse_condition(called))
    assert parse_condition(f"in_network = 1 OR {called}")  # a column may have its name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("in_network(ip, '10.1.0.1/16')", "is no network"),
        ("in_network(ip, '10.1.0.0/16', 2)", ", cannot stand here"),
        ("in_network(ip)", "[)] cannot stand here"),
        ("in_network(5, '10.1.0.0/16')", "takes a text"),
        ("in_network(DATE '2024-01-01', '10.1.0.0/16')", "takes a text"),
        ("in_network(lower(ip), '10.1.0.0/16')", "lower is a function"),
        (" OR ".join(["in_network(ip, '0.0.0.0/1')"] * 8), "at most 1,000 tests"),
    ],
)
def test_a_wrong_call_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatementError, match=message):
        parse_condition(text)


@pytest.mark.parametrize(
    "given", ["10.1.0.1/16", "2001:db8::1/32", "fe80::%1/10", "10.1", "x", "", "10.0.0.0/33"]
)
def test_what_is_no_network_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="is no network"):
        in_network("ip", given)
