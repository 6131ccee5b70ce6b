"""Convert an IPv4 network to a SQL condition on a text column."""

from __future__ import annotations

from ipaddress import IPv4Network


def in_network(column: str, network: str) -> str:
    """Return the SQL condition that a text column contains an address in an IPv4 network.

    The result works in Spark SQL, in WHERE, and in every method that takes a predicate. Quote
    `column` as SQL requires. The condition compares prefixes, so it is also true for text that is
    not an address, such as `10.1.x` in 10.1.0.0/16. Raises ValueError if `network` is not an IPv4
    network.

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
    """Parse an IPv4 network; raise ValueError for other text."""
    try:
        return IPv4Network(text)
    except ValueError as error:
        hint = "; for IPv6 compare prefixes: ip LIKE '2001:db8:%'" if ":" in text else ""
        raise ValueError(
            f"{text!r} is not an IPv4 network such as 10.1.0.0/16 ({error}){hint}"
        ) from None


def texts_of(network: IPv4Network) -> list[str]:
    """Return prefixes that cover the addresses of a network; from /25 on, the addresses.

    >>> texts_of(IPv4Network("10.2.0.0/15"))
    ['10.2.', '10.3.']
    """
    octets = max(1, -(-network.prefixlen // 8))
    parts = [str(part[0]).split(".") for part in network.subnets(new_prefix=8 * octets)]
    end = "." if octets < 4 else ""
    return [".".join(part[:octets]) + end for part in parts]
