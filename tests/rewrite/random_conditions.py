"""Random values of every type, functions of columns that have them, and conditions on those.

All is SQL. A function is a template with `{c}` for its column, so that the constant beside it can
be its own outcome of a value that there is: Spark folds that into a literal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

DAY = 86_400_000_000
ZONES = (
    "UTC", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia",
    "America/Havana", "Asia/Kathmandu", "Africa/Monrovia", "Europe/Amsterdam", "+05:30",
    "Asia/Manila", "Antarctica/Troll", "Africa/Casablanca", "America/Juneau",
)  # fmt: skip

# About changes of clocks, the ends of calendars, and of types.
_MOMENTS = [
    0, -1, 1, 1_700_000_000_000_000, 1_325_239_200_000_000, 1_699_164_000_000_000,
    1_520_733_600_000_000, 1_518_912_000_000_000, -12_219_292_800_000_000,
    -62_135_596_800_000_000, -2_208_988_800_000_000, -3_225_223_727_000_000,
    253_402_300_799_999_999, 4_102_444_800_000_000, 951_782_400_000_000,
]  # fmt: skip
_ENDS_OF_TIME = [2**63 - 1, -(2**63), 2**62, -(2**62)]
_FLOATS = ["NaN", "-Infinity", "Infinity", "-0.0", "0.0", "0.1", "0.2", "0.30000000000000004",
           "0.3", "1.0", "-1.0", "3.5", "4.9E-324", "1.7976931348623157E308",
           "-1.7976931348623157E308", "1E300", "2147483648", "-2147483649", "9.3E18", "1.4E-45",
           "3.4028235E38", "16777217", "9007199254740993"]  # fmt: skip
LETTERS = "aAbBc\u00e9E\u0301\u4e2d\U0001f600%_\\. -\u0130\u017f\u212ass\u00df"


def whole(bits: int) -> Callable[[random.Random], str]:
    def draw(rng: random.Random) -> str:
        end = 2 ** (bits - 1)
        near = rng.choice([0, 0, 0, end, -end, 2**31, -(2**31), 127, 100, 1970, 32768])
        value = near + rng.randrange(-6, 7)
        return str(max(-end, min(end - 1, value)))

    return draw


def moment(rng: random.Random) -> str:
    if rng.randrange(12) == 0:
        return str(rng.choice(_ENDS_OF_TIME))
    if rng.randrange(3) == 0:
        return str(rng.randrange(-62_135_596_800_000_000, 253_402_300_799_999_999))
    at = rng.choice(_MOMENTS) + rng.choice([0, 1, -1, 1800, 3600, 7200, 86_400, -3600]) * 1_000_000
    return str(at + rng.choice([0, 0, 1, -1, 500_000, rng.randrange(-DAY, DAY)]))


def day(rng: random.Random) -> str:
    if rng.randrange(10) == 0:
        return str(rng.choice([2**31 - 1, -(2**31), 106_751_991, -106_751_991, 106_751_992]))
    return str(int(moment(rng)) // DAY + rng.randrange(-2, 3))


def floating(rng: random.Random) -> str:
    return rng.choice(_FLOATS) if rng.randrange(3) else str(rng.uniform(-10, 10))


def decimal(digits: int, scale: int) -> Callable[[random.Random], str]:
    def draw(rng: random.Random) -> str:
        end = 10**digits - 1
        near = rng.choice([0, 0, end, -end, 10**scale, 5 * 10**scale, 150])
        value = max(-end, min(end, near + rng.randrange(-6, 7)))
        size, sign = abs(value), "-" if value < 0 else ""
        return f"{sign}{size // 10**scale}.{size % 10**scale:0{scale}}"

    return draw


def text(rng: random.Random) -> str:
    if rng.randrange(4) == 0:
        return rng.choice(
            ["", "1", "-7", "1.5", "2024-01-02", "007", " 5 ", "true", "abc  ", "NaN"]
        )
    return "".join(rng.choices(LETTERS, k=rng.randrange(9)))


def quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True)
class Kind:
    """Values of one type: how they are drawn, as text, and what makes them of that text in SQL."""

    type: str
    draw: Callable[[random.Random], str]
    sql: str

    def literal(self, rng: random.Random) -> str:
        return self.sql.format(quoted(self.draw(rng)))


def cast(type: str, draw: Callable[[random.Random], str]) -> Kind:
    return Kind(type, draw, f"CAST({{}} AS {type})")


KINDS = {
    "b": cast("tinyint", whole(8)),
    "h": cast("smallint", whole(16)),
    "i": cast("int", whole(32)),
    "l": cast("bigint", whole(64)),
    "f": cast("float", floating),
    "d": cast("double", floating),
    "m": cast("decimal(10,2)", decimal(10, 2)),
    "w": cast("decimal(18,4)", decimal(18, 4)),
    "v": cast("decimal(38,10)", decimal(38, 10)),
    "day": Kind("date", day, "date_from_unix_date(int({}))"),
    "ts": Kind("timestamp", moment, "timestamp_micros(bigint({}))"),
    "n": Kind(
        "timestamp_ntz",
        moment,
        "(timestamp_ntz'1970-01-01 00:00:00' + CAST(bigint({0}) DIV 1000000 AS interval second)"
        " + CAST('0.000001' AS interval second) * (bigint({0}) % 1000000))",
    ),
    "s": Kind("string", text, "{}"),
    "r": Kind("string", text, "{}"),
    "x": cast("binary", text),
    "ok": cast("boolean", lambda rng: rng.choice(["true", "false"])),
    "y": Kind("varchar(20)", text, "{}"),
}
NUMBERS, TIMES, TEXTS = (
    ["b", "h", "i", "l", "f", "d", "m", "w", "v"],
    ["day", "ts", "n"],
    ["s", "r", "y"],
)

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
OF_TIMES = (
    "year({c})", "date({c})", "last_day({c})", "{c}::timestamp", "{c}::timestamp_ntz",
    "{c}::date", "unix_timestamp({c})", "unix_date(date({c}))", "unix_micros({c}::timestamp)",
    "unix_millis({c}::timestamp)", "unix_seconds({c}::timestamp)", "{c}::timestamp::bigint",
    "date_add({c}, {k})", "date_sub({c}, {k})", "date({c}) + {k}", "date({c}) - {k}",
    "datediff({c}, date'2020-02-29')", "datediff(date'1582-10-15', {c})", "month({c})",
    "trunc({c}, '{u}')", "date_trunc('{u}', {c})", "to_date({c})", "add_months({c}, {k})",
    "hour({c})", "date_format({c}, 'yyyy-MM')", "dayofweek({c})", "{c}::string", "weekofyear({c})",
    "to_unix_timestamp({c})", "quarter({c})", "{c} + INTERVAL 1 DAY", "{c}::timestamp::int",
    "{c}::timestamp::double", "from_utc_timestamp({c}, 'Asia/Kolkata')",
)  # fmt: skip
OF_NUMBERS = (
    "{c} + {k}", "{c} - {k}", "{k} - {c}", "{c} * {k}", "{k} + {c}", "{k} * {c}", "{c} / {k}",
    "{k} / {c}", "{c} DIV {k}", "-{c}", "-({c} + {k}) - {k}", "{c} * {k} + {k}", "{c}::int",
    "{c}::bigint", "{c}::double", "{c}::float", "{c}::decimal(10,2)", "{c}::decimal(20,6)",
    "{c}::decimal(38,10)", "{c}::smallint", "{c}::tinyint", "{c}::string", "abs({c})",
    "{c} % {k}", "shiftleft({c}::int, 3)", "shiftright({c}::bigint, 1)", "pmod({c}, {k})",
    "floor({c})", "ceil({c})", "round({c}, 1)", "try_add({c}, {k})", "try_multiply({c}, {k})",
    "try_subtract({k}, {c})", "try_divide({c}, {k})", "{c}::double::float", "{c}::float::double",
    "{c}::bigint::timestamp", "{c} | 3", "{c} + {c}", "greatest({c}, {k})", "{c}::boolean",
    "timestamp_seconds({c})", "{c}::double * {k}", "({c}::bigint + {k}) * {k}",
    "try_cast({c} AS int)",
)  # fmt: skip
OF_TEXTS = (
    "substr({c}, 1, {p})", "left({c}, {p})", "substr({c}, 0, {p})", "substr({c}, -2, {p})",
    "lower({c})", "upper({c})", "{c} || 'x'", "length({c})", "{c}::int", "{c}::date", "{c}::double",
    "trim({c})", "rtrim({c})", "reverse({c})", "substr({c}, 2)", "replace({c}, 'a', 'b')",
    "right({c}, {p})", "{c}::binary", "{c} COLLATE UTF8_LCASE", "try_cast({c} AS bigint)",
    "concat_ws('-', {c}, 'q')", "md5({c})", "initcap({c})", "left(left({c}, 4), {p})",
    "substr(lower({c}), 1, {p})", "{c} COLLATE UTF8_BINARY_RTRIM", "CAST({c} AS char(4))",
)  # fmt: skip
CONSTANTS = ("1", "2", "3", "-3", "10", "0", "-1", "7L", "100Y", "0.5BD", "-1.25BD", "0.1D",
             "-2.5D", "float(0.1)", "1E300D", "double('Infinity')", "double('NaN')", "2147483647",
             "-2147483648", "9223372036854775807", "0.0001", "99999999.99", "-0D",
             "1S")  # fmt: skip


DAYS = ("1", "40", "-3", "365")


OF_TWO = (
    ("{c} + l", "i"), ("i * {c}", "h"), ("{c} = s", "r"), ("greatest({c}, date(ts))", "day"),
    ("{c} = 1 OR s = 'a'", "i"), ("({c} > 5 AND ok) OR b = 1", "i"), ("least(d, {c})", "f"),
    ("coalesce({c}, s)", "r"), ("{c} || '-' || s", "r"), ("if({c}, i, l)", "ok"),
    ("i & {c}", "l"), ("{c} <=> w", "m"), ("{c} IN (3, 1, 2, NULL)", "i"), ("{c} < d", "f"),
)  # fmt: skip


def function(rng: random.Random) -> tuple[str, str]:
    """A function, as a template, and its column; or the bare column."""
    if rng.randrange(10) == 0:
        return rng.choice(OF_TWO)
    column = rng.choice([*NUMBERS, *TIMES, *TIMES, *TIMES, *TEXTS, *TEXTS, "x", "ok"])
    pool = (
        OF_NUMBERS if column in NUMBERS else OF_TIMES if column in TIMES
        else OF_TEXTS if column in TEXTS else ("{c}", "{c}::string", "substr({c}, 1, {p})")
    )  # fmt: skip
    template = "{c}"
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 2, 3])):
        if template != "{c}" and rng.randrange(3) == 0:
            pool = rng.choice([OF_NUMBERS, OF_TIMES])
        outer = rng.choice(pool)
        for mark, choice in (
            ("{k}", DAYS if pool is OF_TIMES else CONSTANTS),
            ("{u}", UNITS),
            ("{p}", ("1", "2", "3", "0", "-1", "5")),
        ):
            outer = outer.replace(mark, rng.choice(choice))
        inner = template if template == "{c}" else f"({template})"
        template = outer.replace("{c}", inner)
    return template, column


def applied(template: str, to: str) -> str:
    return template.replace("{c}", to)


def leaf(rng: random.Random, given: tuple[str, str] | None = None) -> str:
    if given is None and rng.randrange(4) == 0:
        return searched(rng)
    template, column = given or function(rng)
    made = applied(f"({template})" if " " in template else template, column)

    def constant() -> str:
        literal = KINDS[column].literal(rng)
        if rng.randrange(25) == 0:
            return "NULL"
        if rng.randrange(6) == 0 and column in NUMBERS:
            return rng.choice(CONSTANTS)
        return applied(template, literal)

    match rng.randrange(12):
        case 0 | 1:
            return f"{made} = {constant()}"
        case 2 | 3 | 4:
            op = rng.choice(["<", "<=", ">", ">=", "<>", "<=>"])
            sides = [made, constant()]
            return f" {op} ".join(sides if rng.randrange(4) else sides[::-1])
        case 5 | 6:
            many = ", ".join(constant() for _ in range(rng.choice([1, 2, 3, 12])))
            return f"{made} {rng.choice(['', 'NOT '])}IN ({many})"
        case 7:
            return f"{made} BETWEEN {constant()} AND {constant()}"
        case 8:
            return f"{made} IS {rng.choice(['', 'NOT '])}NULL"
        case 9:
            compared = f"{made} > {constant()} THEN {made} = {constant()}"
            return f"CASE WHEN {compared} ELSE {column} IS NULL END"
        case 10:
            return f"coalesce({made}, {constant()}) = {constant()}"
    return f"if({made} < {constant()}, true, NULL) IS NULL"


REGEX = (
    *"aAbBc\u00e9\u4e2d_ ", "\U0001f600", "\u0301", ".", ".*", "a+", "b?", "A*", "c{0}", "b{1,2}",
    "^", "$", "\\.", "\\d*", "\\b", "[ab]", "(ab)?", "|", "(?i)", "(?x)", "\\Qa\\E", "a{0}b",
    "\\u0061", "?+", "{,2}", "\\\\", "#", "\\h", "\\R",
)  # fmt: skip


def searched(rng: random.Random) -> str:
    """A search in text."""
    column = rng.choice([*TEXTS, "lower(s)", "upper(r)", "substr(s, 1, 3)", "x"])
    words = "".join(rng.choices(LETTERS, k=rng.choice([0, 1, 2, 2, 3, 4])))
    pattern = "".join(rng.choices([*LETTERS, "%", "%", "%", "_", "\\%", "\\_"], k=rng.randrange(7)))
    match rng.randrange(7):
        case 0 | 1:
            test = rng.choice(["contains", "startswith", "endswith"])
            return f"{test}({column}, {quoted(words)})"
        case 2:
            return f"{column} LIKE {quoted(pattern)}"
        case 3:
            like = rng.choice(["LIKE", "ILIKE"])
            return f"{column} {like} {quoted(pattern)} ESCAPE '{rng.choice('!%_ac')}'"
        case 4:
            many = ", ".join(quoted(pattern[at:]) for at in range(1 + rng.randrange(3)))
            no, which = rng.choice(["", "NOT "]), rng.choice(["ALL", "ANY"])
            return f"{column} {no}LIKE {which} ({many})"
        case 5:
            return f"{column} ILIKE {quoted(pattern)}"
    regex = rng.choice(["", "", "(?i)"]) + "".join(rng.choices(REGEX, k=rng.randrange(6)))
    return f"{column} rlike {quoted(regex)}"


def condition(rng: random.Random, given: tuple[str, str] | None = None) -> str:
    """A leaf, mostly; or leaves under NOT, AND and OR."""
    one = leaf(rng, given)
    match rng.randrange(10):
        case 0 | 1 | 2:
            return f"NOT ({one})"
        case 3:
            return f"({one}) AND ({leaf(rng)})"
        case 4:
            return f"({one}) OR ({leaf(rng)})"
        case 5:
            return f"NOT (({one}) {rng.choice(['AND', 'OR'])} ({leaf(rng)}))"
        case 6:
            return f"({one}) {rng.choice(['IS NULL', '= false', '<=> true', '<=> NULL'])}"
    return one
