"""Implement a streaming source of a table's file events, which Spark calls in Python.

It runs in the driver, in the threads of the streaming query, and has no options: nothing is in a
checkpoint or on a page of Spark's but table versions, paths and sizes. An offset is
`{"version": 7}`, the table version that a micro-batch brings the index to; where one batch does not
do, `{"version": 7, "step": 1}` and so on follow it.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from providers.errors import TableError
from skipping.sources.rows import frame_of_rows
from skipping.streaming.protocols import MaintainedIndex

_GIVEN = 8
"""Answers that are held; Java calls from a thread or two, and has read the last one by then."""

_SCHEMA = "version bigint, change string, path string, size bigint"


class FileEvents:
    """The files that a table got and its index has not: a `Source` for Spark.

    A row is a file: the version that was newest as the batch was made, `added`, its path, its size
    in bytes. Files that went are no work, and are not named.
    """

    class Java:
        """The Java interfaces that py4j implements."""

        implements = (
            "org.apache.spark.sql.execution.streaming.Source",
            "org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl",
        )

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        index: Callable[[], MaintainedIndex],
        glimpse: Callable[[], MaintainedIndex],
        guard: Callable[[], AbstractContextManager[None]],
        *,
        limit: int | None,
    ) -> None:
        """`index` opens the index as it is now, `glimpse` may know from before where its table is;
        `limit`: files of one batch at most.

        Under `guard` errors become short ones: Spark searches their text in a way that overflows
        its stack on long ones. It lets none pass while the query is being stopped.
        """
        self._spark = spark
        self._name = name
        self._index = index
        self._glimpse = glimpse
        self._newest = 0
        self._guard = guard
        self._limit = limit
        self.until = 0
        """The table version that the last batch is about."""
        self.opened: MaintainedIndex | None = None
        """The index at the time when Spark requested the last batch."""
        self._given = deque[Any](maxlen=_GIVEN)
        # Made before there is anything to interrupt.
        self._none = self._streaming(frame_of_rows(spark, _SCHEMA, ()))

    def stream(self) -> DataFrame:
        """Return the stream as a DataFrame, not yet started."""
        jvm: Any = self._spark._jvm
        runtime = jvm.org.apache.spark.sql.execution.streaming.runtime
        session = self._spark._jsparkSession
        schema = self.schema()
        output = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(schema)
        relation = runtime.StreamingExecutionRelation(
            self, output, jvm.scala.Option.empty(), session
        )
        dataset = getattr(jvm.org.apache.spark.sql.classic, "Dataset$")
        of_rows = getattr(dataset, "MODULE$").ofRows
        return DataFrame(of_rows(session, relation), self._spark)

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Return the next offset after `start`; `start` itself if the index is complete."""
        with self._guard():
            return self._give(self._latest(start))
        return self._give(start)

    def _latest(self, start: Any) -> Any:
        index = self._glimpse()
        version, state = index.table.version(), index.state
        self._newest = version
        offset = {"version": version}
        at = None if start is None else _read(start)
        done = not index.replaced and (state.status, state.covered, state.revision) == (
            "active",
            version,
            index.revision,
        )
        if at is not None and at[0] == version:
            if done and not state.is_retry_due(time.time()):
                return start
            offset["step"] = at[1] + 1
        return self._offset(offset)

    def getBatch(self, start: Any, end: Any) -> Any:
        """Return the events of one batch as a streaming Dataset.

        While the query is being stopped, the Dataset is empty: Spark continues until it sees that
        its thread was interrupted, and without a Dataset it would log an error of its own.
        """
        with self._guard():
            return self._give(self._events(_read(end)))
        return self._none

    def _events(self, end: tuple[int, int] | None) -> Any:
        index = self.opened = self._index()
        self.until = version = index.table.version() if end is None else end[0]
        try:
            files = index.pending(until=version, retry=False)
        except TableError:  # an offset of a checkpoint, and the log of that version is gone by now
            self.until = version = index.table.version()
            files = index.pending(until=version, retry=False)
        files = files.slice(0, self._limit)
        n = len(files)
        events = pa.table(
            {
                "version": pa.repeat(version, n).cast(pa.int64()),
                "change": pa.repeat("added", n),
                "path": files["path"],
                "size": files["size"],
            }
        )
        return self._streaming(self._spark.createDataFrame(events, _SCHEMA))

    def _streaming(self, frame: DataFrame) -> Any:
        rows = frame._jdf.queryExecution().toRdd()
        return self._spark._jsparkSession.internalCreateDataFrame(rows, self.schema(), True)

    def schema(self) -> Any:
        """Return the schema of the events."""
        jvm: Any = self._spark._jvm
        return self._give(jvm.org.apache.spark.sql.types.StructType.fromDDL(_SCHEMA))

    def getDefaultReadLimit(self) -> Any:
        """None of Spark's: a refresh has its own limit."""
        jvm: Any = self._spark._jvm
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
        return self._give(limit)

    def reportLatestOffset(self) -> Any:
        """Return the newest known version, which Spark shows in its progress."""
        return self._give(self._offset({"version": self._newest}))

    def getOffset(self) -> Any:
        """Return `latestOffset` without a start, which Spark calls at first."""
        jvm: Any = self._spark._jvm
        return self._give(jvm.scala.Some(self.latestOffset(None, None)))

    def initialOffset(self) -> Any:
        """Spark does not call this for such a source."""
        raise NotImplementedError

    def deserializeOffset(self, text: str) -> Any:
        """Spark does not call this for such a source."""
        raise NotImplementedError

    def commit(self, end: Any) -> None:
        """Do nothing: the store has the state."""

    def stop(self) -> None:
        """Nothing to do."""

    def toString(self) -> str:
        """Return the name in Spark's progress and UI."""
        return f"FileEvents[{self._name}]"

    def hashCode(self) -> int:
        """Java's."""
        return id(self) & 0x7FFFFFFF

    def equals(self, other: object) -> bool:
        """Java's."""
        return other is self

    def _give(self, answer: Any) -> Any:
        """Hold what Java is given: Py4J lets go of it as soon as Python does, which at times is
        before Java has read the reply that names it.
        """
        self._given.append(answer)
        return answer

    def _offset(self, offset: dict[str, int]) -> Any:
        jvm: Any = self._spark._jvm
        runtime = jvm.org.apache.spark.sql.execution.streaming.runtime
        return runtime.SerializedOffset(json.dumps(offset))


def _read(offset: Any) -> tuple[int, int] | None:
    """Return the version and the step of an offset; None for another source's offset."""
    try:
        found = json.loads(offset.json())
        version, step = found["version"], found.get("step", 0)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    sound = all(type(number) is int and abs(number) < 1 << 63 for number in (version, step))
    return (version, step) if sound else None
