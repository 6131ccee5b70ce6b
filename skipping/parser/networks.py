"""A network of IP addresses as a condition on text, which has an order of its own."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

__all__ = ["in_network", "network_of", "pattern_of", "read_network", "texts_of"]

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_DIGIT = "[0-9a-f]"
_ANY = _DIGIT + "{1,4}"
_ONE = re.compile(r".|\[[^]]*\]")  # one character, or one of some
_DIGITS = "0123456789abcdef"
_LONGEST = 1 << 10  # characters of an expression; those of any network are fewer
_MARK = re.compile(r"\(\?i\)\^\(\?:([0-9a-f:]{2,39}/[0-9]{1,3})\)\{0\}")


def in_network(column: str, network: str) -> str:
    """The condition that a text column has an address of a network, as SQL text.

    For Spark, for WHERE, and wherever a predicate is taken. `column` is spelled as SQL wants it.

    Of IPv4 beginnings are compared, so `10.1.x` is in 10.1.0.0/16, too. Of IPv6 it is a regular
    expression for all spellings: `::` or zeros, upper and lower case, the end as IPv4 has it
    (`::ffff:10.1.0.1`); without a zone. Raises ValueError for what is no network.

    >>> in_network("ip", "10.1.0.0/16"), in_network("ip", "10.1.2.4/31")
    ("(ip LIKE '10.1.%')", "(ip IN ('10.1.2.4', '10.1.2.5'))")
    >>> in_network("ip", "10.1.64.0/19").count("LIKE")
    32
    >>> in_network("ip", "2001:db8::/32")[:46]
    "(ip RLIKE '(?i)^(?:2001:db8:0:0:0:0:0:0/32){0}"
    """
    found = read_network(network)
    if isinstance(found, ipaddress.IPv6Network):
        return f"({column} RLIKE '{pattern_of(found)}')"
    texts = texts_of(found)
    if not texts[0].endswith("."):
        return f"({column} IN ({', '.join(map(repr, texts))}))"
    return "(" + " OR ".join(f"{column} LIKE '{text}%'" for text in texts) + ")"


def read_network(text: str) -> Network:
    """The network that a text names; raises ValueError for what is none, or has a zone."""
    try:
        found = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is no network ({error}): give one as 10.1.0.0/16 or 2001:db8::/32"
        ) from None
    if isinstance(found, ipaddress.IPv6Network) and found.network_address.scope_id is not None:
        raise ValueError(f"{text!r} is no network: it has a zone")
    return found


def texts_of(network: ipaddress.IPv4Network) -> list[str]:
    """What the addresses of a network begin with; of at most 128 addresses these themselves.

    >>> texts_of(ipaddress.IPv4Network("10.2.0.0/15"))
    ['10.2.', '10.3.']
    """
    octets = max(1, -(-network.prefixlen // 8))
    parts = [str(part[0]).split(".") for part in network.subnets(new_prefix=8 * octets)]
    end = "." if octets < 4 else ""
    return [".".join(part[:octets]) + end for part in parts]


def network_of(pattern: str) -> tuple[bytes, bytes] | None:
    """The first and the last address of the IPv6 network whose condition is this regular
    expression, 16 bytes each; None for any other expression.

    >>> network_of(in_network("ip", "2001:db8::/32")[11:-2])[0].hex()
    '20010db8000000000000000000000000'
    """
    mark = _MARK.match(pattern) if len(pattern) <= _LONGEST else None
    if mark is None:
        return None
    try:
        network = ipaddress.IPv6Network(mark[1])
    except ValueError:
        return None
    # Anybody can write the mark: what counts is that the rest says the same.
    if pattern_of(network) != pattern:
        return None
    return network[0].packed, network[-1].packed


@lru_cache(maxsize=1_024)  # by networks: what queries bring is text of any sort, and is not kept
def pattern_of(network: ipaddress.IPv6Network) -> str:
    """The regular expression of all spellings of its addresses.

    Without an escape, which sessions read in several ways. First the network itself no times, which
    matches always and tells whose expression it is. Then those whose last two groups are spelled,
    by themselves or as IPv4 is, and those where `::` stands for one of these two.
    """
    packed, length = network.network_address.packed, network.prefixlen
    values = [int.from_bytes(packed[i : i + 2], "big") for i in range(0, 16, 2)]
    groups = [_group(value, min(max(length - 16 * i, 0), 16)) for i, value in enumerate(values)]
    last = f"(?:{groups[6]}:{groups[7]}|{_ipv4(packed[12:], max(length - 96, 0))})"
    before = [f"{group}:" for group in groups]
    spelled = [f"{_shortened(before[:6], before[:6], values)}{last}"]
    if cut := _shortened(before, ["", *groups[7:]], values):
        spelled.append(cut)
    # Releases of Python differ in how they spell IPv4 in IPv6.
    mark = ":".join(f"{value:x}" for value in values)
    return f"(?i)^(?:{mark}/{length}){{0}}(?:{'|'.join(spelled)})$"


def _shortened(before: Sequence[str], after: Sequence[str], values: Sequence[int]) -> str:
    """The groups `before`, one after the other, or with `::` for some that are 0 (`values`).

    `after` are those of them that may be spelled after it: the last ones. Where these are fewer
    than all, there has to be a `::`. Empty where nothing is spelled so.
    """
    end = len(before)
    first = end - len(after)
    rest = None if first else ""
    for left in reversed(range(end)):
        ways = []
        # `::` is for the groups from `left` to before another one, which have to be 0.
        until = next((i for i in range(left, end) if values[i]), end)
        nearest = max(left + 1, first + 1 if first else 0)
        if nearest <= until:
            spelled = _or_fewer(after[nearest - first : until - first], after[until - first :])
            ways.append(("" if left else ":") + ":" + spelled)
        if rest is not None:
            ways.append(before[left] + rest)
        if ways:
            rest = ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
    return rest or ""


def _or_fewer(optional: Sequence[str], last: Sequence[str]) -> str:
    """All of the parts, or without the first ones that are optional.

    >>> _or_fewer(["0", "0"], ["1"]), _or_fewer(["0", "[01]"], ["2"])
    ('0{0,2}1', '(?:0?[01])?2')
    """
    spelled = ""
    for i, part in enumerate(optional):
        count = len(optional) - i
        if not spelled and count > 1 and len(set(optional)) == 1:
            one = part if _ONE.fullmatch(part) else f"(?:{part})"
            spelled = f"{one}{{0,{count}}}"
            break
        one = spelled + part
        spelled = f"{one}?" if _ONE.fullmatch(one) else f"(?:{one})?"
    return spelled + "".join(last)


def _group(value: int, bits: int) -> str:
    """The spellings of a group whose first bits are those of `value`."""
    if not bits:
        return _ANY
    digits = []
    for i, digit in enumerate(f"{value:04x}"):
        free = min(max(4 * (i + 1) - bits, 0), 4)
        first = int(digit, 16)
        digits.append(_DIGITS[first : first + (1 << free)])
    # Zeros in front may be left out, but not all four.
    zeros = next((i for i, some in enumerate(digits[:3]) if some[0] != "0"), 3)
    spelled = list(map(_one_of, digits))
    return _or_fewer(spelled[:zeros], spelled[zeros:])


def _one_of(digits: str) -> str:
    """One of some characters in their order.

    >>> _one_of("7"), _one_of("89"), _one_of("06789abcdef")
    ('7', '[89]', '[06-9a-f]')
    """
    runs = [digits[0]]
    for digit in digits[1:]:
        if ord(digit) == ord(runs[-1][-1]) + 1:
            runs[-1] += digit
        else:
            runs.append(digit)
    spelled = "".join(run if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)
    return spelled if len(digits) == 1 else f"[{spelled}]"


def _ipv4(packed: bytes, length: int) -> str:
    """Four numbers with points between, without zeros in front, as `ipaddress` takes them."""
    octets = []
    for i, low in enumerate(packed):
        free = 8 - min(max(length - 8 * i, 0), 8)
        octets.append(_any_of(frozenset(str(n) for n in range(low, low + (1 << free)))))
    return "[.]".join(octets) if length else f"(?:{octets[0]}[.]){{3}}{octets[0]}"


@lru_cache(maxsize=512)
def _any_of(texts: frozenset[str]) -> str:
    """An expression for some short texts, by what may follow their first characters.

    >>> _any_of(frozenset({"8", "9", "10", "11"}))
    '(?:1[01]|[89])'
    """
    follows: dict[str, set[str]] = {}
    for text in texts:
        if text:
            follows.setdefault(text[0], set()).add(text[1:])
    firsts: dict[frozenset[str], str] = {}
    for first, rest in sorted(follows.items()):
        firsts[frozenset(rest)] = firsts.get(frozenset(rest), "") + first
    ways = [
        _one_of(some) + (_any_of(rest) if rest != {""} else "") for rest, some in firsts.items()
    ]
    if "" in texts:
        one = "|".join(ways)
        return f"{one}?" if _ONE.fullmatch(one) else f"(?:{one})?"
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
