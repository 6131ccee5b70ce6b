"""Define and parse the settings of a session, `spark.skipping.*`.

The metadata of each field of `Settings` has the key, the parser and the meaning of the setting.
`SETTINGS` lists them for the reference page.
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
    """One setting: its key without the prefix, its default as text, its valid values, its meaning.

    `read` parses a value; it raises KeyError or ValueError. If `fixed`, clients of a server
    (`python -m rewrite.serve`) cannot change the setting.
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
    """Return a field of Settings with a Setting as metadata; `shown` includes it in the repr."""
    setting = Setting(key, text, takes, meaning, read, fixed)
    made: _T = field(default=default, metadata={"setting": setting}, repr=shown)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one session. Durations are in seconds; `store` None is the default."""

    enabled: bool = _setting(
        True,
        "enabled",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether queries use indexes; false reads all files",
    )
    store: str | None = _setting(
        None,
        "store",
        values.text,
        text="",
        takes="`sqlite:/path`; a folder: `s3a://bucket/path`, `gs://`, `abfss://`, `hdfs://` or "
        "`file:///path`; `opensearch://host:9200` or `opensearch+https://host:9200`",
        meaning="where indexes are stored; also the environment variable SKIPPING_STORE. The "
        "default is a SQLite file in a local warehouse directory, and the folder `_skipping` in a "
        "remote one",
        fixed=True,
    )
    store_replica: str | None = _setting(
        None,
        "store.replica",
        values.text,
        text="",
        takes="a local folder",
        meaning="where the drivers of one user on this host share copies of the stores in folders. "
        "The default is `lakehouse-file-skipping/replicas` in XDG_CACHE_HOME or `~/.cache`",
        fixed=True,
    )
    store_replica_max_bytes: int = _setting(
        32 << 30,
        "store.replica.maxBytes",
        values.size,
        text="32g",
        takes="a size such as 32g, 512m, or bytes",
        meaning="how large the copy of one store may be before queries stop adding large sketches "
        "to it; paths and bounds are still added. Conditions on other sketches prune no file then",
        fixed=True,
    )
    price_storage: float = _setting(
        0.023,
        "price.storage",
        values.amount,
        text="0.023",
        takes="a number of at least 0",
        meaning="the price of a GiB and month of a store in a folder, in any currency: "
        "`DESCRIBE SKIPPING INDEX EXTENDED` shows what an index costs",
    )
    price_get: float = _setting(
        0.0004,
        "price.get",
        values.amount,
        text="0.0004",
        takes="a number of at least 0",
        meaning="the price of 1,000 GET requests of a store in a folder, in any currency: "
        "`DESCRIBE SKIPPING INDEX EXTENDED` shows what an index costs",
    )
    price_put: float = _setting(
        0.005,
        "price.put",
        values.amount,
        text="0.005",
        takes="a number of at least 0",
        meaning="the price of 1,000 PUT requests of a store in a folder, in any currency: "
        "`DESCRIBE SKIPPING INDEX EXTENDED` shows what an index costs",
    )
    cache_ttl: float = _setting(
        5.0,
        "cache.ttl",
        values.duration,
        text="5s",
        takes="a duration such as 5s, 200ms, 1min, or seconds",
        meaning="how long the driver uses its cache of an index before it checks the store again",
    )
    cache_max_bytes: int = _setting(
        256 << 20,
        "cache.maxBytes",
        values.size,
        text="256m",
        takes="a size such as 256m, 512k, or bytes; 0 disables the cache",
        meaning="how many bytes of a store's sketches the driver caches",
        fixed=True,
    )
    timeout: float = _setting(
        2.0,
        "timeout",
        values.budget,
        text="2s",
        takes="a duration above zero such as 5s, 200ms, 1min, or seconds",
        meaning="how long one query may spend on lookups; then it reads all files",
    )
    opensearch_prefix: str = _setting(
        "skipping-",
        "opensearch.prefix",
        values.required_text,
        text="skipping-",
        takes="a prefix of names",
        meaning="the prefix of the names of the project's indices in a cluster",
        fixed=True,
    )
    opensearch_user: str | None = _setting(
        None,
        "opensearch.user",
        values.text,
        text="",
        takes="a name",
        meaning="the user in OpenSearch; also SKIPPING_OPENSEARCH_USER. If the Spark context was "
        "started with it, it is sent only to the store that the context was started with",
        fixed=True,
    )
    opensearch_password: str | None = _setting(
        None,
        "opensearch.password",
        values.text,
        text="",
        takes="a password",
        meaning="the password of the user; better: the variable SKIPPING_OPENSEARCH_PASSWORD, "
        "which is not part of any configuration",
        shown=False,
        fixed=True,
    )
    opensearch_ca: str | None = _setting(
        None,
        "opensearch.ca",
        values.text,
        text="",
        takes="a PEM file",
        meaning="the certificate authorities for the cluster; by default those of the system",
        fixed=True,
    )
    opensearch_certificate: str | None = _setting(
        None,
        "opensearch.certificate",
        values.text,
        text="",
        takes="a PEM file",
        meaning="the client's certificate, if the cluster requires one",
        fixed=True,
    )
    opensearch_key: str | None = _setting(
        None,
        "opensearch.key",
        values.text,
        text="",
        takes="a PEM file",
        meaning="the key of the client's certificate, if it is in a separate file",
        fixed=True,
    )
    opensearch_insecure: bool = _setting(
        False,
        "opensearch.insecure",
        values.boolean,
        text="false",
        takes="true or false",
        meaning="whether a password may be sent over plain HTTP to another machine; only used if "
        "the Spark context was started with it, or as SKIPPING_OPENSEARCH_INSECURE",
        fixed=True,
    )
    mode: Literal["fallback", "strict"] = _setting(
        "fallback",
        "mode",
        values.mode,
        text="fallback",
        takes="fallback or strict",
        meaning="what a query does if skipping fails: read all files, or raise (for tests)",
    )
    sample_rate: float = _setting(
        0.0,
        "verification.sampleRate",
        values.share,
        text="0",
        takes="a number from 0 to 1",
        meaning="the fraction of pruned files that are verified in the background; a file that "
        "contains a match is an alarm (rewrite.alarms)",
    )
    statistics_enabled: bool = _setting(
        True,
        "statistics.enabled",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether keys of joins and lists of values are also compared with a table's own "
        "statistics: partitions, and for columns without an index the bounds in its log",
    )
    static_joins: bool = _setting(
        True,
        "static.joins",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether the partitions and bounds of one side of a join prune the other side "
        "while the query is planned",
    )
    report_size: bool = _setting(
        True,
        "report.size",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether Spark's optimizer gets the size that the index leaves of a table",
    )
    dml: bool = _setting(
        True,
        "dml",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether DELETE, UPDATE and MERGE on Delta and Iceberg tables use the index to "
        "find the rows that they change",
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
        meaning="the maximum number of bytes of keys that a query collects from one side of a join",
    )
    explain_values: bool = _setting(
        False,
        "explain.values",
        values.boolean,
        text="false",
        takes="true or false",
        meaning="whether explain shows the values in conditions, or only counts",
        fixed=True,
    )
    workload: bool = _setting(
        True,
        "workload",
        values.boolean,
        text="true",
        takes="true or false",
        meaning="whether the driver writes counts of its queries to the store, by table, condition "
        "and day, without values, for ANALYZE and SHOW SKIPPING SAVINGS. With false, they stay in "
        "memory",
        fixed=True,
    )
    workload_retention: float = _setting(
        90 * 86400.0,
        "workload.retention",
        values.budget,
        text="90d",
        takes="a duration above zero such as 90d or 12h",
        meaning="how long these counts are read and kept, in whole days; a driver deletes older "
        "ones of all drivers, but none of the last 30 days",
        fixed=True,
    )
    automatic_patience: float = _setting(
        7 * 86400.0,
        "automatic.patience",
        values.budget,
        text="7d",
        takes="a duration above zero such as 7d",
        meaning="for how many whole days, at least one, a column of an automatic index must be "
        "worth less than it costs before it is dropped",
        fixed=True,
    )
    checkpoint_roots: tuple[str, ...] = _setting(
        (),
        "streaming.checkpointRoots",
        values.folders,
        text="",
        takes="folders, separated by commas",
        meaning="the folders for the checkpoint_location of streams, in addition to the warehouse "
        "directory and spark.sql.streaming.checkpointLocation; both settings are only used if a "
        "context was started with them",
        fixed=True,
    )
    table_roots: tuple[str, ...] = _setting(
        (),
        "tableRoots",
        values.folders,
        text="",
        takes="folders, separated by commas",
        meaning="the folders of tables that are opened by a path in the store (SHOW, streams of "
        "an earlier session, refresh --all), in addition to the default file system and that of "
        "the warehouse directory; only used if a context was started with it",
        fixed=True,
    )
    providers: tuple[str, ...] = _setting(
        (),
        "providers",
        values.classes,
        text="",
        takes="module:Class, separated by commas",
        meaning="index types in addition to those that installed packages register under the "
        "entry point `skipping.providers`",
        fixed=True,
    )

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> Settings:
        """Read the settings from a session's configuration; ignore keys without `spark.skipping.`.

        Raises SettingError for an unknown key (with a suggestion) and for an invalid value.
        """
        settings, wrong = cls._read(mapping)
        if wrong:
            raise SettingError("; ".join(wrong))
        return settings

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from environment variables, such as SKIPPING_CACHE_MAX_BYTES.

        OpenSearch's user and password are left out: they are read where they are used. Raises
        SettingError for an invalid value.
        """
        values: dict[str, object] = {}
        for name, setting in _SETTINGS.items():
            given = environment.get(variable(setting.key), "").strip()
            if not given or setting.key in ("opensearch.user", "opensearch.password"):
                continue
            try:
                values[name] = setting.read(given)
            except (KeyError, ValueError):
                raise SettingError(
                    f"the environment variable {variable(setting.key)} takes {setting.takes}, not "
                    f"{given!r}"
                ) from None
        return cls(**values)  # type: ignore[arg-type]  # as in `_read`

    @classmethod
    def lenient(cls, mapping: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
        """Return the settings, with defaults for invalid values, and the error messages."""
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
                wrong.append(_unknown_key(key))
                continue
            setting = _SETTINGS[name]
            try:
                values[name] = setting.read(given.strip())
            except (KeyError, ValueError):
                wrong.append(f"{key} takes {setting.takes}, not {given!r}")
        return cls(**values), tuple(wrong)  # type: ignore[arg-type]  # `read` returns the type of the field


def variable(key: str) -> str:
    """Return the name of a setting's environment variable, which is read without a session.

    >>> variable("timeout"), variable("cache.maxBytes")
    ('SKIPPING_TIMEOUT', 'SKIPPING_CACHE_MAX_BYTES')
    """
    return "SKIPPING_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace(".", "_").upper()


_SETTINGS: dict[str, Setting] = {f.name: f.metadata["setting"] for f in fields(Settings)}
_FIELDS = {setting.key: name for name, setting in _SETTINGS.items()}

SETTINGS: tuple[Setting, ...] = tuple(_SETTINGS.values())
"""All settings, in the order of the reference page."""


def _unknown_key(key: str) -> str:
    """Return the error message for a key that is not a setting."""
    folded = {name.lower(): name for name in _FIELDS}
    near = get_close_matches(key.removeprefix(PREFIX).lower(), folded, n=1)
    if near:
        return f"unknown setting {key}: did you mean {PREFIX}{folded[near[0]]}?"
    return f"unknown setting {key}: the settings are {', '.join(PREFIX + n for n in _FIELDS)}"
