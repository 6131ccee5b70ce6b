"""Answers what Java asks: what a scan's filters prune, how files are numbered, our statements.

Runs in callbacks, in threads of the JVM's choosing, while Spark plans a query: it starts no Spark
job, calls nothing of the plan, and holds no lock while it asks the store.
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
from skipping.parser import is_ours
from skipping.parser.networks import in_network

__all__ = ["Answers", "Statements", "describe_indexes", "find_original_error", "table_key"]

log = logging.getLogger("skipping")

_REMEMBERED = 256
"""Warnings that are not said again."""

_PAGE = 1 << 17
"""Files in a message: in a tenth of a second or so, some 15 MB."""

_KEPT = 16
"""Errors of statements on their way at once."""


_NUMBERS = {row.key: row for row in SETTINGS if row.key in ("timeout", "dynamic.maxBytes")}
"""Settings that Java obeys, and has Python read."""


def table_key(table: TableId) -> str:
    """A table as Java names it."""
    return f"{table.format}\n{table.id}\n{table.root}"


class Answers:
    """From a question to an answer; `asked` gives the settings of a name, and who knows the store.

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
        """Answer; what fails becomes a reason, because an exception here would fail the query.

        The envelope names the settings, and says how many microseconds the query has left.
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
        """Some files of an index, from the one on that Java has not, if it has those before it."""
        index = header[protocol.INDEX]
        known = lookup.entries.peek(index) or lookup.entries.get(
            index, timeout=_remaining_seconds(deadline)
        )
        first = header[protocol.FIRST] if header[protocol.LINEAGE] == known.lineage else 0
        files = known.entries.files.slice(first, _PAGE).combine_chunks()
        # Only a table without a log takes the values of its partition columns from paths.
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
        """Say it in the log, unless it has been said lately."""
        if text not in self._warned:
            log.warning("%s", text)
            self._warned[text] = None
            while len(self._warned) > _REMEMBERED:
                self._warned.popitem(last=False)


def _number(header: Mapping[str, Any]) -> float | int | None:
    """The value of a duration or a size; None if the text is wrong."""
    try:
        value = _NUMBERS[header[protocol.NAME]].read(header[protocol.TEXT].strip())
    except (KeyError, ValueError):
        return None
    return value if isinstance(value, (int, float)) else None


def _condition(network: str) -> dict[str, str]:
    """The condition on `ip` that stands for a network, or why the text is none."""
    try:
        return {protocol.VALUE: in_network("ip", network)}
    except ValueError as error:
        return {protocol.REASON: str(error)}


def _remaining_seconds(deadline: float) -> float:
    """Seconds; raises StoreError if there are none."""
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
    """The columns in the index of each table, as Java names both, and the index's revision.

    The revision is a text that changes with the columns and their index types.
    """
    return {
        table_key(table): {
            protocol.COLUMNS: [column.identity for column in definition.columns],
            # A number stands for a column with its type and parameters, and is never used again.
            protocol.REVISION: " ".join(
                [definition.index, *(str(column.number) for column in definition.columns)]
            ),
        }
        for table, definition in tables.items()
    }


class Statements:
    """Parses (text, None) and runs (text, StatementCall). Text that is not ours is None."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def apply(self, text: str, call: Any) -> str | None:
        """A reply in JSON, or None and the rows are in `call`; `find_original_error` has errors."""
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
"""Errors on their way through the JVM, which only passes on their text; the last of them."""

_passing = threading.Lock()


def find_original_error(error: PySparkException) -> Exception | None:
    """The error that `Statements` raised, if `error` is how Spark passed it on."""
    parameters = error.getMessageParameters() or {}
    with _passing:
        return _errors.pop(parameters.get("skipping", ""), None)


def _marks(files: pa.Table, listed: bool) -> pa.ChunkedArray:
    """What tells files apart beside path and size, as Java spells it."""
    marks = files["stamp"].cast(pa.string())
    if listed:
        partitions = pc.fill_null(files["partition"], "")
        partitions = pc.if_else(pc.equal(partitions, ""), "{}", partitions)
        marks = pc.binary_join_element_wise(marks, partitions, " ")
    return pc.fill_null(marks, "")


def _texts(values: pa.ChunkedArray) -> tuple[bytes, bytes]:
    """Texts as Arrow has them: offsets from zero on, and data."""
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
