"""Define how far bounds in a table's own metadata are trusted: one set of rules for all readers.

Delta's log and Iceberg's manifests have a lower and an upper bound of a column for each file. Keys
of joins, lists of values and commands are compared with them without an index, so a writer's
mistake loses rows here. `RULES` defines how far each bound is trusted, for the worst writer
that is known: neither a Delta checkpoint nor an Iceberg manifest has the name of the writer of a
bound. (A Delta commit has a name, but may repeat bounds of another writer: deletion vectors, clones
and RESTORE add files again.) Java receives the same rules as JSON (`BoundRule.java`).

One fault has no rule: iceberg-rust before 0.6 wrote, for any type, the upper bound of one row group
as that of the file (iceberg-rust#1519). Iceberg itself then loses rows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TypeAlias

from providers.values import successor

Bound: TypeAlias = int | float | str | bytes
"""A bound as the formats store it: days, microseconds, the unscaled number of a DECIMAL."""

WIDENED = "widened"
"""Marks a Delta column that had another type when some files were written."""

MAPPED = "mapped"
"""Marks a column of an Iceberg table with a name mapping: files may have been imported."""

_REPLACED = ("\ufffd", "\ufffe")
"""The character that JSON and Java substitute for invalid bytes, and the next character."""

_LARGEST = 3.4028234663852886e38
"""The largest FLOAT; a column may be a DOUBLE now. Larger bounds count as infinity."""

_1973 = 94_694_400_000_000
_1978 = 253_402_387_200_000  # up to the year 10000 in milliseconds, and a day, for any zone
_2200 = 7_258_118_400_000_000
_MILLISECOND = 1_000


@dataclass(frozen=True, slots=True)
class BoundRule:
    """Which bounds a rule covers, and how far to trust them. The first matching rule applies.

    `types` are Spark's, without digits; `digits` is the largest precision of a DECIMAL. `when`
    restricts the rule to columns with WIDENED or MAPPED. Bounds are trusted only if `proves`, if
    they are in `since` <= bound < `until` (microseconds), and if they are not in `never`. `margin`
    widens bounds: by microseconds, a DECIMAL by whole numbers; `bits` n widens them also by 1/2^n
    of their size. An upper bound of `prefix` bytes or more may be the beginning of a longer value.
    `reports` are the bug reports behind the rule.
    """

    formats: tuple[str, ...]
    types: tuple[str, ...]
    reports: tuple[str, ...]
    proves: bool = True
    when: str | None = None
    digits: int = 38
    since: int | None = None
    until: int | None = None
    never: tuple[int, ...] = ()
    margin: int = 0
    bits: int | None = None
    prefix: int | None = None

    def widen(self, lower: Bound, upper: Bound, type: str) -> tuple[Bound, Bound] | None:
        """Return bounds that hold for all values except NaN and null; None if they are not trusted.

        >>> find_rule("iceberg", "timestamp_ntz").widen(10**15, 10**15 + 5, "timestamp_ntz")
        (999999999999000, 1000000000001005)
        """
        if not self.proves or _is_doubtful(lower) or _is_doubtful(upper):
            return None
        if upper < lower:  # type: ignore[operator]  # one type each
            return None
        if isinstance(lower, str | bytes) or isinstance(upper, str | bytes):
            return self._widen_text(lower, upper)
        if lower in self.never or upper in self.never:
            return None
        if self.since is not None and lower < self.since:
            return None
        if self.until is not None and upper >= self.until:
            return None
        if isinstance(lower, float) or isinstance(upper, float):
            return (
                -math.inf if lower <= -_LARGEST else lower,
                math.inf if upper >= _LARGEST else upper,
            )
        low, high = lower - self._slack(lower, type), upper + self._slack(upper, type)
        if type.startswith("decimal"):
            return low, high
        return max(low, -(1 << 63)), min(high, (1 << 63) - 1)

    def _widen_text(self, lower: Bound, upper: Bound) -> tuple[Bound, Bound] | None:
        assert isinstance(upper, str | bytes)
        size = len(upper.encode() if isinstance(upper, str) else upper)
        if self.prefix is None or size < self.prefix:
            return lower, upper
        after = successor(upper)
        return None if after is None else (lower, after)

    def _slack(self, bound: int, type: str) -> int:
        # A bound that was a double for a while was then rounded to the column's scale.
        part = 0 if self.bits is None else (abs(bound) >> self.bits) + 1
        unit: int = 10 ** _scale(type)
        return self.margin * unit + part


_BOTH = ("delta", "iceberg")
_WHOLE = ("boolean", "tinyint", "smallint", "int", "bigint", "date")

RULES = (
    BoundRule(_BOTH, _WHOLE, ("delta PROTOCOL.md, Per-file Statistics", "Iceberg spec, D")),
    # A FLOAT's bound is logged as 0.1, and is 0.10000000149 in the column that is a DOUBLE now.
    BoundRule(("delta",), ("double",), ("delta PROTOCOL.md, Type Widening",), False, WIDENED),
    # NaN is in no bounds, or clears them; the largest number may stand for infinity.
    BoundRule(_BOTH, ("float", "double"), ("delta#7101", "iceberg#2464", "gluten#9335")),
    # delta-rs divides the unscaled number as a double, which is exact up to 15 digits. Beyond, each
    # step loses half a bit of 53, the power of ten up to four: 2^-49 together.
    BoundRule(("delta",), ("decimal",), ("delta-rs#4757",), digits=15),
    # Without a scale, delta-rs cuts the number to 64 bits.
    BoundRule(
        ("delta",),
        ("decimal",),
        ("delta-rs#4757", "delta-rs#3905", "delta-rs#3916"),
        never=(-(1 << 63), (1 << 63) - 1),
        bits=48,
    ),
    # Some writers round to whole numbers, and UniForm copies bounds from Delta's log.
    BoundRule(
        ("iceberg",),
        ("decimal",),
        ("ClickHouse#116999", "delta-rs#4757", "delta#7444"),
        digits=18,
        margin=1,
        bits=48,
    ),
    # Some writers compare row groups' bounds in the wrong byte order, so theirs are wrong.
    BoundRule(("iceberg",), ("decimal",), ("duckdb#23504", "pg_lake#431"), False),
    # Before 1973 the seconds of a zone's offset may be missing; the last zone had some in 1972.
    # Delta's reader moves the upper bound by a millisecond, which is not enough for a checkpoint
    # that another writer cut again.
    BoundRule(
        ("delta",),
        ("timestamp",),
        ("delta#5249", "delta#5568", "trino#31231"),
        since=_1973,
        margin=_MILLISECOND,
    ),
    BoundRule(("delta",), ("timestamp_ntz",), ("trino#31231",), margin=_MILLISECOND),
    # Imported files may have milliseconds or nanoseconds, where Iceberg assumes microseconds.
    BoundRule(("iceberg",), ("timestamp", "timestamp_ntz"), ("iceberg#18173",), False, MAPPED),
    # The same without a name mapping. Milliseconds of any year up to 9999 look like times before
    # 1978, and nanoseconds from April 1970 on like times after 2200. UniForm copies Delta's bounds,
    # cut to the millisecond.
    BoundRule(
        ("iceberg",),
        ("timestamp", "timestamp_ntz"),
        ("delta#7444", "Altinity/ice#61", "delta#5249"),
        since=_1978,
        until=_2200,
        margin=_MILLISECOND,
    ),
    BoundRule(("delta",), ("string",), ("delta PROTOCOL.md, Per-file Statistics",)),
    # Some writers cut upper bounds to 16 bytes without rounding up.
    BoundRule(
        ("iceberg",), ("string", "binary"), ("duckdb-iceberg#1047", "iceberg#16880"), prefix=16
    ),
    # Bounds in footers, by which the Parquet reader skips row groups for keys of joins.
    BoundRule(("parquet",), ("decimal",), ("hyparquet-writer#38", "arrow-rs#10860"), False),
    BoundRule(("parquet",), (*_WHOLE, "float", "double", "string", "binary"), ("parquet-mr",)),
    BoundRule(("parquet",), ("timestamp", "timestamp_ntz"), ("parquet-mr",)),
)

NOTHING = BoundRule((), (), (), False)
"""The rule for bounds that no row of RULES covers."""


@dataclass(frozen=True, slots=True)
class TransformRule:
    """Which partition values of an Iceberg transform may have rows of other partitions.

    If `multiple`: values that are not above 0 or not a multiple of the width; all values, if the
    width is more than a quarter of the type's range. With `within`: values further from 0 than
    this. If `early`: 0 and lower values may have rows of the previous unit.
    """

    transform: str
    reports: tuple[str, ...]
    multiple: bool = False
    within: int | None = None
    early: bool = False


_ROUNDED = ("iceberg#1680", "iceberg-rust#1128", "duckdb-iceberg#1361")

TRANSFORMS = (
    # It wraps around at the smallest values, and at others if the width is large. Writers had the
    # wrong sign, or rounded towards 0, which makes -5 and 5 equal.
    TransformRule(
        "truncate", ("iceberg#9767", "iceberg#18111", "ClickHouse#119576", "iceberg-go#603"), True
    ),
    # Old writers rounded towards 1970. Iceberg's projections consider that, PyIceberg's do not.
    TransformRule("year", _ROUNDED, early=True),
    TransformRule("month", _ROUNDED, early=True),
    TransformRule("day", _ROUNDED, early=True),
    # An INT overflows after 245,000 years; no value up to here can come from an overflow.
    TransformRule("hour", (*_ROUNDED, "iceberg#9713"), within=1_700_000_000, early=True),
)


def find_rule(format: str, type: str, circumstances: Iterable[str] = ()) -> BoundRule:
    """Return the rule for a format and Spark type (`decimal(18,2)`), given WIDENED or MAPPED."""
    name, digits = type.partition("(")[0], _digits(type)
    known = set(circumstances)
    for rule in RULES:
        if format not in rule.formats or name not in rule.types or digits > rule.digits:
            continue
        if rule.when is None or rule.when in known:
            return rule
    return NOTHING


def find_transform(name: str) -> TransformRule:
    """Return the rule for a transform; without one, trust all values."""
    found = (rule for rule in TRANSFORMS if rule.transform == name)
    return next(found, TransformRule(name, ()))


def rules_as_json() -> str:
    """Return the rules as JSON, for Java."""
    return json.dumps(
        {"bounds": list(map(asdict, RULES)), "transforms": list(map(asdict, TRANSFORMS))}
    )


def _is_doubtful(bound: Bound) -> bool:
    if isinstance(bound, float):
        return math.isnan(bound)
    return isinstance(bound, str) and any(c in bound for c in _REPLACED)


def _digits(type: str) -> int:
    found = re.match(r"decimal\((\d+)", type)
    return int(found[1]) if found else 0


def _scale(type: str) -> int:
    found = re.match(r"decimal\(\d+,\s*(\d+)\)", type)
    return int(found[1]) if found else 0
