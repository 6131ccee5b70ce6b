"""What it costs to bring a join's keys from Spark to the index: as Arrow buffers, and as JSON.

    python -m tests.benchmarks.keys

Both ways begin with Catalyst's values in the JVM and end with an Arrow array in Python. JSON is
what a filter in words would be.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from rewrite.filters import _array, read_message
from rewrite.java import Classes
from tests.benchmarks.session import benchmark_session

ROUNDS = 5


def timed(work: Callable[[], pa.Array], n: int) -> float:
    started = time.perf_counter()
    assert len(work()) == n
    return time.perf_counter() - started


def main() -> None:
    with benchmark_session() as spark:
        measure(spark)


def measure(spark: SparkSession) -> None:
    """Print the table."""
    jvm: Any = spark.sparkContext._jvm
    classes = Classes(spark.sparkContext._gateway)
    types = jvm.org.apache.spark.sql.types.DataTypes
    text = jvm.org.apache.spark.unsafe.types.UTF8String
    print(f"{'keys':>10} {'type':>8} {'Arrow ms':>10} {'JSON ms':>10} {'ratio':>6}")
    for n in (1_000, 100_000, 1_000_000):
        for name, arrow, type in (
            ("bigint", pa.int64(), types.LongType),
            ("string", pa.string(), types.StringType),
        ):
            numbers = jvm.java.util.stream.LongStream.range(0, n).boxed().toList()
            if name == "bigint":
                values = numbers
            else:
                spelled = ",".join(f"key {i}" for i in range(n))
                parts = text.fromString(spelled).split(text.fromString(","), -1)
                # Py4J takes an array for a parameter of Object[] only if it is of that very type.
                objects = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, n)
                jvm.java.lang.System.arraycopy(parts, 0, objects, 0, n)
                values = jvm.java.util.Arrays.asList(objects)

            def by_arrow(values: Any = values, type: Any = type, arrow: Any = arrow) -> pa.Array:
                question = classes.new("Question")
                laid_out = question.values(type, values)
                header, buffers = read_message(bytes(question.message(laid_out)))
                return _array(arrow, header["n"], [buffers[i] for i in header["buffers"]])

            def by_json(values: Any = values, name: str = name, arrow: Any = arrow) -> pa.Array:
                if name == "bigint":
                    listed = json.loads(values.toString())
                else:
                    quoted = values.toString()[1:-1].split(", ")
                    listed = json.loads(json.dumps(quoted))
                return pa.array(listed, arrow)

            pairs = [(timed(by_arrow, n), timed(by_json, n)) for _ in range(ROUNDS)]
            a, b = (1e3 * statistics.median(each) for each in zip(*pairs, strict=True))
            print(f"{n:>10,} {name:>8} {a:>10.1f} {b:>10.1f} {a / b:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
