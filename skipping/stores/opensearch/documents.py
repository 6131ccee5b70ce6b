"""Convert entries between Arrow tables and documents.

A document has what one write added for one file: its identity and sketches, or only its ordinal and
the sketches if the entry existed. A removed entry leaves a tombstone with its ordinal in `removed`.
Pages are copies of many entries (`packed_entries`). The source, from which entries are read, has no
TERMS and BYTES.

Text is a keyword, sorted by its bytes; bytes are a keyword in hexadecimal, which has the same
order. A term has at most 32,766 bytes; a sketch with a longer term is stored as unknown, never
without the term.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import StoreError
from skipping.config.index_settings import index_settings, read_index_settings
from skipping.model.definition import Definition
from skipping.stores import IDENTITY
from skipping.stores.entries import TYPES, is_scalar, place_rows, sketches
from skipping.stores.opensearch.client import Body
from skipping.stores.opensearch.registry import FORMAT

TERMS = "terms"
"""The object with TERMS fields; it is not in the source."""

BYTES = "bytes"
"""The object with BYTES fields, as doc values for scripts; it is not in the source."""

LONGEST = 32_766

_SHARD, _SHARDS = 500_000, 16
"""Files of a shard, and maximum of shards. A test of a million files takes 0.15 s of one core for
each shard; more shards do not take more in total."""

_LIMIT = 20_000
"""Maximum of fields of an OpenSearch index: enough for all columns, and for their aliases."""

_MAPPED: dict[str, Body] = {
    "bool": {"type": "boolean"},
    "int64": {"type": "long"},
    "string": {"type": "keyword"},
    "binary": {"type": "keyword"},
    "large_binary": {"type": "binary", "doc_values": True},
}
_KEPT: Body = {"type": "keyword", "index": False, "doc_values": False}  # in the source only
_IDENTITY: Body = {
    "ordinal": {"type": "integer"},
    "generation": {"type": "long"},
    "identity": {"type": "keyword", "doc_values": False},
    "removed": {"type": "integer"},
    "page": _KEPT,
    "page_number": {"type": "integer"},
    "path": _KEPT,
    "size": {"type": "long", "index": False, "doc_values": False},
    "stamp": {"type": "long", "index": False, "doc_values": False},
    "partition": _KEPT,
}


_URL_SAFE = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True, slots=True)
class Found:
    """The existing documents of the files of a write."""

    holders: dict[str, int]  # the ordinal of each identity
    entries: dict[int, str]  # the identity of each ordinal
    flags: dict[int, set[str]]  # the sketches of each ordinal, by their known flags
    removed: set[int]


def types_of(fields: dict[str, str]) -> dict[str, pa.DataType]:
    """Return the Arrow types of fields; raise StoreError for a type of a newer release."""
    try:
        return {name: TYPES[type] for name, type in fields.items()}
    except KeyError as error:
        raise StoreError(
            f"the store has a field of type {error}, unknown to this release: upgrade"
        ) from error


def describe_mapping(definition: Definition, fields: dict[str, str], *, files: int) -> Body:
    """Return the mapping and settings of an OpenSearch index with these fields.

    `files` is the expected number of files. Documents with other fields are rejected.
    """
    properties = dict(_IDENTITY)
    inner: dict[str, Body] = {TERMS: {}, BYTES: {}}
    for name, type in fields.items():
        mapped = _MAPPED[type.removeprefix("list<").removesuffix(">")]
        folder = folder_of(TYPES[type])
        (inner[folder] if folder else properties)[name] = mapped
    for folder, names in inner.items():
        properties[folder] = {"dynamic": "strict", "properties": names}
    about = {
        "format": FORMAT,
        "kind": "skipping index",
        "source": definition.name,
        "where": definition.where,
        "columns": [
            {"name": c.name, "kind": c.kind, "sketch": c.sketch} for c in definition.columns
        ],
    }
    mappings = {
        "dynamic": "strict",
        "properties": properties,
        "_meta": about,
        "_source": {"excludes": [TERMS, BYTES]},
    }
    settings = {
        "max_docvalue_fields_search": 1_000,
        "mapping.total_fields.limit": _LIMIT,
        **_settings(definition, files),
    }
    return {"mappings": mappings, "settings": {"index": settings}}


def _settings(definition: Definition, files: int) -> Body:
    """Return shards and replicas; raise StoreError for an invalid option."""
    text = dict(definition.options).get("index_settings", "{}")
    try:
        chosen = index_settings(read_index_settings(text))
    except (KeyError, ValueError):
        raise StoreError(
            f"the index of {definition.name} has invalid index_settings: run DROP SKIPPING INDEX, "
            "then CREATE SKIPPING INDEX again"
        ) from None
    replicas = {} if "number_of_replicas" in chosen else {"auto_expand_replicas": "0-1"}
    shards = min(max(1, -(-files // _SHARD)), _SHARDS)
    return {"number_of_shards": shards, **replicas, **chosen}


def folder_of(type: pa.DataType) -> str:
    """Return the name of the object that holds fields of a type; "" is the top level (SCALAR)."""
    if is_scalar(type):
        return ""
    return TERMS if pa.types.is_list(type) else BYTES


def encode_values(values: pa.Array) -> list[Any]:
    """Return values in the form that documents and queries use."""
    if values.type == pa.binary():
        return [None if value is None else value.hex() for value in values.to_pylist()]
    listed: list[Any] = values.to_pylist()
    return listed


def decode_values(type: pa.DataType, values: list[Any]) -> Any:
    """Return the values of a TERMS or BYTES field from its doc values."""
    if pa.types.is_large_binary(type):
        # The server omits the padding; versions differ in the last two characters of the alphabet.
        text = values[0].encode("ascii").translate(_URL_SAFE)
        return b64decode(text + b"=" * (-len(text) % 4))
    if type.value_type == pa.binary():
        return [bytes.fromhex(value) for value in values]
    return values


def identities(entries: pa.Table) -> list[str]:
    """Return a hash of the identity of each row."""
    rows = zip(*(entries[name].to_pylist() for name in ("path", "size", "stamp")), strict=True)
    return [hashlib.sha256(json.dumps(row).encode()).hexdigest() for row in rows]


def documents(
    entries: pa.Table, names: Sequence[str], found: Found, *, end: int, generation: int
) -> list[tuple[Body, Body]]:
    """Return the documents to create: new entries, and missing sketches of existing ones.

    `names` are the rows' identities, `end` is the first ordinal that is not reserved. Raises
    StoreError for an ordinal that belongs to another file.
    """
    ordinals = entries["ordinal"].to_pylist()
    made = []
    for row in place_rows(
        ordinals, names, found.holders, found.entries, removed=found.removed, end=end
    ):
        body: Body = {"ordinal": ordinals[row], "generation": generation}
        if ordinals[row] not in found.entries:
            body["identity"] = names[row]
            for name in IDENTITY.names[1:]:
                body[name] = entries[name][row].as_py()
        made.append((row, body))
    columns = {
        name: [value for chunk in entries[name].chunks for value in _column(chunk)]
        for name in entries.schema.names
        if name not in IDENTITY.names
    }
    for names_of_sketch in sketches(entries.schema.names).values():
        flag, *fields = names_of_sketch
        fitting = _find_fitting(entries, fields)
        for row, body in made:
            known = columns[flag][row]
            if known is None or flag in found.flags.get(body["ordinal"], ()):
                continue
            body[flag] = known and fitting[row]
            if fitting[row]:
                for name in fields:
                    folder = folder_of(entries.schema.field(name).type)
                    to = body.setdefault(folder, {}) if folder else body
                    to[name] = columns[name][row]
    return [
        ({"create": {"_id": f"{body['ordinal']}.{generation}"}}, body)
        for _, body in made
        if len(body) > 2  # it has something new
    ]


def _column(values: pa.Array) -> list[Any]:
    if pa.types.is_large_binary(values.type):
        return [None if v is None else b64encode(v).decode() for v in values.to_pylist()]
    if not pa.types.is_list(values.type):
        return encode_values(values)
    terms = encode_values(pc.list_flatten(values))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_pylist()
    lists, start = [], 0
    for length in lengths:
        lists.append(terms[start : start + length])
        start += length
    return lists


def _find_fitting(entries: pa.Table, fields: Sequence[str]) -> list[bool]:
    """Return for each row whether all its values in these fields fit into a term."""
    fits = [True] * len(entries)
    for name in fields:
        begin = 0
        for chunk in entries[name].chunks:  # all of a column may be too large for one array
            for row in _too_long(chunk):
                fits[begin + row] = False
            begin += len(chunk)
    return fits


def _too_long(values: pa.Array) -> Iterable[int]:
    owners: Any = range(len(values))
    if pa.types.is_list(values.type):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_pylist()
        owners = [row for row, length in enumerate(lengths) for _ in range(length)]
        values = pc.list_flatten(values)
    if values.type not in (pa.string(), pa.binary()):
        return
    longest = LONGEST if values.type == pa.string() else LONGEST // 2
    for at in pc.indices_nonzero(pc.greater(pc.binary_length(values), longest)).to_pylist():
        yield owners[at]


def table_of(
    sources: Iterable[Body],
    fields: Sequence[str],
    types: dict[str, pa.DataType],
    *,
    identity: Sequence[str] = IDENTITY.names,
) -> pa.Table:
    """Return the entries of documents, sorted by ordinal.

    A document without a path adds sketches to the one with the path; if that is missing, the
    document is ignored.
    """
    files: dict[int, Body] = {}
    for source in sources:
        held = files.setdefault(source["ordinal"], source)
        if held is not source:
            held.update({k: v for k, v in source.items() if v is not None})
    rows = [file for _, file in sorted(files.items()) if "path" in file or "path" not in identity]
    columns = {
        field.name: pa.array([row.get(field.name) for row in rows], field.type)
        for field in map(IDENTITY.field, identity)
    }
    for name in fields:
        values = [row.get(name) for row in rows]
        type = types.get(name, pa.null())
        if type == pa.binary():
            values = [None if value is None else bytes.fromhex(value) for value in values]
        columns[name] = pa.array(values, type)
    return pa.table(columns)
