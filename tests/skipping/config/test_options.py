from __future__ import annotations

import pytest

from providers.errors import DefinitionError
from skipping.config.options import OPTIONS, IndexOptions

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


SHARDS = '{"number_of_replicas": 0, "number_of_shards": 2}'
HONOURED = {
    "index_settings": (
        '{"index": {"number_of_shards": "2"}, "index.number_of_replicas": 0}',
        SHARDS,
    ),
    "auto_refresh": ("TRUE", True),
    "scheduler_mode": ("External", "external"),
    "refresh_interval": ("30 Seconds", 30.0),
    "checkpoint_location": ("s3://Bucket/checkpoints/", "s3://Bucket/checkpoints/"),
}


@pytest.mark.parametrize("name", FLINT)
def test_flints_options_are_honoured_or_refused_by_name(name):
    if name in HONOURED:
        given, read = HONOURED[name]
        options = IndexOptions.of({name: given})
        assert getattr(options, name) == read
        assert IndexOptions.of(dict(options.pairs())) == options
    else:
        says = rf"option {name}.* (not supported yet|no meaning)"
        with pytest.raises(DefinitionError, match=says):
            IndexOptions.of({name: "true"})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("10 seconds", 10), ("1 minute", 60), (5, 5), (0.5, 0.5), ("200ms", 0.2), ("2 Hours", 7200)],
)
def test_intervals(given, seconds):
    options = IndexOptions.of({"refresh_interval": given})
    assert options.refresh_interval == pytest.approx(seconds)
    assert IndexOptions.of(dict(options.pairs())) == options


def test_index_settings_expand_replicas():
    options = IndexOptions.of({"index_settings": '{"auto_expand_replicas": "1-all"}'})
    assert options.index_settings == '{"auto_expand_replicas": "1-all"}'
    with pytest.raises(DefinitionError, match="ALTER cannot change the option"):
        IndexOptions.of({"index_settings": SHARDS}, alter=True)


def test_who_streams():
    assert not IndexOptions().streamed
    assert IndexOptions(auto_refresh=True).streamed
    assert not IndexOptions(auto_refresh=True, scheduler_mode="external").streamed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("refresh_interval", v) for v in ("soon", "0 s", -1, True, "", "3 fortnights")),
        *(("max_files_per_batch", v) for v in (0, -3, 1.5, "many", True)),
        *(
            ("index_settings", v)
            for v in (
                *("", "hush", "[]", "2", "null", "{", 5, True, "[" * 900, '{"a":' * 150 + "1"),
                *(
                    '{"number_of_shards": 0}',
                    '{"number_of_shards": 65}',
                    '{"number_of_shards": NaN}',
                ),
                *('{"number_of_shards": 1.0}', '{"number_of_shards": true}', '{"codec": "hush"}'),
                *('{"number_of_shards": 1, "number_of_shards": 2}', '{"number_of_replicas": "-1"}'),
                *('{"number_of_shards": 1, "index": {"number_of_shards": 2}}', '{"index": 1}'),
                *('{"auto_expand_replicas": "3-1"}', '{"auto_expand_replicas": false}'),
                *('{"number_of_replicas": 1, "auto_expand_replicas": "0-1"}', "{}" + " " * 1_000),
                '{"analysis": {"analyzer": {"hush": {}}}}',
            )
        ),
        *(("checkpoint_location", v) for v in ("", " ", 5, True, "s3://me:hush@bucket/c")),
    ],
)
def test_values_that_are_refused_are_not_repeated(name, value):
    with pytest.raises(DefinitionError, match=f"the option {name} takes ") as error:
        IndexOptions.of({name: value})
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("incremental_refresh", True, "incremental_refresh = true is not supported yet: leave"),
        ("index_mappings", "{}", "index_mappings has no meaning here: the index type determines"),
        ("extra_options", "{}", "extra_options has no meaning here: the stream reads"),
        ("autoRefresh", True, "unknown option autoRefresh: did you mean auto_refresh?"),
        ("BUILD", True, "unknown option BUILD: did you mean build?"),
        ("colour", 1, "unknown option colour: the options are build, auto_refresh, "),
        ("build", 1, "the option build takes true or false, not 1"),
        ("scheduler_mode", "cron", "scheduler_mode takes internal or external, not 'cron'"),
    ],
)
def test_refusals(name, value, message):
    with pytest.raises(DefinitionError) as error:
        IndexOptions.of({name: value})
    assert message in str(error.value)


def test_build_belongs_to_create():
    with pytest.raises(DefinitionError, match="ALTER cannot change the option"):
        IndexOptions.of({"build": True}, alter=True)


def test_every_option_can_be_explained():
    for option in OPTIONS:
        assert option.meaning
        assert option.values or option.read or option.later or option.never
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
