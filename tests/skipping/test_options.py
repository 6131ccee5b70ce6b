from __future__ import annotations

import pytest

from providers.errors import DefinitionError
from skipping.options import OPTIONS, IndexOptions

FLINT = [
    "auto_refresh",
    "scheduler_mode",
    "refresh_interval",
    "incremental_refresh",
    "checkpoint_location",
    "watermark_delay",
    "output_mode",
    "index_settings",
    "index_mappings",
    "id_expression",
    "extra_options",
]


def test_defaults():
    assert IndexOptions.of({}) == IndexOptions(build=True, auto_refresh=False)
    assert IndexOptions.of({}).pairs() == ()


def test_defaults_are_those_of_the_table():
    for option in OPTIONS:
        if option.values:
            assert getattr(IndexOptions(), option.name) == option.values[0]


@pytest.mark.parametrize("value", [False, "false", "FALSE"])
def test_build(value):
    options = IndexOptions.of({"build": value})
    assert options == IndexOptions(build=False)
    assert options.pairs() == (("build", "false"),)
    assert IndexOptions.of(dict(options.pairs())) == options


def test_what_changes_nothing_is_accepted():
    given = {"auto_refresh": False, "incremental_refresh": "false", "scheduler_mode": "internal"}
    assert IndexOptions.of(given) == IndexOptions.of(given, alter=True) == IndexOptions()


@pytest.mark.parametrize("name", FLINT)
def test_flints_options_are_honoured_or_refused_by_name(name):
    with pytest.raises(DefinitionError, match=rf"option {name}.* (not supported yet|no meaning)"):
        IndexOptions.of({name: "external" if name == "scheduler_mode" else "true"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("auto_refresh", True, "the option auto_refresh = true is not supported yet: no stream"),
        ("incremental_refresh", True, "incremental_refresh = true is not supported yet: leave"),
        ("scheduler_mode", "external", "scheduler_mode = external is not supported yet: let your"),
        ("max_files_per_batch", 5, "max_files_per_batch is not supported yet: no stream"),
        ("autoRefresh", True, "no option autoRefresh: did you mean auto_refresh?"),
        ("BUILD", True, "no option BUILD: did you mean build?"),
        ("colour", 1, "no option colour: there are build, auto_refresh, "),
        ("build", 1, "the option build takes true or false, not 1"),
        ("scheduler_mode", "cron", "scheduler_mode takes internal or external, not 'cron'"),
    ],
)
def test_refusals(name, value, message):
    with pytest.raises(DefinitionError) as error:
        IndexOptions.of({name: value})
    assert message in str(error.value)


def test_build_belongs_to_create():
    with pytest.raises(DefinitionError, match="ALTER cannot change it"):
        IndexOptions.of({"build": True}, alter=True)


def test_every_option_can_be_explained():
    for option in OPTIONS:
        assert option.meaning
        assert option.values or option.later or option.never
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
