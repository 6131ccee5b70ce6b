"""Handle Java's requests: find the files a scan can skip, list an index's files, run statements.

The code runs in py4j callbacks, on threads that the JVM chooses, while Spark plans a query. So it
starts no Spark job, calls no method of the plan, and holds no lock while it waits for the store.
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
from rewrite.bridge.background_verification import BackgroundVerification, LookupSample
from rewrite.bridge.message_files import Folder
from rewrite.bridge.messages import Reader, read_message
from skipping.config.settings import SETTINGS, Settings
from skipping.lookup.lookup import Lookup
from skipping.model.definition import Definition, TableId
from skipping.parser.lexer import is_ours
from skipping.parser.networks import in_network

log = logging.getLogger("skipping")

_REMEMBERED = 256
"""Number of recent warnings that are not logged again."""

_PAGE = 1 << 17
"""Maximum number of files in a response: about 15 MB, built in about 0.1 s."""

_ERRORS = 16
"""Maximum number of errors of statements that wait for `find_original_error`."""

_NUMBERS = {row.key: row for row in SETTINGS if row.key in ("timeout", "dynamic.maxBytes")}
"""Settings that Java uses, and that Python parses for it."""


def table_key(table: TableId) -> str:
    """Return the text that identifies a table in messages to and from Java."""
    return f"{table.format}\n{table.id}\n{table.root}"


def parse_table_key(text: str) -> TableId:
    """Return the table of a text that `table_key` made.

    >>> parse_table_key(table_key(TableId("delta", "id", "file:/t"))).root
    'file:/t'
    """
    return TableId(*text.split("\n", 2))


class Answers:
    """Handles requests from Java.

    `get_lookup` returns the settings with a name, and their lookup. A message is given as bytes, or
    as the name of a file in `folder`. `render_section` returns a section of the tab in Spark's UI,
    within some seconds.
    """

    def __init__(
        self,
        get_lookup: Callable[[str], tuple[Settings, Lookup]],
        folder: Folder | None = None,
        verification: BackgroundVerification | None = None,
        render_section: Callable[[str, float], str] | None = None,
    ) -> None:
        self._get_lookup = get_lookup
        self._render_section = render_section
        self._folder = folder
        self._verification = verification
        self._warned: OrderedDict[str, None] = OrderedDict()

    def apply(self, envelope: str, message: bytes | str) -> bytes:
        """Handle a request and return the response.

        `envelope` contains the name of the settings, and the microseconds that the query has left.
        On failure, the response has the reason: an exception would fail the query.
        """
        try:
            name, left = envelope.split(" ")
            deadline = time.monotonic() + int(left) / 1e6
            header, buffers = read_message(self._content(message))
            if header.get(protocol.VERSION) != protocol.CURRENT:
                raise SkippingError(
                    f"the message from Java has version {header.get(protocol.VERSION)!r:.20}, "
                    f"expected {protocol.CURRENT}: restart Python"
                )
            if header.get(protocol.OP) == protocol.SETTING:
                return _message({protocol.VALUE: _number(header)})
            if header.get(protocol.OP) == protocol.NETWORK:
                return _message(_condition(header[protocol.TEXT]))
            if header.get(protocol.OP) == protocol.SECTION and self._render_section is not None:
                return self._write_section(header[protocol.NAME], deadline)
            settings, lookup = self._get_lookup(name)
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
            self.warn(f"no file is skipped: {error}")
            return _failure(error)

    def _write_section(self, name: str, deadline: float) -> bytes:
        assert self._render_section is not None, "checked by the caller"
        try:
            html = self._render_section(name, _remaining_seconds(deadline))
        except Exception as error:  # the page shows it
            return _failure(error)
        return _message({protocol.VALUE: html})

    def _content(self, message: bytes | str) -> bytes:
        if not isinstance(message, str):
            return message
        if self._folder is None:
            raise SkippingError("the message from Java is in a file, but there is no folder for it")
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
        table = TableId(*header[protocol.TABLE].split("\n"))
        definition = lookup.definition(table, timeout=_remaining_seconds(deadline))
        if definition is None:
            return _message({protocol.REASON: "the table has no index"})
        reader = Reader(buffers, definition.columns)
        predicate = reader.read(header[protocol.FILTERS])
        result = lookup.find(
            definition, predicate, reader.columns, timeout=_remaining_seconds(deadline)
        )
        if settings.sample_rate and self._verification is not None:
            self._verification.offer(
                LookupSample(
                    settings.sample_rate, lookup, definition, predicate, reader.columns, result
                )
            )
        operands = [(each, each.pruned.serialize()) for each in result.legs]
        pruned = result.pruned.serialize()
        return _message(
            {
                protocol.TABLE: header[protocol.TABLE],
                protocol.INDEX: result.index,
                protocol.GENERATION: result.generation,
                protocol.ENTRIES_ID: result.entries_id,
                protocol.N: len(result.files),
                protocol.LENGTH: len(pruned),
                protocol.OPERANDS: [
                    {
                        protocol.LABEL: each.label,
                        protocol.OF: each.source,
                        protocol.LENGTH: len(bitmap),
                    }
                    for each, bitmap in operands
                ],
                protocol.UNUSED: result.unused,
                protocol.SECONDS: time.monotonic() - began,
            },
            pruned,
            *(bitmap for _, bitmap in operands),
        )

    def _files(self, lookup: Lookup, header: Mapping[str, Any], deadline: float) -> bytes:
        """Return the next page of an index's files; the first page if Java's copy is stale."""
        index = header[protocol.INDEX]
        cached = lookup.entries.peek(index) or lookup.entries.get(
            index, timeout=_remaining_seconds(deadline)
        )
        first = header[protocol.FIRST] if header[protocol.ENTRIES_ID] == cached.id else 0
        files = cached.entries.files.slice(first, _PAGE).combine_chunks()
        # Only a table without a log reads its partition values from paths, so they may differ.
        with_partitions = not TableId(*header[protocol.TABLE].split("\n")).has_log
        return _message(
            {
                protocol.INDEX: index,
                protocol.ENTRIES_ID: cached.id,
                protocol.FIRST: first,
                protocol.WHOLE: cached.entries.whole,
                protocol.N: len(files),
            },
            files["ordinal"].to_numpy().astype("<i8").tobytes(),
            files["size"].to_numpy().astype("<i8").tobytes(),
            *_texts(files["path"]),
            *_texts(_marks(files, with_partitions)),
        )

    def warn(self, text: str) -> None:
        """Log a warning, unless it was logged recently."""
        if text not in self._warned:
            log.warning("%s", text)
            self._warned[text] = None
            while len(self._warned) > _REMEMBERED:
                self._warned.popitem(last=False)


def _number(header: Mapping[str, Any]) -> float | int | None:
    """Return the value of a duration (seconds) or size (bytes); None if its text is invalid."""
    try:
        value = _NUMBERS[header[protocol.NAME]].read(header[protocol.TEXT].strip())
    except (KeyError, ValueError):
        return None
    return value if isinstance(value, (int, float)) else None


def _condition(network: str) -> dict[str, str]:
    """Return the SQL condition on `ip` for a network, or why the text is not a network."""
    try:
        return {protocol.VALUE: in_network("ip", network)}
    except ValueError as error:
        return {protocol.REASON: str(error)}


def _remaining_seconds(deadline: float) -> float:
    """Return the remaining seconds; raise StoreError after the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise StoreError("the query has used up its time for lookups (spark.skipping.timeout)")
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
    """Return the indexed columns and a revision for each table, as Java's `IndexClient` reads them.

    The revision is a text that changes whenever the columns or their index types change.
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
    """Parses and runs the statements that Java's SQL parser receives."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def apply(self, text: str, call: Any) -> str | None:
        """Parse the statement `text`, or run it if `call` is a Java `StatementCall`.

        Parsing returns JSON with the schema, or None for text that Spark must parse. Running gives
        the rows to `call` and returns None. On failure, both return JSON with an error, whose
        exception `find_original_error` returns.
        """
        try:
            if call is None:
                return json.dumps({"schema": skipping.schema(text)}) if is_ours(text) else None
            call.answer(skipping.sql(SparkSession(self._context, call.session()), text)._jdf)
            return None
        except Exception as error:
            key = secrets.token_hex(8)
            with _errors_lock:
                _errors[key] = error
                while len(_errors) > _ERRORS:
                    _errors.popitem(last=False)
            return json.dumps({"error": str(error), "key": key})


