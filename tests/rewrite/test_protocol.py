"""Both halves of the bridge name things alike: each writes what the golden files say, and reads it.

With SKIPPING_GOLDEN=write, what the halves write becomes the golden files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyroaring import BitMap
from pyspark.sql import SparkSession

import rewrite
from providers import And, Or, Unknown
from rewrite.bridge import protocol
from rewrite.bridge.callbacks import Answers
from rewrite.bridge.classes import Classes
from rewrite.bridge.messages import Reader, read_message
from tests.rewrite.differential import settings

GOLDEN = Path(__file__).parent / "golden"
JAVA = Path(rewrite.__file__).parent / "jvm" / "bridge" / "Protocol.java"

QUERY = """SELECT f.k FROM golden f WHERE f.k <> 7 AND f.f < 1.5
AND NOT (f.s LIKE 'a%' OR f.s IN ('x', 'y\u00e9'))
AND (f.d = 2.50 OR f.d IS NULL) AND f.b AND f.t <=> DATE'2024-02-29' AND f.k % 2 = 1"""

PREDICATE = GOLDEN / "predicate.txt"


def golden(name: str, written: Any = None) -> Any:
    path = GOLDEN / name
    if written is not None and os.environ.get("SKIPPING_GOLDEN") == "write":
        path.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    return json.loads(path.read_text())


def as_json(message: bytes, lengths: list[int]) -> dict[str, Any]:
    """A message for people: its header, and its buffers in hexadecimal."""
    end = 4 + int.from_bytes(message[:4], "little")
    out: dict[str, Any] = {"header": json.loads(message[4:end]), "buffers": []}
    for length in lengths:
        out["buffers"].append(message[end : end + length].hex())
        end += length
    return out


def as_bytes(described: dict[str, Any]) -> bytes:
    head = json.dumps(described["header"]).encode()
    parts = [bytes.fromhex(part) for part in described["buffers"]]
    return b"".join([len(head).to_bytes(4, "little"), head, *parts])


@pytest.fixture
def messages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, tuple[bytes, bytes]]]:
    """What a query asks, and is answered, by the question's name."""
    seen: dict[str, tuple[bytes, bytes]] = {}
    apply = Answers.apply

    def spy(self: Answers, envelope: str, message: bytes | str) -> bytes:
        content = self._content(message)
        answer = apply(self, envelope, content)
        seen[read_message(content)[0][protocol.OP]] = content, answer
        return answer

    monkeypatch.setattr(Answers, "apply", spy)
    columns = "id k, id / 3 f, concat('s', id) s, CAST(id AS decimal(10, 2)) d, id > 1 b"
    store = {"spark.skipping.store": f"sqlite:{tmp_path}/golden.sqlite"}
    with settings(spark, store):
        spark.sql(
            f"CREATE TABLE golden USING delta AS SELECT {columns}, DATE'2024-02-29' t"
            " FROM range(0, 9, 1, 3)"
        )
        spark.sql(
            "CREATE SKIPPING INDEX ON golden (k VALUE_SET, f MIN_MAX, s VALUE_SET, d MIN_MAX,"
            " b VALUE_SET, t MIN_MAX)"
        )
        with settings(spark, {"spark.skipping.timeout": "60 seconds"}):
            spark.sql(QUERY).collect()
        yield seen
        spark.sql("DROP SKIPPING INDEX ON golden")
        spark.sql("DROP TABLE golden")


def without_names(header: dict[str, Any]) -> dict[str, Any]:
    """A header less what differs from run to run."""
    fixed = {
        protocol.TABLE: "a table",
        protocol.INDEX: "an index",
        protocol.GENERATION: 1,
        protocol.ENTRIES_ID: "an id",
        protocol.SECONDS: 0.5,
    }
    return {key: fixed.get(key, value) for key, value in header.items()}


def test_what_both_halves_write(messages: dict[str, tuple[bytes, bytes]]) -> None:
    for op in (protocol.PRUNED, protocol.FILES, protocol.SETTING):
        question, answer = messages[op]
        asked = as_json(question, read_message(question)[0][protocol.LENGTHS])
        asked["header"] = without_names(asked["header"])
        assert asked == golden(f"{op}-question.json", asked)
        if op == protocol.PRUNED:
            header = as_json(answer, [])["header"]
            operands = header[protocol.OPERANDS]
            lengths = [header[protocol.LENGTH], *(operand["length"] for operand in operands)]
            answered = as_json(answer, lengths)
            answered["header"] = without_names(answered["header"])
            kept = golden(f"{op}-answer.json", answered)
            assert without_lengths(answered["header"]) == without_lengths(kept["header"])


