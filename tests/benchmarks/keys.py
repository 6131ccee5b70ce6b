"""What it costs to bring a join's keys from Spark to the index: as Arrow buffers, and as JSON.

    python -m tests.benchmarks.keys

As in a query, Java calls Python: both ways begin with Catalyst's values in the JVM and end with an
Arrow array in Python. JSON is what a filter in words would be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from rewrite.bridge.authentication import Guarded, make_secret
from rewrite.bridge.compiler import Classes
from rewrite.bridge.message_files import Folder
from rewrite.bridge.messages import _array, read_message
from tests.benchmarks.report import heading, interleaved, ratio, table
from tests.benchmarks.session import benchmark_session

__all__ = ["main"]

ROUNDS = 9
MANY = (1_000, 100_000, 1_000_000)
ARROW = """
rewrite.jvm.bridge.MessageWriter writer = new rewrite.jvm.bridge.MessageWriter();
new rewrite.jvm.bridge.PythonCallback(python, secret, folder)
    .call("0", writer.message(writer.values(type, values)), new rewrite.jvm.bridge.Budget(600));
"""
JSON = """
StringBuilder out = new StringBuilder("[");
for (int i = 0; i < values.size(); i++) {
  Object value = values.get(i);
  if (i > 0) out.append(',');
  out.append(value instanceof Long ? value.toString()
      : rewrite.jvm.bridge.Json.write(value.toString()));
}
python.apply(secret + "0 0", out.append(']').toString());
"""


class Python:
    """What Java calls; keeps what it read."""

    def __init__(self, read: Callable[[Any], pa.Array]) -> None:
        self._read = read
        self.last = pa.array([])

    def apply(self, envelope: str, message: Any) -> bytes:
        self.last = self._read(message)
        return b""


def main() -> None:
    """Print the table."""
    with benchmark_session() as spark:
        lines = [
            (f"{n:,} {type}", *measured(spark, n, type))
            for n in MANY
            for type in ("bigint", "string")
        ]
    heading("Keys of a join on their way to Python, ms", rounds=ROUNDS)
    table(("keys", "Arrow", "JSON", "Arrow/JSON"), lines)


def measured(spark: SparkSession, n: int, type: str) -> tuple[str, str, str]:
    """Median ms of both ways, and their ratio."""
    arrow = {"bigint": pa.int64(), "string": pa.string()}[type]
    folder = Folder()

    def from_buffers(message: bytes | str) -> pa.Array:
        whole = folder.read(message) if isinstance(message, str) else message
        header, buffers = read_message(whole)
        return _array(arrow, header["n"], [buffers[i] for i in header["buffers"]])

    ways = {
        "Arrow": (ARROW, Python(from_buffers)),
        "JSON": (JSON, Python(lambda text: pa.array(json.loads(text), arrow))),
    }
    values = catalyst(spark, n, type)
    arms = {}
    for name, (script, python) in ways.items():
        send = compiled(spark, script, values, type, python, folder)
        send()
        assert len(python.last) == n
        arms[name] = send
    assert ways["Arrow"][1].last.equals(ways["JSON"][1].last)
    seconds = interleaved(arms, rounds=ROUNDS)
    a, b = (f"{1e3 * median(seconds[name]):.1f}" for name in ways)
    return a, b, ratio(seconds["Arrow"], seconds["JSON"])


def catalyst(spark: SparkSession, n: int, type: str) -> Any:
    """A Java list of values as Catalyst has them."""
    jvm: Any = spark.sparkContext._jvm
    if type == "bigint":
        return jvm.java.util.stream.LongStream.range(0, n).boxed().toList()
    text = jvm.org.apache.spark.unsafe.types.UTF8String
    spelled = ",".join(f"key {i}" for i in range(n))
    parts = text.fromString(spelled).split(text.fromString(","), -1)
    # Py4J takes an array for a parameter of Object[] only if it is of that very type.
    objects = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, n)
    jvm.java.lang.System.arraycopy(parts, 0, objects, 0, n)
    return jvm.java.util.Arrays.asList(objects)


def compiled(
    spark: SparkSession, script: str, values: Any, type: str, python: Python, folder: Folder
) -> Callable[[], None]:
    """A few lines of Java that send `values` to `python`."""
    jvm: Any = spark.sparkContext._jvm
    evaluator = jvm.org.codehaus.janino.ScriptEvaluator()
    evaluator.setParentClassLoader(Classes(spark.sparkContext._gateway)._loader)
    types = {
        "python": "java.util.function.BiFunction",
        "secret": "java.lang.String",
        "folder": "java.lang.String",
        "values": "java.util.List",
        "type": "org.apache.spark.sql.types.DataType",
    }
    names = spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(types))
    classes = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, len(types))
    for i, (name, of) in enumerate(types.items()):
        names[i] = name
        classes[i] = jvm.java.lang.Class.forName(of)
    evaluator.setParameters(names, classes)
    thrown = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, 1)
    thrown[0] = jvm.java.lang.Class.forName("java.lang.Exception")
    evaluator.setThrownExceptions(thrown)
    evaluator.cook(script)
    spoken = jvm.org.apache.spark.sql.types.DataType.fromDDL(type)
    given = jvm.java.util.ArrayList()
    secret = make_secret()
    for value in (Guarded(secret, python.apply), secret, str(folder.path), values, spoken):
        given.add(value)
    return lambda: evaluator.evaluate(given.toArray())


if __name__ == "__main__":
    main()
