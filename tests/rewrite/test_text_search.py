"""LIKE and its relatives with an NGRAM index, row by row as Spark has it, on Delta and Iceberg."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unicodedata import combining

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import rewrite
from providers.case_folding import CUT, UNASSIGNED, fold_case, fold_cases
from rewrite.bridge.classes import Classes
from skipping.spark_api import collect_arrow
from tests.rewrite.differential import (
    FORMATS,
    IS_SPARK_4,
    batch,
    exact_batch,
    in_catalog_of,
    make_table,
    matching,
    same_rows,
    settings,
    smoke_on,
    spoiled,
)

FILES = 10
PLACES = ["Amsterdam", "Bogot\u00e1", "Chennai", "Dushanbe", "Eindhoven", "Fukuoka"]
PLACES += ["G\u00f6teborg", "Hangzhou", "\u4eac\u90fd\u5e02", "\U0001f600\U0001f601\U0001f602"]
LETTERS = "abc\u00e9\u4e2d\U0001f600%_\\. -\0"


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"


@pytest.fixture(scope="module", params=FORMATS)
def texts(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """File f has the place f in each text `s`, and in `r` and `q` random ones."""
    rng = random.Random(20)
    rows: list[tuple[int, str | None, str | None]] = []
    for f, place in enumerate(PLACES):
        for i in range(12):
            noise = "".join(rng.choices(LETTERS, k=rng.randrange(14)))
            rows.append((f, f"{place}: parcel {i} of {f}", noise))
    rows += [(FILES, None, None), (FILES + 1, "", "")]
    with in_catalog_of(spark, request.param):
        data = spark.createDataFrame(rows, "_f int, s string, r string")
        data = data.withColumn("q", data.r)
        kinds = "s NGRAM, r NGRAM(n = 2, fpp = 0.001), q VALUE_LIST, q MIN_MAX"
        table = make_table(spark, "texts", data, kinds)
        yield table
        spark.sql(f"DROP SKIPPING INDEX ON {table}")
        spark.sql(f"DROP TABLE {table}")


CONDITIONS = [
    "s LIKE '%sterda%'", "s LIKE '%dam: parcel 1_ of%'", "contains(s, 'ogot\u00e1')",
    "s LIKE 'Chen%'", "startswith(s, 'Dushan')", "s LIKE '%of 4'", "endswith(s, 'of 5')",
    "s LIKE 'G\u00f6t%parcel%of 6'", "s LIKE 'Hang%zhou%' OR contains(s, 'Fukuoka')",
    "contains(s, '\u4eac\u90fd\u5e02')", "s LIKE '%\U0001f600\U0001f601\U0001f602%'",
    "s rlike 'Ein[d]?hoven'", "s rlike '^Amster.*parcel \\\\d+'", "s rlike 'Bogo.+parcel'",
    "s LIKE ALL ('%Chen%', '%parcel_1%')", "s LIKE ANY ('%Duesh%', '%Fuk_o%', '%Amst__dam%')",
    "s = 'Chennai: parcel 3 of 2'", "s IN ('Chennai: parcel 3 of 2', 'Fukuoka: parcel 0 of 5')",
    "contains(s, 'nowhere')", "s IS NULL", "s LIKE '%parcel%' AND contains(s, 'Hangz')",
    "NOT (s NOT LIKE '%shanb%')",
]  # fmt: skip


@smoke_on("iceberg", "texts")
def test_exactly_the_needed_files_are_opened(spark: SparkSession, texts: str) -> None:
    # A class in a regular expression, and so nothing that can be said of it.
    unsaid = {"s rlike 'Ein[d]?hoven'"}
    exact_batch(spark, texts, [c for c in CONDITIONS if c not in unsaid])
    for condition in unsaid:
        found = same_rows(spark, f"SELECT * FROM {texts} WHERE {condition}")
        assert found.opened == found.without - 1  # the file of nulls


def test_the_other_files_may_hold_garbage(spark: SparkSession, texts: str) -> None:
    needed = matching(spark, texts, "contains(s, 'Fukuoka')")
    assert len(needed) == 1
    others = matching(spark, texts, "true") - needed
    query = f"SELECT count(*) FROM {texts} WHERE s LIKE '%ukuok%'"
    with spoiled(sorted(others)):
        assert spark.sql(query).collect()[0][0] == 12


def test_what_is_negated_or_short_loses_no_row(spark: SparkSession, texts: str) -> None:
    conditions = [
        "s NOT LIKE '%sterda%'", "NOT s LIKE '%ster_a%'", "NOT s rlike 'Amster'",
        "NOT contains(s, 'Chen')", "NOT startswith(s, 'Chen')", "NOT endswith(s, 'of 1')",
        "s NOT LIKE ALL ('%Chen%', '%Fuk%')", "NOT s LIKE ALL ('%Chen_%', '%Fuk_%')",
        "s NOT LIKE ANY ('%Chen%', '%Fuk%')", "NOT (s LIKE '%Chen_%' AND s LIKE '%x_y%')",
        "s LIKE '%a%'", "s LIKE '%'", "s LIKE '_'", "s LIKE ''", "contains(s, '')", "s rlike ''",
        "lower(s) LIKE '%chen%'", "s ILIKE '%chen%'", "s LIKE '%C' || 'hen%'",
        "s LIKE NULL", "contains(s, NULL)", "s LIKE ALL ('%Chen%', NULL)",
        "s LIKE '%!%%' ESCAPE '!'", "s LIKE '%Chen!_%' ESCAPE '!'", "s LIKE '%parcel 1 %'",
        "(s LIKE '%Ch_n%') IS NULL", "(s LIKE '%Ch_n%') <=> NULL", "(s LIKE '%Ch_n%') = false",
        "s COLLATE UTF8_LCASE LIKE '%CHEN%'", "contains(s COLLATE UTF8_LCASE, 'CHEN')",
        "contains(s, 'CHEN' COLLATE UTF8_LCASE)", "s LIKE ('%CHEN%' COLLATE UTF8_LCASE)",
        "startswith(s, 'CHEN' COLLATE UTF8_LCASE)", "s rlike ('CHEN' COLLATE UTF8_LCASE)",
        "endswith(s, 'OF 2' COLLATE UTF8_LCASE)", "s LIKE ('%CH_N%' COLLATE UTF8_LCASE)",
        "s = 'CHENNAI: PARCEL 3 OF 2' COLLATE UTF8_LCASE",
        "contains(CAST(s AS BINARY), X'4368656E')",
        "contains(s COLLATE UNICODE_CI, 'CHEN')", "s COLLATE UTF8_LCASE LIKE '%CH_N%'",
    ]  # fmt: skip
    batch(spark, texts, [each for each in conditions if IS_SPARK_4 or "COLLATE" not in each])


ANY_CASE = [
    "s ILIKE '%STERDA%'", "s ILIKE '%ogot\u00c1%'", "s ILIKE 'cHEN%'", "s ILIKE '%OF 4'",
    "lower(s) LIKE '%dush_nbe%'", "upper(s) LIKE '%EINDHOVEN:%'", "contains(lower(s), 'fukuoka')",
    "startswith(upper(s), 'G\u00d6TEB')", "endswith(lower(s), 'of 7')", "s rlike '(?i)HANG.*PARC'",
    "lower(s) = 'chennai: parcel 3 of 2'", "upper(s) IN ('CHENNAI: PARCEL 3 OF 2', 'NOWHERE')",
    "lower(s) LIKE ALL ('%chen%', '%parcel_1%')", "s ILIKE ANY ('%fukuo_a%', '%AMST__dam:%')",
    "s ILIKE '%nowhere%'", "s LIKE '%sterda%'", "s ILIKE '%\u4eac\u90fd\u5e02%'",
    "lower(s) IN ('chennai: parcel 3 of 2', NULL)", "s ILIKE '%PARCEL%' AND contains(s, 'Hangz')",
]  # fmt: skip
UNTESTED = [
    "s NOT ILIKE '%STERDA%'", "NOT lower(s) LIKE '%ster_a%'", "NOT s rlike '(?i)amster'",
    "lower(s) <> 'chennai: parcel 3 of 2'", "lower(s) NOT IN ('chennai: parcel 3 of 2')",
    "lower(s) > 'd'", "lower(s) <=> 'chennai: parcel 3 of 2'", "(s ILIKE '%chen%') IS NULL",
    "lower(s) NOT IN ('chennai: parcel 3 of 2', NULL)", "s rlike '(?iu)AMSTER'",
    "s COLLATE UTF8_LCASE ILIKE '%CHEN%'", "contains(lower(s), 'CHEN' COLLATE UTF8_LCASE)",
]  # fmt: skip


@pytest.fixture
def any_case(spark: SparkSession, texts: str) -> Iterator[str]:
    """The texts with an index that ignores case."""
    spark.sql(f"ALTER SKIPPING INDEX ON {texts} DROP (s)")
    spark.sql(f"ALTER SKIPPING INDEX ON {texts} ADD (s NGRAM(fold => true))")
    yield texts
    spark.sql(f"ALTER SKIPPING INDEX ON {texts} DROP (s)")
    spark.sql(f"ALTER SKIPPING INDEX ON {texts} ADD (s NGRAM)")


@smoke_on("iceberg", "texts")
def test_case_is_ignored_with_folded_n_grams(spark: SparkSession, any_case: str) -> None:
    exact_batch(spark, any_case, ANY_CASE)
    batch(spark, any_case, [each for each in UNTESTED if IS_SPARK_4 or "COLLATE" not in each])


def test_explain_names_the_parameter_for_conditions_that_ignore_case(
    spark: SparkSession, texts: str
) -> None:
    df = spark.sql(f"SELECT * FROM {texts} WHERE s ILIKE '%chen%'")
    df.collect()
    says = "s ILIKE '%?%': NGRAM would keep 100% of the files without a match; NGRAM(fold => true)"
    assert says in str(rewrite.explain(df))


LOCALES = ["en", "tr", "az", "lt", "el", "hy", "nl"]


@pytest.mark.parametrize("icu", ["true", "false"] if IS_SPARK_4 else ["false"])
def test_case_folding_keeps_each_character_of_spark(
    spark: SparkSession, tmp_path: Path, icu: str
) -> None:
    """All characters, and those with case beside those that change their mapping."""
    points = [chr(p) for p in range(sys.maxunicode + 1) if not 0xD800 <= p < 0xE000]
    cased = [c for c in points if c.lower() != c or c.upper() != c or combining(c)]
    marks = ["\u0307", "\u0300", "\u0301", "\u0308", "I", "J", "\u012f", "\u03a3", "\u03b9"]
    pairs = [pair for c in cased for mark in marks for pair in (mark + c, c + mark)]
    results: dict[str, pa.Table] = {}
    for locale in LOCALES:
        middles = [*points, *pairs] if locale == "en" else [*cased, *pairs]
        texts = [text for m in middles if UNASSIGNED not in fold_case(text := f"aK{m}tZ")]
        folder = tmp_path / locale
        pq.write_table(pa.table({"s": texts}), folder)
        with (
            settings(spark, {"spark.sql.icu.caseMappings.enabled": icu}),
            java_locale(spark, locale),
        ):
            frame = spark.read.parquet(str(folder))
            found = collect_arrow(frame.selectExpr("s", "lower(s) low", "upper(s) up"))
        results[locale] = found.slice(len(found) - len(pairs))
        expected = fold_cases(found["s"].combine_chunks())
        for case in ("low", "up"):
            folded = pa.array(map(fold_case, found[case].to_pylist()))
            for row in pc.indices_nonzero(pc.not_equal(folded, expected)).to_pylist():
                parts = folded[row].as_py().replace(UNASSIGNED, CUT).split(CUT)
                kept = expected[row].as_py()
                assert all(part in kept for part in parts), (locale, case, ascii(kept), parts)
    assert not any(results[locale].equals(results["nl"]) for locale in ("tr", "lt"))


@contextmanager
def java_locale(spark: SparkSession, tag: str) -> Iterator[None]:
    locales: Any = spark.sparkContext._gateway.jvm.java.util.Locale  # type: ignore[union-attr]
    before = locales.getDefault()
    locales.setDefault(locales.forLanguageTag(tag))
    try:
        yield
    finally:
        locales.setDefault(before)


def test_random_patterns_lose_no_row(spark: SparkSession, texts: str) -> None:
    rng = random.Random(7)
    found = batch(spark, texts, [condition(rng) for _ in range(50)])
    assert found.skipped > 50


@pytest.mark.soak
def test_many_random_patterns_lose_no_row(spark: SparkSession, texts: str) -> None:
    """A million rows and conditions, with both formats."""
    skipped = 0
    for seed in range(100):
        rng = random.Random(seed)
        skipped += batch(spark, texts, [condition(rng) for _ in range(50)], f"seed {seed}").skipped
    assert skipped > 10_000


def condition(rng: random.Random) -> str:
    """A test of a column of random texts."""
    r = rng.choice("rrq")
    no = rng.choice(["", "", "", "NOT "])
    match rng.randrange(6):
        case 0:
            text = "".join(rng.choices(LETTERS, k=rng.randrange(5)))
            test = rng.choice(["contains", "startswith", "endswith"])
            return f"{no}{test}({r}, {quoted(text)})"
        case 1 | 2:
            return f"{r} {no}LIKE {quoted(like(rng, chr(92)))}"
        case 3:
            return f"{r} {no}LIKE {quoted(like(rng, '!'))} ESCAPE '!'"
        case 4:
            many = ", ".join(quoted(like(rng, chr(92))) for _ in range(rng.randrange(1, 4)))
            return f"{r} {no}LIKE {rng.choice(['ALL', 'ANY'])} ({many})"
    return f"{no}{r} rlike {quoted(regex(rng))}"


def like(rng: random.Random, escape: str) -> str:
    special = "%_" + escape
    letters = [escape + c if c in special else c for c in LETTERS]
    return "".join(rng.choices([*letters, "%", "%", "%", "_"], k=rng.randrange(7)))


def regex(rng: random.Random) -> str:
    plain = ["a", "b", "c", "\u00e9", "\u4e2d", "%", "_", " ", "-", "."]
    rare = [
        ".*",
        "a+",
        "b?",
        "bc*",
        "c{1,2}",
        "b{0}",
        "\\.",
        "\\.?",
        "\\\\",
        "\\d*",
        "\\W",
        "^",
        "$",
    ]
    rare += ["[ab]", "(a|b)", "|", "(?i)A", "\\Qa.\\E", "\\x61", "\\b", "a*?", "a++", "\u00e9?"]
    tokens = [*plain, *rare, "\U0001f600?"]
    return "".join(rng.choices(tokens, [4] * 10 + [1] * (len(tokens) - 10), k=rng.randrange(1, 5)))


def test_explain_says_which_condition_skipped_and_which_cannot(
    spark: SparkSession, texts: str
) -> None:
    df = spark.sql(f"SELECT * FROM {texts} WHERE s LIKE '%sterda%' AND s NOT LIKE 'A%m_x%'")
    df.collect()
    said = str(rewrite.explain(df))
    assert "s LIKE '%?%'  NGRAM" in said
    assert "NOT like(s, ?): no index can answer it" in said
    df = spark.sql(f"SELECT * FROM {texts} WHERE contains(s, 'ab')")
    df.collect()
    says = "s LIKE '%?%': NGRAM would keep 100% of the files without a match"
    assert says in str(rewrite.explain(df))


@pytest.mark.parametrize(
    ("pattern", "prefix", "inner", "suffix"),
    [
        ("abc%", "abc", [], ""), ("%abc", "", [], "abc"), ("a%b_c%d", "a", ["b", "c"], "d"),
        ("%%a%_b__", "", ["a", "b"], ""), ("\\%a\\_%", "%a_", [], ""), ("%a\\\\%", "", ["a\\"], ""),
        ("%a\ufffd%b%", "", ["b"], ""), ("%", "", [], ""), ("a\\%", None, None, None),
        ("%a\\b%", None, None, None), ("%a\\", None, None, None),
    ],
)  # fmt: skip
def test_what_a_pattern_of_like_demands(
    spark: SparkSession,
    pattern: str,
    prefix: str | None,
    inner: list[str] | None,
    suffix: str | None,
) -> None:
    found = demands(spark, "like", pattern, "\\")
    if pattern == "a\\%":
        assert found.whole() == "a%"
    elif prefix is None:
        assert found is None
    else:
        assert (found.prefix(), list(found.inner()), found.suffix()) == (prefix, inner, suffix)
        assert found.whole() is None


@pytest.mark.parametrize(
    ("pattern", "inner"),
    [
        ("abc", ["abc"]), ("^abc$", ["abc"]), ("ab.cd", ["ab", "cd"]), ("abc*d", ["ab", "d"]),
        ("abc?d", ["ab", "d"]), ("abc+d", ["ab", "d"]), ("abc{2,3}d", ["ab", "d"]),
        ("ab{0}12", ["a", "12"]), ("a\\.b", ["a.b"]), ("a\\.?b", ["a", "b"]), ("a\\\\b", ["a\\b"]),
        ("x\\d+y z", ["x", "y z"]), (".*", []), ("\u00e9t\u00e9?", ["\u00e9t"]), ("", []),
        ("ab*?c", ["a", "c"]), ("ab++c", ["a", "c"]),
        *((p, None) for p in ("a|b", "(abc)", "[abc]x", "(?i)abc", "\\Qabc\\E", "\\x41b", "a\\",
                              "\\p{L}bc", "ab{2", "\U0001f600?a", "a\u0301", "ab)", "ab]", "a\nb",
                              "a#b", "\\1", "a}", "\\u0041")),
    ],
)  # fmt: skip
def test_what_a_regular_expression_demands(
    spark: SparkSession, pattern: str, inner: list[str] | None
) -> None:
    found = demands(spark, "regex", pattern)
    assert (None if found is None else list(found.inner())) == inner
    if found is not None:
        assert (found.whole(), found.prefix(), found.suffix()) == (None, "", "")


def demands(spark: SparkSession, kind: str, pattern: str, escape: str | None = None) -> Any:
    """What `TextPattern.java` says of a pattern."""
    gateway: Any = spark.sparkContext._gateway
    patterns = Classes(gateway)._loader.loadClass("rewrite.jvm.predicate.TextPattern")
    (method,) = (m for m in patterns.getMethods() if m.getName() == kind)
    given = gateway.jvm.java.util.ArrayList()
    given.add(pattern)
    if escape is not None:
        given.add(ord(escape))
    return method.invoke(None, given.toArray())