def without_lengths(header: dict[str, Any]) -> dict[str, Any]:
    """Bitmaps are as long as the numbers in them want, and files have other numbers each time."""
    assert header[protocol.LENGTH] > 0
    operands = [{**operand, protocol.LENGTH: 0} for operand in header[protocol.OPERANDS]]
    return {**header, protocol.LENGTH: 0, protocol.OPERANDS: operands}


def test_python_reads_what_java_writes() -> None:
    asked = golden("pruned-question.json")
    header, buffers = read_message(as_bytes(asked))
    read = re.sub(r" object at 0x\w+", "", str(Reader(buffers).read(header[protocol.FILTERS])))
    if os.environ.get("SKIPPING_GOLDEN") == "write":
        PREDICATE.write_text(read + "\n")
    assert read + "\n" == PREDICATE.read_text()


def test_of_a_weak_condition_the_side_counts_that_a_negation_leaves() -> None:
    def node(op: str, **more: Any) -> dict[str, Any]:
        return {protocol.OP: op, **more}

    def unknown(why: str) -> dict[str, Any]:
        return node(protocol.UNKNOWN, **{protocol.WHY: why})

    fails = node(protocol.AND, **{protocol.OPERANDS: [unknown("a"), unknown("b")]})
    weak = node(protocol.WEAK, **{protocol.HOLDS: unknown("h"), protocol.FAILS: fails})
    negated = node(protocol.NOT, **{protocol.OPERAND: weak})
    both = And((Unknown("a"), Unknown("b")))  # as it is written: it is not negated again
    assert Reader([]).read(weak) == Unknown("h")
    assert Reader([]).read(negated) == both
    assert Reader([]).read(node(protocol.NOT, **{protocol.OPERAND: negated})) == Unknown("h")
    either = node(protocol.OR, **{protocol.OPERANDS: [weak, negated]})
    assert Reader([]).read(either) == Or((Unknown("h"), both))
    assert Reader([]).read(node(protocol.NOT, **{protocol.OPERAND: either})) == And(
        (both, Unknown("h"))
    )


@pytest.mark.smoke
def test_java_reads_what_python_writes(spark: SparkSession) -> None:
    described = golden("pruned-answer.json")
    classes = Classes(spark.sparkContext._gateway)
    answer = classes.new("bridge.LookupResponse", as_bytes(described))
    assert (answer.index(), answer.table(), answer.generation()) == ("an index", "a table", 1)
    assert answer.failure() is None
    operands = described["header"][protocol.OPERANDS]
    assert answer.operands() == len(operands)
    for place, (operand, part) in enumerate(zip(operands, described["buffers"][1:], strict=True)):
        pruned = BitMap.deserialize(bytes.fromhex(part)) if part else BitMap()
        assert [answer.prunes(place, i) for i in range(9)] == [i in pruned for i in range(9)]
        assert answer.isOf(place, "a dimension") == (operand[protocol.OF] == "a dimension")


@pytest.mark.parametrize("version", [None, protocol.CURRENT - 1, protocol.CURRENT + 1, "1"])
def test_java_reads_no_other_version(spark: SparkSession, version: Any) -> None:
    described = golden("pruned-answer.json")
    described["header"][protocol.VERSION] = version
    with pytest.raises(Py4JJavaError, match="another version"):
        Classes(spark.sparkContext._gateway).new("bridge.LookupResponse", as_bytes(described))


def test_names() -> None:
    """Each half has all names once, and both have the same."""
    java = dict(re.findall(r'String (\w+) = "(\w+)";', JAVA.read_text()))
    (java_version,) = re.findall(r"int CURRENT = (\d+);", JAVA.read_text())
    python = {
        name: value
        for name, value in vars(protocol).items()
        if name.isupper() and isinstance(value, str)
    }
    assert java == python
    assert int(java_version) == protocol.CURRENT
