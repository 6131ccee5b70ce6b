from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import SettingError
from skipping.config.settings import SETTINGS, Settings, variable


def _of(**values):
    return Settings.of({f"spark.skipping.{k.replace('_', '.')}": v for k, v in values.items()})


def test_defaults():
    assert Settings.of({}) == Settings() == Settings.of({"spark.sql.ansi.enabled": "sometimes"})
    assert (Settings().enabled, Settings().mode, Settings().store) == (True, "fallback", None)
    assert (Settings().cache_ttl, Settings().timeout) == (5.0, 2.0)


def test_defaults_are_those_of_the_table():
    assert Settings.of({f"spark.skipping.{s.key}": s.default for s in SETTINGS}) == Settings()
    assert all(s.meaning and s.takes for s in SETTINGS)


def test_all():
    settings = _of(
        enabled="FALSE",
        store=" opensearch://host:9200 ",
        cache_ttl="1min",
        timeout="200ms",
        mode="strict",
        providers="a.b:C, d:E",
    )
    assert settings == Settings(
        enabled=False,
        store="opensearch://host:9200",
        cache_ttl=60,
        timeout=0.2,
        mode="strict",
        providers=("a.b:C", "d:E"),
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("200ms", 0.2),
        ("1min", 60),
        ("2m", 120),
        ("5", 5),
        ("0.5", 0.5),
        ("1 h", 3600),
        ("0", 0),
        ("250000us", 0.25),
        ("1d", 86400),
        (".5s", 0.5),
        ("5S", 5),
    ],
)
def test_durations(text, seconds):
    assert _of(cache_ttl=text).cache_ttl == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "cache.tl",
            "5s",
            "unknown setting spark.skipping.cache.tl: did you mean spark.",
        ),
        ("Enabled", "true", "did you mean spark.skipping.enabled?"),
        ("cache.maxbytes", "5", "did you mean spark.skipping.cache.maxBytes?"),
        (
            "colour",
            "1",
            "unknown setting spark.skipping.colour: the settings are spark.",
        ),
        ("enabled", "yes", "spark.skipping.enabled takes true or false, not 'yes'"),
        ("timeout", "0", "spark.skipping.timeout takes a duration above zero"),
        ("timeout", "-1s", "takes a duration above zero"),
        ("cache.ttl", "5 parsecs", "takes a duration such as 5s"),
        ("cache.ttl", "9" * 400, "takes a duration such as 5s"),
        ("mode", "loose", "spark.skipping.mode takes fallback or strict, not 'loose'"),
        ("providers", "a.b.C", "spark.skipping.providers takes module:Class"),
        (
            "verification.sampleRate",
            "true",
            "spark.skipping.verification.sampleRate takes a number from 0 to 1, not 'true'",
        ),
        (
            "verification.sampleRate",
            "nan",
            "spark.skipping.verification.sampleRate takes a number from 0 to 1",
        ),
        (
            "verification.sampleRate",
            "1.5",
            "spark.skipping.verification.sampleRate takes a number from 0 to 1",
        ),
        ("opensearch.usr", "me", "did you mean spark.skipping.opensearch.user?"),
        ("opensearch.prefix", "", "spark.skipping.opensearch.prefix takes a prefix of names"),
    ],
)
def test_refusals(key, value, message):
    mapping = {f"spark.skipping.{key}": value, "spark.skipping.store": "here"}
    with pytest.raises(SettingError) as error:
        Settings.of(mapping)
    assert message in str(error.value)
    settings, warnings = Settings.lenient(mapping)
    assert settings == Settings(store="here")
    assert len(warnings) == 1
    assert message in warnings[0]


def test_a_password_is_never_shown():
    settings = _of(opensearch_user="me", opensearch_password="s3cret", opensearch_prefix="p-")
    assert settings.opensearch_password == "s3cret"
    assert "me" in repr(settings)
    assert "s3cret" not in repr(settings)


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(SettingError, match=r"enabled takes .*; unknown setting spark\.skipping\.x"):
        _of(enabled="1", x="1")


@given(st.dictionaries(st.text().map("spark.skipping.".__add__), st.text()))
def test_reading_never_raises(mapping):
    settings, warnings = Settings.lenient(mapping)
    # Hypothesis also tries the words of the sources, so some keys are settings.
    unknown = set(mapping) - {f"spark.skipping.{setting.key}" for setting in SETTINGS}
    assert len(unknown) <= len(warnings) <= len(mapping)
    assert settings == Settings() or len(unknown) < len(mapping)


def test_the_environment_without_a_session():
    given = {
        "SKIPPING_CACHE_TTL": "1min",
        "SKIPPING_EXPLAIN_VALUES": "true",
        "SKIPPING_OPENSEARCH_PREFIX": "mine-",
        "SKIPPING_OPENSEARCH_PASSWORD": "read where it is used",
        "SKIPPING_TIMEOUT": " ",
        "SKIPPING_TEST_MASTER": "is not ours",
    }
    wanted = Settings(cache_ttl=60, explain_values=True, opensearch_prefix="mine-")
    assert Settings.of_environment(given) == wanted
    assert len({variable(s.key) for s in SETTINGS}) == len(SETTINGS)
    with pytest.raises(SettingError, match="variable SKIPPING_CACHE_TTL takes a duration"):
        Settings.of_environment({"SKIPPING_CACHE_TTL": "5 apples"})
