"""Read the bounds in Iceberg's manifests, as far as `skipping.tables.bounds` trusts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, PrimitiveType
from pyiceberg.utils.decimal import decimal_to_unscaled

from skipping.tables.bounds import MAPPED, BoundRule, find_rule
from skipping.tables.iceberg.schema import spark_type


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """The fields of a data file that PyIceberg's evaluators read."""

    record_count: int
    value_counts: Mapping[int, int] | None
    null_value_counts: Mapping[int, int] | None
    nan_value_counts: Mapping[int, int] | None
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]


class TrustedBounds:
    """The bounds of some columns of a table's files, widened to allow for every known writer."""

    def __init__(self, metadata: TableMetadata, ids: Iterable[int]) -> None:
        """`ids` are the field ids of the columns with a condition."""
        schema = metadata.schema()
        mapped = "schema.name-mapping.default" in metadata.properties
        self._rules: dict[int, tuple[PrimitiveType, str, BoundRule]] = {}
        for id in ids:
            type = schema.find_type(id)
            if isinstance(type, PrimitiveType):
                name = spark_type(str(type))
                rule = find_rule("iceberg", name, (MAPPED,) if mapped else ())
                self._rules[id] = type, name, rule
        # Readers take these values from the partition, which may differ from an imported file.
        self._constant = {
            id: {f.source_id for f in spec.fields if isinstance(f.transform, IdentityTransform)}
            for id, spec in metadata.specs().items()
        }

    def of(self, data: DataFile) -> Any:
        """Return the FileMetrics of a DataFile; each column has both bounds or none."""
        lowers, uppers = data.lower_bounds or {}, data.upper_bounds or {}
        low: dict[int, bytes] = {}
        high: dict[int, bytes] = {}
        for id, rule in self._rules.items():
            if id in lowers and id in uppers and id not in self._constant[data.spec_id or 0]:
                found = _widen(*rule, lowers[id], uppers[id])
                if found is not None:
                    low[id], high[id] = found
        return FileMetrics(
            data.record_count,
            data.value_counts,
            data.null_value_counts,
            data.nan_value_counts,
            low,
            high,
        )


def _widen(
    type: PrimitiveType, name: str, rule: BoundRule, lower: bytes, upper: bytes
) -> tuple[bytes, bytes] | None:
    if not rule.proves:
        return None
    try:
        widened = rule.widen(_value(type, lower), _value(type, upper), name)
        return None if widened is None else (_bytes(type, widened[0]), _bytes(type, widened[1]))
    except Exception:  # bounds of another type than the column has now, or invalid ones
        return None


def _value(type: PrimitiveType, bound: bytes) -> Any:
    value: Any = from_bytes(type, bound)
    return decimal_to_unscaled(value) if isinstance(type, DecimalType) else value


def _bytes(type: PrimitiveType, value: Any) -> bytes:
    if isinstance(type, DecimalType):
        # Not to_bytes: a bound may have more digits than the column.
        size = (int(value).bit_length() + 8) // 8
        return int(value).to_bytes(size, "big", signed=True)
    return bytes(to_bytes(type, value))
