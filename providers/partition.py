"""PARTITION: the value of a partition column, one value for each file. Every format has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from providers.base import Column, Param
from providers.bounds import BoundsProvider
from providers.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Partition(BoundsProvider):
    """The bounds of a partition column. They are exact: a file has one value, the min and max."""

    kind: ClassVar[str] = "PARTITION"

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> Partition:
        """Index one column; raises DefinitionError for a parameter and for any other column."""
        cls.refuse_others(params)
        (column,) = columns
        if not column.partition:
            raise DefinitionError(
                f"{column.name} is not a partition column of the table: "
                "PARTITION indexes only these, use MIN_MAX or VALUE_LIST"
            )
        return cls(column.domain)
