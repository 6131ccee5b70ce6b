"""Define and parse the WITH options of an index.

All options of Flint are included, so that Flint's statements either run or fail with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from urllib.parse import urlsplit

from providers.base import Param
from providers.errors import DefinitionError
from skipping.config import values as setting_values
from skipping.config.index_settings import read_index_settings
from skipping.parser.literals import parse_percent

BUDGET = "10%"
"""The default for the maximum size of an automatic index, and of the advice of ANALYZE."""

INTERVAL = 10.0
"""The default for the seconds between two polls of a table by the stream of its index."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its values (the first is the default), what it means, whether ALTER may set it.

    An option without a list of values has `read`, which parses a value, or raises ValueError or
    KeyError for a value that `takes` does not describe. `later` is the workaround if the option, or
    any value but the default, is not supported. `never` says why Flint's option has no meaning
    here.
    """

    name: str
    values: tuple[bool | str, ...]
    meaning: str
    alter: bool = True
    later: str = ""
    never: str = ""
    read: Callable[[Param], float | int | str] | None = None
    takes: str = ""


def _read_interval(given: Param) -> float:
    if isinstance(given, bool):
        raise ValueError(given)
    return setting_values.budget(str(given))


def _read_count(given: Param) -> int:
    number = int(str(given))
    if isinstance(given, bool) or number < 1:
        raise ValueError(given)
    return number


def _read_folder(given: Param) -> str:
    if not isinstance(given, str) or not given.strip() or "@" in urlsplit(given).netloc:
        raise ValueError(given)
    return given.strip()


def _read_percent(given: Param) -> str:
    percent = 100 * parse_percent(str(given))
    if not 0.001 <= percent <= 1_000:
        raise ValueError(given)
    return f"{percent:g}%"  # which this function can read, too


OPTIONS: tuple[Option, ...] = (
    Option(
        "build",
        (True, False),
        "whether CREATE indexes the existing files, or leaves that to REFRESH",
        alter=False,
    ),
    Option(
        "auto_refresh",
        (False, True),
        "whether the index is refreshed automatically",
    ),
    Option(
        "incremental_refresh",
        (False, True),
        "in Flint, whether REFRESH reads only new files, as it always does here",
        later="leave it out; REFRESH SKIPPING INDEX always reads only files without an entry",
    ),
    Option(
        "scheduler_mode",
        ("internal", "external"),
        "what refreshes the index automatically: a stream in the session that set auto_refresh, "
        "or your scheduler, which runs python -m skipping refresh",
    ),
    Option(
        "refresh_interval",
        (),
        "how often the stream checks whether its table has a new version",
        read=_read_interval,
        takes="a duration above zero such as 30 seconds, 1 minute, 500ms, or seconds",
    ),
    Option(
        "checkpoint_location",
        (),
        "the folder for the checkpoint of the stream, under one that the session allows; it may be "
        "deleted at any time",
        read=_read_folder,
        takes="the path or URL of a folder, without user and password",
    ),
    Option(
        "max_files_per_batch",
        (),
        "the maximum number of files that a micro-batch of the stream indexes",
        read=_read_count,
        takes="a number of files, 1 or more",
    ),
    Option(
        "automatic",
        (False, True),
        "whether the index chooses its columns, as with AUTO in CREATE",
    ),
    Option(
        "budget",
        (),
        "the maximum size of the columns that an automatic index chooses, as a percentage of the "
        "table's bytes",
        read=_read_percent,
        takes="a percentage from 0.001% to 1000%, such as '5%'",
    ),
    Option(
        "extra_options",
        (),
        "in Flint, options for the stream and its source",
        alter=False,
        never="the stream reads the table's log as the session does; see max_files_per_batch",
    ),
    Option(
        "index_settings",
        (),
        "shards and replicas of the index in OpenSearch, as JSON: number_of_shards, "
        "number_of_replicas, auto_expand_replicas",
        alter=False,
        read=read_index_settings,
        takes='a JSON object such as \'{"number_of_shards": 2, "number_of_replicas": 1}\'; '
        "it may have number_of_shards (1 to 64), and number_of_replicas (0 to 20) or "
        "auto_expand_replicas (such as 0-1 or 0-all)",
    ),
    Option(
        "index_mappings",
        (),
        "in Flint, mappings of the OpenSearch index",
        alter=False,
        never="the index type determines the mapping of each field; index_settings sets shards and "
        "replicas",
    ),
    Option(
        "watermark_delay",
        (),
        "in Flint, how late rows of a materialized view may arrive",
        never="the stream reads files from the table's log, so none is late",
    ),
    Option(
        "output_mode",
        (),
        "in Flint, how a stream writes its rows",
        alter=False,
        never="an entry is written once for each file",
    ),
    Option(
        "id_expression",
        (),
        "in Flint, what identifies a row of the index",
        alter=False,
        never="an entry is identified by the path and size of its file",
    ),
)
"""All options."""

_BY_NAME = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """The supported options with their values. `refresh_interval` is in seconds."""

    build: bool = True
    auto_refresh: bool = False
    incremental_refresh: bool = False
    scheduler_mode: str = "internal"
    refresh_interval: float = INTERVAL
    checkpoint_location: str | None = None
    max_files_per_batch: int | None = None
    automatic: bool = False
    budget: str = BUDGET
    index_settings: str | None = None

    @property
    def streamed(self) -> bool:
        """Whether a stream of this project maintains the index."""
        return self.auto_refresh and self.scheduler_mode == "internal"

    @classmethod
    def of(cls, mapping: Mapping[str, Param], *, alter: bool = False) -> IndexOptions:
        """Parse the options of CREATE, or of ALTER if `alter` is true; names are case-sensitive.

        Raises DefinitionError for an unknown name (with a suggestion), an option that has no
        meaning here or is not supported, and an invalid value.
        """
        chosen: dict[str, bool | float | str] = {}
        for name, given in mapping.items():
            option = _find_option(name)
            if option.never:
                raise _option_error(name, f"the option {name} has no meaning here: {option.never}")
            if not option.values and option.read is None:
                raise _later_error(name, option)
            value = _read(option, given) if option.read else _one_of(option, given)
            if alter and not option.alter:
                raise _option_error(
                    name,
                    f"ALTER cannot change the option {name}: drop the index and create it again",
                )
            if option.later and value != option.values[0]:
                raise _later_error(f"{name} = {str(value).lower()}", option)
            chosen[name] = value
        return cls(**chosen)  # type: ignore[arg-type]  # `read` returns the type of the field

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the options that differ from the defaults, as text that `of` reads."""
        return tuple(
            (field.name, str(value).lower() if isinstance(value, bool) else str(value))
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        )


