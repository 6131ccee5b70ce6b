"""Index types: what each stores for a file, and which predicates prune the file.

This package imports neither Spark nor stores nor table formats.
"""

from providers.addresses import Addresses
from providers.base import Collector, Column, Field, Layout, SkippingProvider
from providers.bloom_filter import BloomFilter
from providers.errors import SkippingError
from providers.index_predicate import IndexPredicate, Test
from providers.min_max import MinMax
from providers.ngram import Ngram
from providers.partition import Partition
from providers.predicate import (
    And,
    Between,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.ranges import Ranges
from providers.value_list import ValueList
from providers.values import Domain

__all__ = [
    "Addresses",
    "And",
    "Between",
    "BloomFilter",
    "Collector",
    "Column",
    "Compare",
    "Contains",
    "Domain",
    "EndsWith",
    "Field",
    "In",
    "IndexPredicate",
    "IsNull",
    "Layout",
    "MinMax",
    "Ngram",
    "Or",
    "Partition",
    "Predicate",
    "Ranges",
    "SkippingError",
    "SkippingProvider",
    "StartsWith",
    "Test",
    "Unknown",
    "ValueList",
]
