"""Handle Java's requests: find the files a scan can skip, list an index's files, run statements.

The code runs in callbacks, in threads that the JVM chooses, while Spark plans a query. So it starts
no Spark job, calls no method of the plan, and holds no lock while it waits for the store.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import skipping
from providers.errors import NoStore, SkippingError, StoreError
from rewrite.bridge import protocol
from rewrite.bridge.message_files import Folder
from rewrite.bridge.messages import Reader, read_message
from rewrite.bridge.shadow import Asked, Shadow
from skipping.config.settings import SETTINGS, Settings
from skipping.lookup.lookup import Lookup
from skipping.model.definition import Definition, TableId
from skipping.parser.lexer import is_ours
from skipping.parser.networks import in_network

__all__ = ["Answers", "Statements", "describe_indexes", "find_original_error", "table_key"]

log = logging.getLogger("skipping")

_REMEMBERED = 256
"""Recent warnings that are not logged a second time."""

_PAGE = 1 << 17
"""Maximum number of files in a response: about 15 MB, built in about 0.1 s."""

_KEPT = 16
"""Errors of statements that wait until Spark has passed on their key."""

_NUMBERS = {row.key: row for row in SETTINGS if row.key in ("timeout", "dynamic.maxBytes")}
"""Settings that Java uses and Python parses."""


def table_key(table: TableId) -> str:
    """Return a table's key in messages to and from Java."""
    return f"{table.format}\n{table.id}\n{table.root}"


class Answers:
    """Handle requests from Java; `asked` returns the settings with a name, and their lookup.

    A message is bytes, or the name of a file in `folder`.
    """

    def __init__(
        self,
        asked: Callable[[str], tuple[Settings, Lookup]],
        folder: Folder | None = None,
        shadow: Shadow | None = None,
    ) -> None:
        self._asked = asked
        self._folder = folder
        self._shadow = shadow
        self._warned: OrderedDict[str, None] = OrderedDict()

    def apply(self, envelope: str, message: bytes | str) -> bytes:
        """Return the response. A failure becomes a reason, because an exception fails the query.

        The envelope contains the name of the settings, and the query's remaining microseconds.
        """
        try:
            name, left = envelope.split(" ")
            deadline = time.monotonic() + int(left) / 1e6
            header, buffers = read_message(self._content(message))
            if header.get(protocol.VERSION) != protocol.CURRENT:
                raise SkippingError("a message of Java's is of another version")
            if header.get(protocol.OP) == protocol.SETTING:
                return _message({protocol.VALUE: _number(header)})
            if header.get(protocol.OP) == protocol.NETWORK:
                return _message(_condition(header[protocol.TEXT]))
            settings, lookup = self._asked(name)
            match header.get(protocol.OP):
                case protocol.PRUNED:
                    return self._find_prunable(lookup, header, buffers, settings, deadline)
                case protocol.FILES:
                    return self._files(lookup, header, deadline)
                case protocol.INDEXED:
                    return _list_indexes(lookup, deadline)
                case op:
                    raise SkippingError(f"unknown operation {op!r}")
        except Exception as error:
            kind = "" if isinstance(error, SkippingError) else f"{type(error).__name__}: "
            self.warn(f"no file is skipped: {error}")
            return _message({protocol.REASON: f"{kind}{error}", protocol.FAILED: True})

    def _content(self, message: bytes | str) -> bytes:
        if not isinstance(message, str):
            return message
        if self._folder is None:
            raise SkippingError("there is no folder for messages")
        return self._folder.read(message)

    def _find_prunable(
        self,
        lookup: Lookup,
        header: Mapping[str, Any],
        buffers: Sequence[memoryview],
        settings: Settings,
        deadline: float,
    ) -> bytes:
        began = time.monotonic()
        indexed = lookup.definitions(timeout=_remaining_seconds(deadline))
        definition = indexed.get(TableId(*header[protocol.TABLE].split("\n")))
        if definition is None:
            return _message({protocol.REASON: "the table has no index"})
        reader = Reader(buffers, definition.columns)
        predicate = reader.read(header[protocol.FILTERS])
        finding = lookup.find(
            definition, predicate, reader.columns, timeout=_remaining_seconds(deadline)
        )
        if settings.shadow and self._shadow is not None:
            self._shadow.offer(
                Asked(settings.shadow, lookup, definition, predicate, reader.columns, finding)
            )
        legs = [(leg, leg.pruned.serialize()) for leg in finding.legs]
        pruned = finding.pruned.serialize()
        return _message(
            {
                protocol.TABLE: header[protocol.TABLE],
                protocol.INDEX: finding.index,
                protocol.GENERATION: finding.generation,
                protocol.LINEAGE: finding.lineage,
                protocol.N: len(finding.files),
                protocol.LENGTH: len(pruned),
                protocol.LEGS: [
                    {
                        protocol.LABEL: leg.label,
                        protocol.OF: leg.source,
                        protocol.LENGTH: len(bitmap),
                    }
                    for leg, bitmap in legs
                ],
                protocol.UNUSED: finding.unused,
                protocol.SECONDS: time.monotonic() - began,
            },
            pruned,
            *(bitmap for _, bitmap in legs),
        )

    def _files(self, lookup: Lookup, header: Mapping[str, Any], deadline: float) -> bytes:
        """Return the next page of an index's files; the first page if Java's copy is stale."""
        index = header[protocol.INDEX]
        known = lookup.entries.peek(index) or lookup.entries.get(
            index, timeout=_remaining_seconds(deadline)
        )
        first = header[protocol.FIRST] if header[protocol.LINEAGE] == known.lineage else 0
        files = known.entries.files.slice(first, _PAGE).combine_chunks()
        # Only a table without a log reads the values of its partition columns from paths.
        listed = not TableId(*header[protocol.TABLE].split("\n")).has_log
        return _message(
            {
                protocol.INDEX: index,
                protocol.LINEAGE: known.lineage,
                protocol.FIRST: first,
                protocol.WHOLE: known.entries.whole,
                protocol.N: len(files),
            },
            files["ordinal"].to_numpy().astype("<i8").tobytes(),
            files["size"].to_numpy().astype("<i8").tobytes(),
            *_texts(files["path"]),
            *_texts(_marks(files, listed)),
        )

    def warn(self, text: str) -> None:
        """Log a warning, unless it was logged recently."""
        if text not in self._warned:
            log.warning("%s", text)
            self._warned[text] = None
            while len(self._warned) > _REMEMBERED:
                self._warned.popitem(last=False)


