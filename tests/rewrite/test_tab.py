"""Sections of the tab in Spark's UI, from records that others made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from rewrite.observe import tab
from skipping.config.settings import Settings
from skipping.lookup.lookup import Lookup
from skipping.model.decision import Decision
from skipping.model.definition import Definition, TableId
from skipping.stores.memory.store import MemoryStore

SCRIPT = "<script>alert(1)</script>"
RenderExecutions = Callable[..., str]


@pytest.fixture
def render(monkeypatch: pytest.MonkeyPatch) -> RenderExecutions:
    """Renders executions, each given by its scans."""

    def render(*executions: list[dict[str, Any]]) -> str:
        recorded = [
            {"id": id, "root": id, "name": "collectToPython", "values": False, "ended": 0}
            | {"statement": f"SELECT {SCRIPT}", "seconds": 0.25, "scans": scans}
            for id, scans in enumerate(executions)
        ]
        log = SimpleNamespace(recent=lambda: json.dumps(recorded))
        hooks = SimpleNamespace(java=SimpleNamespace(executions=lambda: log))
        monkeypatch.setattr(tab, "require_hooks", lambda spark: hooks)
        return tab.render_section(None, "executions", 10)  # type: ignore[arg-type]

    return render


def scan(**more: Any) -> dict[str, Any]:
    return {"table": "t", "counted": True, "total": 4, "pruned": 3, "opened": 1} | more


def test_tab_escapes_all_texts(render: RenderExecutions) -> None:
    pruned = scan(operands=[{"label": SCRIPT}], counts=[3], table=SCRIPT, unused=[SCRIPT])
    html = render([pruned, scan(reason=SCRIPT, total=None)])
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert") >= 5


def test_tab_shows_at_most_some_scans_and_characters(render: RenderExecutions) -> None:
    html = render([scan()] * 50)
    assert html.count("<details>") == 20
    assert "and 30 more scans" in html
    large = scan(unused=["x" * 300_000])
    html = render([scan()], *[[large]] * 5, [scan()])
    assert len(html) < 1_100_000
    assert [f"?id={id}'" in html for id in (6, 5, 4, 3, 0)] == [True, True, True, True, False]
    assert "Older ones are left out" in html


def test_tab_leaves_out_scans_without_a_table(render: RenderExecutions) -> None:
    assert "Executions (0)" in render([scan(counted=False)], [])


def test_tab_shows_the_newest_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        Decision(
            day=date(2026, 3, 1) + timedelta(n),
            action="add",
            identity="a",
            column=SCRIPT,
            kind="MIN_MAX",
            bytes=3_000,
            files=5,
            benefit=2e6,
            cost=100.0,
            reason=SCRIPT,
        )
        for n in range(150)
    ]
    store = MemoryStore("decisions")
    for name, dropped, decisions in (("t", False, made), ("gone", True, made), ("u", False, [])):
        table = TableId("delta", name, f"file:/{name}")
        definition = Definition(name, table, name, (), decisions=tuple(decisions))
        revision = store.define(definition, expect=None)
        if dropped:
            store.define(replace(definition, dropped=True), expect=revision)
    lookups = SimpleNamespace(items=lambda: [(Settings(), Lookup(store, ttl=60))])
    monkeypatch.setattr(tab, "require_hooks", lambda spark: SimpleNamespace(lookups=lookups))
    html = tab.render_section(None, "decisions", 10)  # type: ignore[arg-type]
    assert html.count("<tr>") == 101
    assert html.index("2026-07-28") < html.index("2026-07-27")
    assert "2.0 MB" in html
    assert ">gone<" not in html
    assert "<script" not in html
