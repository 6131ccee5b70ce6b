"""Explain's picture for notebooks: the terminal's words, bars to scale, only text inside."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from rewrite import Explanation
from skipping import ScanPlan
from skipping.lookup.scan_plan import FunnelStep, KeySet

GOLDEN = Path(__file__).parent / "golden" / "explain.html"

JOINED = ScanPlan(
    "spark_catalog.default.flights",
    total=365,
    pruned=325,
    unknown=3,
    legs=(("tailnum IN (2 keys of planes)  VALUE_LIST", 325), ("dep_time > ?  MIN_MAX", 73)),
    opened=40,
    unused=("upper(origin) = ?: no index can answer it",),
    keys=(KeySet("planes", "tailnum", 2, 0.15, "from the broadcast"),),
    rows=(1_000, 400),
    bytes=13_800_000,
    pruned_bytes=12_300_000,
    opened_bytes=1_500_000,
    format=(
        FunnelStep("table", 1_460, 55_000_000),
        FunnelStep("partitions", 730, 27_000_000),
        FunnelStep("statistics", 365, 13_800_000),
    ),
    seconds=0.082,
)
BARE = ScanPlan("spark_catalog.default.planes", opened=4, reason="the table has no index")
RAN = Explanation((JOINED, BARE), ("collect", 17), 1.64)


class Markup(HTMLParser):
    """The tags, their attributes, and the text outside the style sheet."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def words(text: str) -> list[str]:
    """What stands between spaces."""
    return re.sub(r"\s+", " ", text).split()


def test_its_structure() -> None:
    html = re.sub("<style>.*</style>", "", RAN._repr_html_(), flags=re.DOTALL)
    lines = re.sub(r"(?=<(?:header|div class='(?:scan|skip)|p>|table|tr|ul|li))", "\n", html)
    assert lines.strip() + "\n" == GOLDEN.read_text()


def test_every_word_of_the_terminal_is_in_it() -> None:
    for explanation in (RAN, Explanation((replace(JOINED, opened=None, rows=None),))):
        terminal = re.sub("in all: |[,()]", "", str(explanation))
        cells = Markup(
            explanation._repr_html_().replace("</t", " </t").replace("</code", " </code")
        )
        drawn = words(re.sub("[,()]", "", " ".join(cells.texts)))
        assert set(words(terminal)) - set(drawn) == set()
    assert "no file scan" in Explanation(())._repr_html_()


def test_bars_are_to_scale() -> None:
    html = RAN._repr_html_()
    bars = re.findall(r"<tr class='(\w*)'>.*?<i style='left:([\d.]+)%;width:([\d.]+)%'>", html)
    assert [(kind, float(left), float(width)) for kind, left, width in bars] == [
        ("", 0, 100),  # in the table
        ("gone", 50, 50),  # not read, by partitions: the right half
        ("gone", 25, 25),  # by statistics
        ("", 0, 25),  # files
        ("gone", 2.74, 22.26),  # each from the right end of the files, which it shares with others
        ("gone", 20, 5),
        ("gone", 2.74, 22.26),  # together
        ("kept", 0, 2.74),
        ("kept", 0, 2.74),
        ("rows", 0, 40),  # those left by the filter
        ("kept", 0, 100),  # of the table without an index
        ("rows", 0, 5),  # asked
        ("rows", 0, 9.15),  # collected keys
        ("rows", 0, 100),  # ran
    ]


def test_nothing_from_outside_is_markup() -> None:
    hostile = "</style></code><script>alert(1)</script><img src=x onerror='alert(2)'>\"'&lt;  K"
    scan = ScanPlan(
        hostile,
        total=2,
        pruned=1,
        legs=((hostile, 1), (hostile + "<b>", 1)),
        opened=1,
        reason=hostile,
        unused=(hostile,),
        keys=(
            KeySet(hostile, hostile, 2, 0.1, hostile),
            KeySet(hostile, reason=hostile),
        ),
        rows=(2, 1),
        format=(FunnelStep("table", 4, 100), FunnelStep(hostile, 2, 50)),
    )
    explanation = Explanation((scan,), (hostile, 1), 0.5)
    found = Markup(explanation._repr_html_())
    assert found.open == []
    assert {tag for tag, _ in found.tags} <= {
        *("style", "div", "header", "b", "p", "code", "span"),
        *("table", "tbody", "tr", "th", "td", "i", "ul", "li"),
    }
    assert {name for _, given in found.tags for name in given} <= {
        *("class", "style", "scope", "aria-hidden"),
    }
    places = re.compile(r"left:[\d.]+%;width:[\d.]+%")
    assert all(
        places.fullmatch(given["style"] or "") for _, given in found.tags if "style" in given
    )
    script = "<script>alert(1)</script>"
    assert found.text.count(script) == str(explanation).count(script) == 12


def test_it_brings_all_it_needs_and_follows_the_theme() -> None:
    html = RAN._repr_html_()
    assert not re.search(r"https?:|url\(|@import|<script|<link|src=|href=", html)
    style = html[: html.index("</style>")]
    assert "@media (prefers-color-scheme:dark)" in style
    assert "var(--jp-layout-color0" in style
    # Who looks for a colour of a theme that is not there finds one of its own.
    own = set(re.findall(r"(--[a-z]+):#", style))
    used = set(re.findall(r"var\((--[\w-]+)", style))
    assert {name for name in used if not name.startswith(("--jp-", "--vscode-"))} == own
    themes = re.findall(r"\{(--[^}]*)\}", style)
    assert len(themes) == 4
    assert all(len(re.findall("--[a-z]+:#", theme)) == len(own) for theme in themes)