def _number(header: Mapping[str, Any]) -> float | int | None:
    """Return the value of a duration or a size; None if the text is wrong."""
    try:
        value = _NUMBERS[header[protocol.NAME]].read(header[protocol.TEXT].strip())
    except (KeyError, ValueError):
        return None
    return value if isinstance(value, (int, float)) else None


def _condition(network: str) -> dict[str, str]:
    """Return the condition on `ip` for a network, or the reason why the text names no network."""
    try:
        return {protocol.VALUE: in_network("ip", network)}
    except ValueError as error:
        return {protocol.REASON: str(error)}


def _remaining_seconds(deadline: float) -> float:
    """Return the remaining seconds; raises StoreError after the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise StoreError("the query's time for asking the index is used up")
    return left


def _list_indexes(lookup: Lookup, deadline: float) -> bytes:
    try:
        return _message(
            {
                protocol.TABLES: describe_indexes(
                    lookup.definitions(timeout=_remaining_seconds(deadline))
                )
            }
        )
    except NoStore as error:
        return _message({protocol.TABLES: {}, protocol.REASON: str(error)})


def describe_indexes(tables: Mapping[TableId, Definition]) -> dict[str, dict[str, Any]]:
    """Return the indexed columns of each table, and the index's revision, for Java.

    The revision is a text that changes with the columns and their index types.
    """
    return {
        table_key(table): {
            protocol.COLUMNS: [column.identity for column in definition.columns],
            # A number identifies a column with its type and parameters, and is never reused.
            protocol.REVISION: " ".join(
                [definition.index, *(str(column.number) for column in definition.columns)]
            ),
        }
        for table, definition in tables.items()
    }


class Statements:
    """Parse (text, None) and run (text, StatementCall); return None for other statements."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def apply(self, text: str, call: Any) -> str | None:
        """Return JSON with the schema or an error; None if `call` has the rows, or Spark parses.

        `find_original_error` returns the exception of an error.
        """
        try:
            if call is None:
                return json.dumps({"schema": skipping.schema(text)}) if is_ours(text) else None
            call.answer(skipping.sql(SparkSession(self._context, call.session()), text)._jdf)
            return None
        except Exception as error:
            key = secrets.token_hex(8)
            with _passing:
                _errors[key] = error
                while len(_errors) > _KEPT:
                    _errors.popitem(last=False)
            return json.dumps({"error": str(error), "key": key})


_errors: OrderedDict[str, Exception] = OrderedDict()
"""The most recent errors, by key: the JVM passes on only their text."""

_passing = threading.Lock()


def find_original_error(error: PySparkException) -> Exception | None:
    """Return the exception behind an error that Spark raised for one of our statements, or None."""
    parameters = error.getMessageParameters() or {}
    with _passing:
        return _errors.pop(parameters.get("skipping", ""), None)


def _marks(files: pa.Table, listed: bool) -> pa.ChunkedArray:
    """Return what identifies a file in addition to its path and size, in Java's spelling."""
    marks = files["stamp"].cast(pa.string())
    if listed:
        partitions = pc.fill_null(files["partition"], "")
        partitions = pc.if_else(pc.equal(partitions, ""), "{}", partitions)
        marks = pc.binary_join_element_wise(marks, partitions, " ")
    return pc.fill_null(marks, "")


def _texts(values: pa.ChunkedArray) -> tuple[bytes, bytes]:
    """Return texts in Arrow's layout: offsets that start at 0, and data."""
    lengths = pc.binary_length(values).to_numpy()
    data = b"".join(chunk for part in values.chunks for chunk in _octets(part))
    return np.append(0, np.cumsum(lengths)).astype("<i4").tobytes(), data


def _octets(texts: pa.Array) -> Iterator[memoryview]:
    _, offsets, data = texts.buffers()
    if len(texts) and data is not None:
        ends = np.frombuffer(offsets, "<i4")[texts.offset : texts.offset + len(texts) + 1]
        yield memoryview(data)[int(ends[0]) : int(ends[-1])]


def _message(header: Mapping[str, Any], *buffers: bytes) -> bytes:
    head = json.dumps({protocol.VERSION: protocol.CURRENT, **header}).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *buffers])
