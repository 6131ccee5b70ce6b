"""Answers what Java asks: what a scan's filters disprove, how files are numbered, our statements.

Runs in callbacks, in threads of the JVM's choosing, while Spark plans a query: it starts no Spark
job, calls nothing of the plan, and holds no lock while it asks the store.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import skipping
from providers.errors import SkippingError
from rewrite.filters import Reader, read_message
from rewrite.shadow import Asked, Shadow
from skipping.ddl import is_ours
from skipping.definition import TableId
from skipping.lookup import Lookup
from skipping.settings import Settings

__all__ = ["Answers", "Statements", "original", "table_key"]

log = logging.getLogger("skipping")


def table_key(table: TableId) -> str:
    """A table as Java names it."""
    return f"{table.format}\n{table.id}\n{table.root}"


class Answers:
    """The `java.util.function.Function` from a question to an answer."""

    class Java:
        """What py4j implements."""

        implements = ("java.util.function.Function",)

    def __init__(self, lookups: Callable[[Settings], Lookup], shadow: Shadow | None = None) -> None:
        self._lookups = lookups
        self._shadow = shadow
        self._warned: set[str] = set()

    def apply(self, message: bytes | str) -> bytes:
        """Answer; what fails becomes a reason, because an exception here would fail the query."""
        header: dict[str, Any] = {}
        try:
            header, buffers = read_message(message)
            settings, complaints = Settings.lenient(header["settings"])
            for complaint in complaints:
                self._warn(complaint)
            lookup = self._lookups(settings)
            if header["op"] == "files":
                return self._files(lookup, header, settings)
            return self._disproved(lookup, header, Reader(buffers), settings)
        except Exception as error:
            self._warn(f"no file is skipped: {error}")
            if header.get("settings", {}).get("spark.skipping.mode") == "strict":
                raise
            kind = "" if isinstance(error, SkippingError) else f"{type(error).__name__}: "
            return _message({"reason": f"{kind}{error}"})

    def _disproved(
        self, lookup: Lookup, header: Mapping[str, Any], reader: Reader, settings: Settings
    ) -> bytes:
        began = time.monotonic()
        deadline = began + settings.timeout
        predicate = reader.read(header["filters"])
        indexed = lookup.indexed(timeout=settings.timeout)
        definition = indexed.get(TableId(*header["table"].split("\n")))
        if definition is None:
            return _message({"reason": "the table has no index"})
        left = deadline - time.monotonic()
        finding = lookup.ask(definition, predicate, reader.columns, timeout=left)
        if settings.shadow and self._shadow is not None:
            self._shadow.offer(
                Asked(settings.shadow, lookup, definition, predicate, reader.columns, finding)
            )
        legs = [(leg, leg.disproved.serialize()) for leg in finding.legs]
        disproved = finding.disproved.serialize()
        return _message(
            {
                "table": header["table"],
                "index": finding.index,
                "generation": finding.generation,
                "length": len(disproved),
                "legs": [
                    {"label": leg.label, "of": leg.source, "length": len(bitmap)}
                    for leg, bitmap in legs
                ],
                "unused": finding.unused,
                "seconds": time.monotonic() - began,
            },
            disproved,
            *(bitmap for _, bitmap in legs),
        )

    def _files(self, lookup: Lookup, header: Mapping[str, Any], settings: Settings) -> bytes:
        catalogue = lookup.catalogue(header["index"], timeout=settings.timeout)
        files = catalogue.files.combine_chunks()
        # Only a table without a log takes the values of its partition columns from paths.
        listed = not TableId(*header["table"].split("\n")).logged
        marks = [
            "" if stamp is None else f"{stamp} {partition or '{}'}" if listed else str(stamp)
            for stamp, partition in zip(
                files["stamp"].to_pylist(), files["partition"].to_pylist(), strict=True
            )
        ]
        return _message(
            {"index": header["index"], "generation": catalogue.generation, "n": len(files)},
            files["ordinal"].to_numpy().astype("<i8").tobytes(),
            files["size"].to_numpy().astype("<i8").tobytes(),
            *_texts(files["path"].to_pylist()),
            *_texts(marks),
        )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


class Statements:
    """The `java.util.function.BiFunction` that parses (text, null) and runs (text, session).

    Text that is not ours is null.
    """

    class Java:
        """What py4j implements."""

        implements = ("java.util.function.BiFunction",)

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def apply(self, text: str, session: Any) -> Any:
        """A reply in JSON, or the result as a Java Dataset; errors are kept for `original`."""
        try:
            if session is None:
                return json.dumps({"schema": skipping.schema(text)}) if is_ours(text) else None
            return skipping.sql(SparkSession(self._context, session), text)._jdf
        except Exception as error:
            key = str(next(_keys))
            _errors[key] = error
            return json.dumps({"error": str(error), "key": key})


_keys = count()
_errors: dict[str, Exception] = {}
"""Errors on their way through the JVM, which only passes on their text."""


def original(error: PySparkException) -> Exception | None:
    """The error that `Statements` raised, if `error` is how Spark passed it on."""
    parameters = error.getMessageParameters() or {}
    return _errors.pop(parameters.get("skipping", ""), None)


def _texts(values: list[str]) -> tuple[bytes, bytes]:
    """Texts as Arrow has them: offsets and data."""
    _, offsets, data = pa.array(values, pa.string()).buffers()
    return (
        np.zeros(1, "<i4").tobytes() if offsets is None else offsets.to_pybytes(),
        b"" if data is None else data.to_pybytes(),
    )


def _message(header: Mapping[str, Any], *buffers: bytes) -> bytes:
    head = json.dumps(header).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *buffers])
