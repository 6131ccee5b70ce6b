"""ADDRESSES(n): the IP addresses in a text column, as intervals of their numbers.

A text that is an IPv4 address without leading zeros, or an IPv6 address in hexadecimal, is stored
as the 16 bytes of the address, in `intervals`; IPv4 is mapped into `::ffff:0:0/96`. All other texts
of a file have intervals of their own, so that `-` and `unknown` do not widen those of addresses.

Conditions compare text, not addresses. Two equal texts are the same address, or both no address. A
text that begins with `10.1.` is an address in 10.1.0.0/16, or no address; with `2001:db8:`, it is
one in 2001:db8::/32, or none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any as Anything
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers import bounds, intervals
from providers.base import Column, Field, Param
from providers.errors import DefinitionError
from providers.index_predicate import (
    AllOf,
    AnyOf,
    FieldCompare,
    IndexPredicate,
)
from providers.predicate import (
    Between,
    In,
    IsNull,
    Leaf,
    Or,
    StartsWith,
    StartsWithAny,
    Unknown,
    Within,
)
from providers.predicate import Compare as Comparison
from providers.simplify import simplify
from providers.values import Domain, domain_of

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = r"\A" + r"\.".join(f"(?P<o{i}>{_OCTET[1:-1]})" for i in range(4)) + r"\z"
_OCTETS = re.compile(rf"(?:{_OCTET}\.){{1,3}}")
_GROUPS = re.compile("(?:[0-9a-fA-F]{1,4}:){1,7}")
# Releases of Python differ in parsing zones and IPv4 endings.
_IPV6 = r"\A[0-9a-fA-F:]{2,39}\z"
_MAPPED = bytes(10) + b"\xff\xff"
_BYTES = Domain("binary", pa.binary())

OTHERS = 4
"""Maximum of intervals of a file's other texts, which are usually one or two words."""


@dataclass(frozen=True, slots=True)
class Addresses(intervals.IntervalsProvider):
    """Intervals of the addresses and of the other texts, and the null count."""

    kind: ClassVar[str] = "ADDRESSES"

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> Addresses:
        """Index one text column; raises DefinitionError for another type, or `n` out of range."""
        (column,) = columns
        n = cls.count_of(params)
        if column.domain != domain_of(pa.string()):
            raise DefinitionError(
                f"ADDRESSES requires a STRING column; {column.name} has values of type "
                f"{column.domain.name}: use RANGES"
            )
        return cls(column.domain, n)

    def fields(self) -> tuple[Field, ...]:
        """Return the ends of all intervals, `others` (1 if there are other texts) and `nulls`."""
        others = intervals.fields(self.domain.stored, OTHERS)
        return (
            *intervals.fields(_BYTES.stored, self.n),
            *(replace(field, name=f"other_{field.name}") for field in others),
            Field("others", pa.int64()),
            Field("nulls", pa.int64()),
        )

    def collector(self) -> AddressesCollector:
        """Return a new collector, for one file."""
        return AddressesCollector(self.domain, self.n)

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Return tests of the addresses OR of the other texts: each value is one of the two."""
        match leaf:
            case Comparison(_, "=", value):
                return self._in(pa.array([value], self.domain.stored))
            case In(_, keys, False):
                return self._in(keys)
            case StartsWith(_, prefix, False):
                asked = self._networks([prefix])
            case StartsWithAny(_, prefixes):
                asked = self._networks(prefixes.to_pylist())
            case IsNull(_, True):
                asked = intervals.rewrite(leaf, _BYTES, self.n)
            case IsNull(_, False):
                return FieldCompare("nulls", ">", 0)
            case _:
                return None  # texts and addresses have different orders
        return None if asked is None else _any(asked, self._others(leaf))

    def _networks(self, prefixes: Sequence[str]) -> IndexPredicate | None:
        """Return tests of the networks that prefixes denote; None if a prefix denotes none."""
        found = [_network(prefix) for prefix in prefixes]
        asked = simplify(Or(tuple(Between("", *ends) if ends else Unknown() for ends in found)))
        if isinstance(asked, Between | Within):
            return intervals.rewrite(asked, _BYTES, self.n)
        return None

    def _in(self, keys: pa.Array) -> IndexPredicate | None:
        addresses, others = _split_addresses(keys)
        asked = intervals.rewrite(In.of("", addresses), _BYTES, self.n) if len(addresses) else None
        return _any(asked, self._others(In.of("", others)) if len(others) else None)

    def _others(self, leaf: Leaf) -> IndexPredicate | None:
        """Return tests of the other texts, and that there are any: else their fields are empty."""
        asked = intervals.rewrite(leaf, self.domain, OTHERS)
        if asked is None:
            return None
        return AllOf((FieldCompare("others", ">", 0), bounds.rename(asked, "other_{}".format)))


def _any(asked: IndexPredicate | None, others: IndexPredicate | None) -> IndexPredicate | None:
    legs = tuple(leg for leg in (asked, others) if leg is not None)
    return AnyOf(legs) if legs else None


class AddressesCollector:
    """Collects the intervals of addresses and of other texts."""

    def __init__(self, domain: Domain, n: int) -> None:
        self._addresses = intervals.IntervalsCollector(_BYTES, n)
        self._others = intervals.IntervalsCollector(domain, OTHERS)
        self._nulls = 0

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Add the texts of a part."""
        self._nulls += nulls
        addresses, others = _split_addresses(distinct)
        self._addresses.add(addresses)
        self._others.add(others)

    def finish(self) -> Mapping[str, Anything] | None:
        """Return the fields' values; None if a cut text cannot be rounded up."""
        addresses, others = self._addresses.finish(), self._others.finish()
        if addresses is None or others is None:
            return None
        known = {f"other_{name}": end for name, end in others.items()}
        return {**addresses, **known, "others": int(bool(others)), "nulls": self._nulls}


def _split_addresses(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the 16 bytes of each distinct text that is an address, and the other texts."""
    octets = pc.extract_regex(texts, _IPV4)
    rest = texts.filter(octets.is_null())
    octets = octets.drop_null()
    numbers = np.empty((len(octets), 16), np.uint8)
    numbers[:, :12] = np.frombuffer(_MAPPED, np.uint8)
    for i in range(4):
        digits = pc.struct_field(octets, f"o{i}")
        numbers[:, 12 + i] = digits.cast(pa.uint8()).to_numpy(zero_copy_only=False)
    buffers = [None, pa.py_buffer(numbers)]
    found = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(numbers), buffers)
    likely = pc.match_substring_regex(rest, _IPV6)
    packed = pa.array(map(_pack, rest.filter(likely).to_pylist()), pa.binary())
    others = [rest.filter(pc.invert(likely)), rest.filter(likely).filter(packed.is_null())]
    return pa.concat_arrays([found.cast(pa.binary()), packed.drop_null()]), pa.concat_arrays(others)


def _pack(text: str) -> bytes | None:
    try:
        return ipaddress.IPv6Address(text).packed
    except ValueError:
        return None


def _network(prefix: str) -> tuple[bytes, bytes] | None:
    """Return the first and last address of a prefix's network; None if no part is complete."""
    if octets := _OCTETS.match(prefix):
        known = _MAPPED + bytes(map(int, octets[0].split(".")[:-1]))
    elif groups := _GROUPS.match(prefix):
        parts = groups[0].split(":")[:-1]
        known = b"".join(int(part, 16).to_bytes(2, "big") for part in parts)
    else:
        return None
    return known.ljust(16, b"\0"), known.ljust(16, b"\xff")
