"""A network of IP addresses as a condition on text, which has an order of its own."""

from __future__ import annotations

import ipaddress

__all__ = ["in_network"]


def in_network(column: str, network: str) -> str:
    """The condition that a text column has an address of an IPv4 network, as SQL text.

    For Spark, for WHERE, and wherever a predicate is taken. `column` is spelled as SQL wants it.
    Beginnings are compared, so `10.1.x` is in 10.1.0.0/16, too. Raises ValueError for what is no
    network, and for one of IPv6, whose addresses have several spellings.

    >>> in_network("ip", "10.1.0.0/16"), in_network("ip", "10.1.2.4/31")
    ("(ip LIKE '10.1.%')", "(ip IN ('10.1.2.4', '10.1.2.5'))")
    >>> in_network("ip", "10.1.64.0/19").count("LIKE")
    32
    """
    try:
        found = ipaddress.IPv4Network(network)
    except ValueError as error:
        raise ValueError(
            f"{network!r} is no IPv4 network ({error}): give one as 10.1.0.0/16; "
            "of IPv6 ask for a prefix, as in ip LIKE '2001:db8:%'"
        ) from None
    octets = max(1, -(-found.prefixlen // 8))
    parts = [str(part[0]).split(".") for part in found.subnets(new_prefix=8 * octets)]
    starts = [".".join(part[:octets]) for part in parts]
    if octets == 4:
        return f"({column} IN ({', '.join(map(repr, starts))}))"
    return "(" + " OR ".join(f"{column} LIKE '{start}.%'" for start in starts) + ")"
