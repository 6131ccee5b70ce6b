"""Parse the option `index_settings`: settings of an index in OpenSearch as JSON, as in Flint.

They come from a statement, or from the store, to which others may write. So only settings that
cannot change a result are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from providers.base import Param

_LONGEST = 1_000
"""Maximum number of characters of the JSON."""

_EXPANDED = re.compile(r"(\d{1,2})-(\d{1,2}|all)", re.ASCII)
_COUNTS = {"number_of_shards": range(1, 65), "number_of_replicas": range(21)}


def read_index_settings(given: Param) -> str:
    """Return the settings as normalised JSON, which definitions store; raise ValueError."""
    if not isinstance(given, str) or len(given) > _LONGEST:
        raise ValueError(given)
    return json.dumps(dict(sorted(index_settings(given).items())))


def index_settings(text: str) -> dict[str, int | str]:
    """Parse the JSON; return the settings without the prefix `index.`; raise ValueError.

    >>> index_settings('{"index": {"number_of_shards": "2"}, "index.number_of_replicas": 0}')
    {'number_of_shards': 2, 'number_of_replicas': 0}
    """
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("not an object")
    inner = found.pop("index", {})
    if not isinstance(inner, dict):
        raise ValueError("not an object")
    given = [*inner.items(), *found.items()]
    plain = _once([(name.removeprefix("index."), value) for name, value in given])
    settings = {name: _setting(name, value) for name, value in plain.items()}
    if {"number_of_replicas", "auto_expand_replicas"} <= settings.keys():
        raise ValueError("replicas are given twice")
    return settings


def _setting(name: str, value: Any) -> int | str:
    if name == "auto_expand_replicas":
        ends = _EXPANDED.fullmatch(value) if isinstance(value, str) else None
        most = None if ends is None else 20 if ends[2] == "all" else int(ends[2])
        if ends is None or most is None or not int(ends[1]) <= most <= 20:
            raise ValueError(name)
        return str(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}", value):
        value = int(value)  # OpenSearch accepts numbers as strings, too
    if type(value) is not int or value not in _COUNTS.get(name, ()):
        raise ValueError(name)
    return value


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is given twice")
    return dict(pairs)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