def _find_option(name: str) -> Option:
    if option := _BY_NAME.get(name):
        return option
    near = get_close_matches(name.lower(), _BY_NAME, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(_BY_NAME)}"
    raise _option_error(name, f"unknown option {name}: {hint}")


def _option_error(name: str, message: str) -> DefinitionError:
    return DefinitionError(message, about=f"with.{name}")


def _later_error(what: str, option: Option) -> DefinitionError:
    return _option_error(option.name, f"the option {what} is not supported yet: {option.later}")


def _read(option: Option, given: Param) -> float | int | str:
    assert option.read is not None, "checked by the caller"
    try:
        return option.read(given)
    except (ValueError, KeyError):
        # Do not show the value: it may be a URL with a password.
        raise _option_error(option.name, f"the option {option.name} takes {option.takes}") from None


def _one_of(option: Option, given: Param) -> bool | str:
    """Return the option's value that equals `given`: case-insensitive, booleans also as text."""
    for value in option.values:
        # Compare types first: 1 == True, but `build = 1` is a mistake.
        if isinstance(given, str | bool) and str(given).lower() == str(value).lower():
            return value
    choices = " or ".join(str(value).lower() for value in option.values)
    raise _option_error(option.name, f"the option {option.name} takes {choices}, not {given!r}")