_errors: OrderedDict[str, Exception] = OrderedDict()
"""The most recent exceptions of statements, by key: the JVM only transports text."""

_errors_lock = threading.Lock()


def find_original_error(error: PySparkException) -> Exception | None:
    """Return the exception that made Spark raise `error` for one of our statements, or None."""
    parameters = error.getMessageParameters() or {}
    with _errors_lock:
        return _errors.pop(parameters.get("skipping", ""), None)


def _marks(files: pa.Table, with_partitions: bool) -> pa.ChunkedArray:
    """Return a text for each file that, with its path and size, identifies it in Java.

    It is the stamp and, `with_partitions`, the partition values.
    """
    marks = files["stamp"].cast(pa.string())
    if with_partitions:
        partitions = pc.fill_null(files["partition"], "")
        partitions = pc.if_else(pc.equal(partitions, ""), "{}", partitions)
        marks = pc.binary_join_element_wise(marks, partitions, " ")
    return pc.fill_null(marks, "")


def _texts(values: pa.ChunkedArray) -> tuple[bytes, bytes]:
    """Return strings in Arrow's layout: offsets that start at 0, and data."""
    lengths = pc.binary_length(values).to_numpy()
    data = b"".join(chunk for part in values.chunks for chunk in _octets(part))
    return np.append(0, np.cumsum(lengths)).astype("<i4").tobytes(), data


def _octets(texts: pa.Array) -> Iterator[memoryview]:
    _, offsets, data = texts.buffers()
    if len(texts) and data is not None:
        ends = np.frombuffer(offsets, "<i4")[texts.offset : texts.offset + len(texts) + 1]
        yield memoryview(data)[int(ends[0]) : int(ends[-1])]


def _failure(error: Exception) -> bytes:
    kind = "" if isinstance(error, SkippingError) else f"{type(error).__name__}: "
    return _message({protocol.REASON: f"{kind}{error}", protocol.FAILED: True})


def _message(header: Mapping[str, Any], *buffers: bytes) -> bytes:
    head = json.dumps({protocol.VERSION: protocol.CURRENT, **header}).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *buffers])
