"""The settings of a session, `spark.skipping.*`.

Each field of `Settings` has the key, the reader and the meaning of a setting; `SETTINGS` lists them
for the reference page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Literal, TypeVar

from providers.errors import SettingError
from skipping.config import values as values
from skipping.config.values import Mode

__all__ = ["PREFIX", "SETTINGS", "Mode", "Setting", "Settings", "variable"]

PREFIX = "spark.skipping."

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key without the prefix, its default and its values as text, its meaning.

    `fixed`: clients of a server (`python -m rewrite.serve`) cannot set it.
    """

    key: str
    default: str
    takes: str
    meaning: str
    read: Callable[[str], object]
    fixed: bool = False


def _setting(
    default: _T,
    key: str,
    read: Callable[[str], _T],
    *,
    text: str,
    takes: str,
    meaning: str,
    shown: bool = True,
    fixed: bool = False,
) -> _T:
    """Return a field of Settings that has its Setting."""
    row = Setting(key, text, takes, meaning, read, fixed)
    made: _T = field(default=default, metadata={"setting": row}, repr=shown)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one session. Durations are in seconds; `store` None is the default store."""

    enabled: bool = _setting(
        True,
        "enabled",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether queries ask their indexes; false reads every file",
    )
    store: str | None = _setting(
        None,
        "store",
        values.text,
        text="",
        takes="`sqlite:/path`, `opensearch://host:9200` or `opensearch+https://host:9200`",
        meaning="where indexes are kept; a file in the warehouse directory, which then has to be "
        "local, unless set here or as the environment's SKIPPING_STORE",
        fixed=True,
    )
    cache_ttl: float = _setting(
        5.0,
        "cache.ttl",
        values.duration,
        text="5s",
        takes="a duration such as 5s, 200ms, 1min, or seconds",
        meaning="how long the driver trusts what it knows of an index before it looks again",
    )
    cache_max_bytes: int = _setting(
        256 << 20,
        "cache.maxBytes",
        values.size,
        text="256m",
        takes="a size such as 256m, 512k, or bytes; 0 keeps nothing",
        meaning="how many bytes of a store's sketches the driver keeps, so as not to ask for them",
        fixed=True,
    )
    timeout: float = _setting(
        2.0,
        "timeout",
        values.budget,
        text="2s",
        takes="a duration above zero such as 5s, 200ms, 1min, or seconds",
        meaning="how long one query may spend on asking; then it reads every file",
    )
    opensearch_prefix: str = _setting(
        "skipping-",
        "opensearch.prefix",
        values.required_text,
        text="skipping-",
        takes="what the names of indices begin with",
        meaning="where in a cluster indexes are kept",
        fixed=True,
    )
    opensearch_user: str | None = _setting(
        None,
        "opensearch.user",
        values.text,
        text="",
        takes="a name",
        meaning="who asks OpenSearch; or SKIPPING_OPENSEARCH_USER. It goes, as all that a "
        "context was started with, only to the store that it was started with",
        fixed=True,
    )
    opensearch_password: str | None = _setting(
        None,
        "opensearch.password",
        values.text,
        text="",
        takes="a password",
        meaning="the user's; or, never in any configuration, SKIPPING_OPENSEARCH_PASSWORD",
        shown=False,
        fixed=True,
    )
    opensearch_ca: str | None = _setting(
        None,
        "opensearch.ca",
        values.text,
        text="",
        takes="a PEM file",
        meaning="the authorities trusted to vouch for the cluster, if not those of the system",
        fixed=True,
    )
    opensearch_certificate: str | None = _setting(
        None,
        "opensearch.certificate",
        values.text,
        text="",
        takes="a PEM file",
        meaning="the client's certificate, where the cluster asks for one",
        fixed=True,
    )
    opensearch_key: str | None = _setting(
        None,
        "opensearch.key",
        values.text,
        text="",
        takes="a PEM file",
        meaning="the key of the client's certificate, if it is in a file of its own",
        fixed=True,
    )
    opensearch_insecure: bool = _setting(
        False,
        "opensearch.insecure",
        values.boolean,
        text="false",
        takes="true or false",
        meaning="whether a password may go over plain HTTP to another machine; counts only where "
        "a context was started with it, or as SKIPPING_OPENSEARCH_INSECURE",
        fixed=True,
    )
    mode: Literal["fallback", "strict"] = _setting(
        "fallback",
        "mode",
        values.mode,
        text="fallback",
        takes="fallback or strict",
        meaning="what a query does when skipping fails: reads every file, or raises (for tests)",
    )
    shadow: float = _setting(
        0.0,
        "shadow",
        values.share,
        text="0",
        takes="a share from 0 to 1",
        meaning="of the files that were pruned, how many are read again in the background, to "
        "raise an alarm if one holds a match (rewrite.alarms)",
    )
    statistics_enabled: bool = _setting(
        True,
        "statistics.enabled",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether the keys of joins, and lists of values, are also compared with what a "
        "table knows itself: partitions, and for columns without an index the bounds in its log",
    )
    dml: bool = _setting(
        True,
        "dml",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether DELETE, UPDATE and MERGE on Delta and Iceberg tables look for the rows "
        "that they change through the index",
    )
    dynamic_enabled: bool = _setting(
        True,
        "dynamic.enabled",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether a join's keys, collected from its smaller side, prune the other side",
    )
    dynamic_rows: bool = _setting(
        True,
        "dynamic.rows",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether these keys also drop rows in the files that are read",
    )
    dynamic_max_bytes: int = _setting(
        32 << 20,
        "dynamic.maxBytes",
        values.size,
        text="32m",
        takes="a size such as 32m, 512k, or bytes; 0 or less for no limit",
        meaning="how many bytes of keys a query collects from one side of a join at most",
    )
    explain_values: bool = _setting(
        False,
        "explain.values",
        values.boolean,
        text="false",
        takes="true or false",
        meaning="whether explain shows the values of conditions, which are data, or only counts",
        fixed=True,
    )
    checkpoint_roots: tuple[str, ...] = _setting(
        (),
        "streaming.checkpointRoots",
        values.folders,
        text="",
        takes="folders, several with commas between them",
        meaning="under which, besides the warehouse directory, streams may have their "
        "checkpoint_location, as under spark.sql.streaming.checkpointLocation; both count only "
        "where a context was started with them",
        fixed=True,
    )
    table_roots: tuple[str, ...] = _setting(
        (),
        "tableRoots",
        values.folders,
        text="",
        takes="folders, several with commas between them",
        meaning="below which, besides the file systems of the warehouse directory and the default "
        "one, a table is opened by a path that stands in the store (SHOW, streams of an earlier "
        "session, refresh --all); counts only where a context was started with it",
        fixed=True,
    )
    providers: tuple[str, ...] = _setting(
        (),
        "providers",
        values.classes,
        text="",
        takes="module:Class, several with commas between them",
        meaning="index kinds besides those that installed packages register under the entry point "
        "`skipping.providers`",
        fixed=True,
    )

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> Settings:
        """Read the settings from a session's configuration; ignores keys without `spark.skipping.`.

        Raises SettingError for a key that is unknown (with a suggestion) or of a later release, and
        for a wrong value.
        """
        settings, wrong = cls._read(mapping)
        if wrong:
            raise SettingError("; ".join(wrong))
        return settings

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from the environment: `cache.maxBytes` is SKIPPING_CACHE_MAX_BYTES.

        Ignores the login of OpenSearch, which is read where it is used. Raises SettingError for a
        wrong value.
        """
        values: dict[str, object] = {}
        for name, row in _ROWS.items():
            given = environment.get(variable(row.key), "").strip()
            if not given or row.key in ("opensearch.user", "opensearch.password"):
                continue
            try:
                values[name] = row.read(given)
            except (KeyError, ValueError):
                raise SettingError(
                    f"the environment's {variable(row.key)} takes {row.takes}, not {given!r}"
                ) from None
        return cls(**values)  # type: ignore[arg-type]  # as in `_read`

    @classmethod
    def lenient(cls, mapping: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
        """Return the settings like `of`, with defaults for wrong values, and the errors."""
        return cls._read(mapping)

    @classmethod
    def _read(cls, mapping: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
        values: dict[str, object] = {}
        wrong: list[str] = []
        for key, given in mapping.items():
            if not key.startswith(PREFIX):
                continue
            name = _FIELDS.get(key.removeprefix(PREFIX))
            if name is None:
                wrong.append(_refusal(key))
                continue
            setting = _ROWS[name]
            try:
                values[name] = setting.read(given.strip())
            except (KeyError, ValueError):
                wrong.append(f"{key} takes {setting.takes}, not {given!r}")
        return cls(**values), tuple(wrong)  # type: ignore[arg-type]  # `read` returns the type of the field


def variable(key: str) -> str:
    """Return the environment variable of a setting, for use without a session.

    >>> variable("timeout"), variable("cache.maxBytes")
    ('SKIPPING_TIMEOUT', 'SKIPPING_CACHE_MAX_BYTES')
    """
    return "SKIPPING_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace(".", "_").upper()


_ROWS: dict[str, Setting] = {f.name: f.metadata["setting"] for f in fields(Settings)}
_FIELDS = {row.key: name for name, row in _ROWS.items()}

SETTINGS: tuple[Setting, ...] = tuple(_ROWS.values())
"""All settings, in the order of the reference page."""


def _refusal(key: str) -> str:
    folded = {name.lower(): name for name in _FIELDS}
    near = get_close_matches(key.removeprefix(PREFIX).lower(), folded, n=1)
    if near:
        return f"no setting {key}: did you mean {PREFIX}{folded[near[0]]}?"
    return f"no setting {key}: there are {', '.join(PREFIX + n for n in _FIELDS)}"
