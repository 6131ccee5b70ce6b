"""Regular expressions that say which addresses there are, as what an index can be asked."""

from __future__ import annotations

import pyarrow as pa

from providers.predicate import InNetworks
from skipping.parser.networks import network_of

__all__ = ["network_predicate"]


def network_predicate(column: str, pattern: str) -> InNetworks | None:
    """The network whose regular expression this is (`in_network`); None for any other."""
    ends = network_of(pattern)
    if ends is None:
        return None
    return InNetworks(column, *(pa.array([end], pa.binary()) for end in ends))
