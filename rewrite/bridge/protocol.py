"""Define the JSON keys of messages between Java and Python; `Protocol.java` defines the same keys.

A message is the length of its header (4 bytes, little-endian), the header as JSON, and buffers.
"""

from __future__ import annotations

from typing import Final

CURRENT: Final = 3
"""The version of the message format. A message with another version raises an error."""

# Keys of objects.
OP: Final = "op"
VERSION: Final = "version"
LENGTHS: Final = "lengths"
TABLE: Final = "table"
TABLES: Final = "tables"
FILTERS: Final = "filters"
INDEX: Final = "index"
GENERATION: Final = "generation"
ENTRIES_ID: Final = "entries_id"
FIRST: Final = "first"
WHOLE: Final = "whole"
NAME: Final = "name"
TEXT: Final = "text"
VALUE: Final = "value"
REASON: Final = "reason"
FAILED: Final = "failed"
LENGTH: Final = "length"
OPERANDS: Final = "operands"
OPERAND: Final = "operand"
LABEL: Final = "label"
OF: Final = "of"
UNUSED: Final = "unused"
SECONDS: Final = "seconds"
N: Final = "n"
COLUMN: Final = "column"
COLUMNS: Final = "columns"
REVISION: Final = "revision"
IDENTITY: Final = "identity"
TYPE: Final = "type"
BUFFERS: Final = "buffers"
VALUES: Final = "values"
COMPARE: Final = "compare"
NULLS: Final = "nulls"
WHY: Final = "why"
HOLDS: Final = "holds"
FAILS: Final = "fails"

# Requests, and operators of conditions, under OP; COMPARE is both a key and an operator.
PRUNED: Final = "pruned"
FILES: Final = "files"
INDEXED: Final = "indexed"
SETTING: Final = "setting"
NETWORK: Final = "network"
AND: Final = "and"
OR: Final = "or"
NOT: Final = "not"
UNKNOWN: Final = "unknown"
IN: Final = "in"
NULL: Final = "null"
PREFIX: Final = "prefix"
SUFFIX: Final = "suffix"
CONTAINS: Final = "contains"
ANY_CASE: Final = "any_case"
WEAK: Final = "weak"
TUPLES: Final = "tuples"
ELEMENTS: Final = "elements"
