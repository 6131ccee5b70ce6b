"""A network of IPv4 addresses as a condition on text, which has an order of its own."""

from __future__ import annotations

from ipaddress import IPv4Network


def in_network(column: str, network: str) -> str:
    """Return the SQL condition that a text column has an address of an IPv4 network.

    For Spark, for WHERE, and for every method that takes a predicate. `column` is quoted as SQL
    requires. The condition compares beginnings: `10.1.x` is in 10.1.0.0/16, too. Raises ValueError
    if `network` is not an IPv4 network.

    >>> in_network("ip", "10.1.0.0/16"), in_network("ip", "10.1.2.4/31")
    ("(ip LIKE '10.1.%')", "(ip IN ('10.1.2.4', '10.1.2.5'))")
    >>> in_network("ip", "10.1.64.0/19").count("LIKE")
    32
    """
    texts = texts_of(read_network(network))
    if not texts[0].endswith("."):
        return f"({column} IN ({', '.join(map(repr, texts))}))"
    return "(" + " OR ".join(f"{column} LIKE '{text}%'" for text in texts) + ")"


def read_network(text: str) -> IPv4Network:
    """Parse a network; raises ValueError if it is not one of IPv4."""
    try:
        return IPv4Network(text)
    except ValueError as error:
        hint = "; for IPv6 compare prefixes: ip LIKE '2001:db8:%'" if ":" in text else ""
        raise ValueError(
            f"{text!r} is not an IPv4 network such as 10.1.0.0/16 ({error}){hint}"
        ) from None


def texts_of(network: IPv4Network) -> list[str]:
    """Return the prefixes of the addresses of a network, or the addresses if at most 128.

    >>> texts_of(IPv4Network("10.2.0.0/15"))
    ['10.2.', '10.3.']
    """
    octets = max(1, -(-network.prefixlen // 8))
    parts = [str(part[0]).split(".") for part in network.subnets(new_prefix=8 * octets)]
    end = "." if octets < 4 else ""
    return [".".join(part[:octets]) + end for part in parts]
