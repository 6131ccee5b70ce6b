"""A network of IP addresses as a condition on text, which has an order of its own."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

__all__ = ["in_network", "network_of"]

_ANY = "[0-9a-f]{1,4}"
_DIGITS = "0123456789abcdef"
_GROUPS = 8
_LONGEST = 1 << 13  # characters of an expression; those of any network are fewer
_MARK = re.compile(r"\(\?i\)\^\(\?:([0-9a-f:]{2,39}/[0-9]{1,3})\)\{0\}")


def in_network(column: str, network: str) -> str:
    """The condition that a text column has an address of a network, as SQL text.

    For Spark, for WHERE, and wherever a predicate is taken. `column` is spelled as SQL wants it.

    Of IPv4 beginnings are compared, so `10.1.x` is in 10.1.0.0/16, too. Of IPv6 it is a regular
    expression for all spellings in hexadecimal: `::` or zeros, upper and lower case; not for
    those that end as IPv4 does (`::ffff:10.1.0.1`). Raises ValueError for what is no network.

    >>> in_network("ip", "10.1.0.0/16"), in_network("ip", "10.1.2.4/31")
    ("(ip LIKE '10.1.%')", "(ip IN ('10.1.2.4', '10.1.2.5'))")
    >>> in_network("ip", "10.1.64.0/19").count("LIKE")
    32
    >>> in_network("ip", "2001:db8::/32")[:46]
    "(ip RLIKE '(?i)^(?:2001:db8:0:0:0:0:0:0/32){0"
    """
    try:
        found = ipaddress.ip_network(network)
    except ValueError as error:
        raise ValueError(
            f"{network!r} is no network ({error}): give one as 10.1.0.0/16 or 2001:db8::/32"
        ) from None
    if isinstance(found, ipaddress.IPv6Network):
        if found.network_address.scope_id is not None:
            raise ValueError(f"{network!r} is no network: it has a zone")
        return f"({column} RLIKE '{_pattern(found)}')"
    octets = max(1, -(-found.prefixlen // 8))
    parts = [str(part[0]).split(".") for part in found.subnets(new_prefix=8 * octets)]
    starts = [".".join(part[:octets]) for part in parts]
    if octets == 4:
        return f"({column} IN ({', '.join(map(repr, starts))}))"
    return "(" + " OR ".join(f"{column} LIKE '{start}.%'" for start in starts) + ")"


def network_of(pattern: str) -> tuple[bytes, bytes] | None:
    """The first and the last address of the IPv6 network whose condition is this regular
    expression, 16 bytes each; None for any other expression.

    >>> network_of(in_network("ip", "2001:db8::/32")[11:-2])[0].hex()
    '20010db8000000000000000000000000'
    """
    # Queries bring any expressions, which are not all kept.
    mark = _MARK.match(pattern) if len(pattern) <= _LONGEST else None
    return _network_of(pattern, mark[1]) if mark else None


@lru_cache(maxsize=1_024)
def _network_of(pattern: str, marked: str) -> tuple[bytes, bytes] | None:
    try:
        network = ipaddress.IPv6Network(marked)
    except ValueError:
        return None
    # Anybody can write the mark: what counts is that the rest says the same.
    if _pattern(network) != pattern:
        return None
    return network[0].packed, network[-1].packed


def _pattern(network: ipaddress.IPv6Network) -> str:
    """All spellings of its addresses, without an escape, which sessions read in several ways.

    First the network itself no times, which matches always and tells whose expression it is.
    """
    packed, length = network.network_address.packed, network.prefixlen
    values = [int.from_bytes(packed[i : i + 2], "big") for i in range(0, 16, 2)]
    groups = [_group(value, min(max(length - 16 * i, 0), 16)) for i, value in enumerate(values)]
    bound = -(-length // 16)  # groups from here on are any
    spelled = [":".join(groups)]
    for left in range(_GROUPS):
        # `::` is for the groups from `left` to before the last `right`, which have to be 0.
        most = _GROUPS - 1 - left
        if any(values[left : max(left + 1, bound)]):
            rights = range(_GROUPS - bound + 1, most + 1)
        else:
            free = min(_GROUPS - bound, most)
            spelled.append(":".join(groups[:left]) + "::" + _up_to(free))
            rights = range(free + 1, most + 1)
        for right in rights:
            if not any(values[left : _GROUPS - right]):
                after = ":".join(groups[_GROUPS - right :])
                spelled.append(":".join(groups[:left]) + "::" + after)
    # Releases of Python differ in how they spell IPv4 in IPv6.
    mark = ":".join(f"{value:x}" for value in values)
    return f"(?i)^(?:{mark}/{length}){{0}}(?:{'|'.join(spelled)})$"


def _up_to(count: int) -> str:
    """So many groups or fewer."""
    more = f"(?::{_ANY}){{0,{count - 1}}}" if count > 1 else ""
    return f"(?:{_ANY}{more})?" if count else ""


def _group(value: int, bits: int) -> str:
    """The spellings of a group whose first bits are those of `value`."""
    if not bits:
        return _ANY
    digits = []
    for i, digit in enumerate(f"{value:04x}"):
        free = min(max(4 * (i + 1) - bits, 0), 4)
        first = int(digit, 16)
        digits.append(_DIGITS[first : first + (1 << free)])
    spelled = []
    for start in range(4):  # zeros in front may be left out
        if all(some[0] == "0" for some in digits[:start]):
            spelled.append("".join(map(_one_of, digits[start:])))
    return spelled[0] if len(spelled) == 1 else f"(?:{'|'.join(spelled)})"


def _one_of(digits: str) -> str:
    return digits if len(digits) == 1 else f"[{digits}]"
