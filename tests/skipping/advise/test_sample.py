"""The values of a sample."""

from __future__ import annotations

import pyarrow as pa

from skipping.advise.sample import ValuesCollector


def test_values_collector_joins_the_parts_of_a_file() -> None:
    collector = ValuesCollector(pa.int64())
    assert collector.bounds == (None, None)
    for values, nulls in (([5, 9], 1), ([], 2), ([7, 9], 0)):
        collector.add(pa.array(values, pa.int64()), nulls)
    assert collector.bounds == (5, 9)
    assert collector.nulls == 3
    assert collector.values.to_pylist() == [5, 9, 7]
