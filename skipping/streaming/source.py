"""Implement a streaming source that returns a table's new files; Spark calls it in Python.

It runs in the driver, in the threads of the streaming query. It has no options, so checkpoints and
Spark's UI contain only table versions, paths and sizes. An offset is `{"version": 7}`: the table
version that the index covers after the micro-batch. If one batch is not enough,
`{"version": 7, "step": 1}` and so on follow.
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
from skipping.spark_api import classic, create_frame, parse_schema, streaming, streaming_relation
from skipping.streaming.protocols import MaintainedIndex

_REFERENCES = 8  # number of recent results that Python keeps alive for Java: see `_keep_alive`
_SCHEMA = "version bigint, change string, path string, size bigint"


class FileEvents:
    """A Spark `Source` of the files that a table contains and its index does not.

    A row is a file: the table version of the batch, `added`, the path, and the size in bytes.
    Removed files need no work, so they are not returned.
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
        """Create a source for the table `name`.

        `index` opens the index. `glimpse` is faster: it may reuse the table's location. `limit` is
        the maximum number of files of a batch. `guard` shortens the text of errors, because Spark's
        regular expressions overflow the stack on long ones. It suppresses errors while the query is
        being stopped.
        """
        self._spark = spark
        self._name = name
        self._index = index
        self._glimpse = glimpse
        self._newest = 0
        self._guard = guard
        self._limit = limit
        self.until = 0
        """The table version of the last batch."""
        self.opened: MaintainedIndex | None = None
        """The index as it was when Spark requested the last batch."""
        self._references = deque[Any](maxlen=_REFERENCES)
        # Created here, because Spark may interrupt the thread that calls `getBatch`.
        self._empty = self._streaming(frame_of_rows(spark, _SCHEMA, ()))

    def stream(self) -> DataFrame:
        """Return the stream as a DataFrame; it is not started yet."""
        jvm: Any = self._spark._jvm
        session = self._spark._jsparkSession
        schema = self.schema()
        output = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(schema)
        relation = streaming_relation(jvm, self, output, session)
        dataset = getattr(classic(jvm), "Dataset$")
        of_rows = getattr(dataset, "MODULE$").ofRows
        return DataFrame(of_rows(session, relation), self._spark)

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """Return the next offset after `start`; `start` itself if the index is complete."""
        with self._guard():
            return self._keep_alive(self._latest(start))
        return self._keep_alive(start)

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
            if done and not state.is_retry_due(time.time()) and not index.is_adaptation_due:
                return start
            offset["step"] = at[1] + 1
        return self._offset(offset)

    def getBatch(self, start: Any, end: Any) -> Any:
        """Return the events of one batch as a streaming Dataset.

        While the query is being stopped, return an empty Dataset: Spark continues until it notices
        that its thread was interrupted, and would log an error if there were no Dataset.
        """
        with self._guard():
            return self._keep_alive(self._events(_read(end)))
        return self._empty

    def _events(self, end: tuple[int, int] | None) -> Any:
        index = self.opened = self._index()
        self.until = version = index.table.version() if end is None else end[0]
        try:
            files = index.pending(until=version, retry=False)
        except TableError:  # the checkpoint's version is no longer in the table's log
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
        return self._streaming(create_frame(self._spark, events, parse_schema(_SCHEMA)))

    def _streaming(self, frame: DataFrame) -> Any:
        rows = frame._jdf.queryExecution().toRdd()
        return self._spark._jsparkSession.internalCreateDataFrame(rows, self.schema(), True)

    def schema(self) -> Any:
        jvm: Any = self._spark._jvm
        return self._keep_alive(jvm.org.apache.spark.sql.types.StructType.fromDDL(_SCHEMA))

    def getDefaultReadLimit(self) -> Any:
        """Return no limit for Spark; `limit` limits the files of a batch."""
        jvm: Any = self._spark._jvm
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
        return self._keep_alive(limit)

    def reportLatestOffset(self) -> Any:
        """Return the newest known version, which Spark shows in its progress."""
        return self._keep_alive(self._offset({"version": self._newest}))

    def getOffset(self) -> Any:
        """Return the first offset."""
        jvm: Any = self._spark._jvm
        return self._keep_alive(jvm.scala.Some(self.latestOffset(None, None)))

    def commit(self, end: Any) -> None:
        """Do nothing: the store has the state."""

    def stop(self) -> None:
        """Do nothing: the source holds no resources."""

    def toString(self) -> str:
        return f"FileEvents[{self._name}]"

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def equals(self, other: object) -> bool:
        return other is self

    def _keep_alive(self, result: Any) -> Any:
        """Keep a reference to a Java object that is returned to Java.

        Py4J releases the object when Python does, which may be before Java has read the response
        that refers to it.
        """
        self._references.append(result)
        return result

    def _offset(self, offset: dict[str, int]) -> Any:
        jvm: Any = self._spark._jvm
        return streaming(jvm).SerializedOffset(json.dumps(offset))


def _read(offset: Any) -> tuple[int, int] | None:
    """Return (version, step) of an offset; None for the offset of another source."""
    try:
        fields = json.loads(offset.json())
        version, step = fields["version"], fields.get("step", 0)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    is_valid = all(type(number) is int and abs(number) < 1 << 63 for number in (version, step))
    return (version, step) if is_valid else None
