"""The tab "File skipping" of Spark's UI, over HTTP and in a browser.

With SKIPPING_SCREENSHOTS=docs, the browser's pictures replace those of the documentation.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.browser import Browser
from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.smoke]

FILES = 20
ROWS = 2000
STORE = "sqlite:/lake/index.sqlite"  # in the pictures


class UiSession:
    """The process of `ui_session.py`, and the address of its UI."""

    def __init__(self, folder: Path) -> None:
        script = Path(__file__).with_name("ui_session.py")
        self.folder = folder
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, script, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self.url: str = self.run("spark = start(folder); result = spark.sparkContext.uiWebUrl")

    def run(self, code: str) -> Any:
        """Execute a line, and return its `result`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(code + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        return json.loads(line)

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.run(f"spark.sql({statement!r}).collect()")

    def page(self) -> str:
        """The content between Spark's header and footer, once all executions are recorded."""
        self.run("rewrite.history(spark)")
        with urllib.request.urlopen(f"{self.url}/skipping/", timeout=30) as response:
            html: str = response.read().decode()
        assert 'class="navbar' in html
        return html[html.index("<div class='skipping-tab'>") :]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.stdout.close()


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiSession]:
    """A session with a table of many files, an index, and a table that has no index."""
    started = UiSession(tmp_path_factory.mktemp("ui"))
    write(started.folder, "planes", {"tailnum": ["N7"], "model": ["A320"]})
    for first in range(FILES):
        ids = range(first, ROWS, FILES)
        write(started.folder, "flights", {"id": ids, "tailnum": [f"N{id}" for id in ids]})
    started.sql(
        *(
            f"CREATE TABLE {name} USING parquet LOCATION '{started.folder / name}'"
            for name in ("flights", "planes")
        ),
        "CREATE SKIPPING INDEX ON flights (tailnum VALUE_LIST, id MIN_MAX)",
        "SELECT count(*) FROM flights JOIN planes USING (tailnum) WHERE model = 'A320'",
        "SELECT id FROM flights WHERE tailnum IN ('N3', 'N1234')",
        "SELECT id FROM flights WHERE upper(tailnum) = 'N9'",
    )
    yield started
    started.close()


def write(folder: Path, table: str, columns: dict[str, Any]) -> None:
    """Write one more file of a table."""
    (folder / table).mkdir(exist_ok=True)
    path = folder / table / f"{len([*(folder / table).iterdir()])}.parquet"
    pq.write_table(pa.table({name: [*values] for name, values in columns.items()}), path)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def test_tab_shows_executions_and_tables(ui: UiSession) -> None:
    page = ui.page()
    text = text_of(page)
    executions, _, tables = text.partition("Tables with an index")
    assert f"spark_catalog.default.flights 2 of {FILES} files opened" in executions
    assert "by tailnum IN (2 keys)" in executions
    assert "2 keys of planes" not in executions
    assert "1 key of planes for tailnum" in executions
    assert "spark_catalog.default.planes" in executions
    assert "the table has no index" in executions
    assert "SELECT id FROM flights WHERE tailnum IN (?, ?)" in executions
    assert "spark_catalog.default.flights active tailnum VALUE_LIST, id MIN_MAX" in tables
    assert "last lookup: all files are in the index" in tables
    assert re.search(r"[\d.]+ kB [\d,]+ files \([\d.]+ kB\) in 2 of \d queries", tables), tables
    id = re.findall(r"href='\.\./(SQL/execution/\?id=\d+)'", page)[0]
    with urllib.request.urlopen(f"{ui.url}/{id}", timeout=30) as response:
        assert "Details for Query" in response.read().decode()


@pytest.mark.parametrize(
    ("width", "height", "name"), [(1280, 860, "tab.png"), (390, 900, "tab-narrow.png")]
)
def test_tab_in_a_browser(
    ui: UiSession, width: int, height: int, name: str, tmp_path: Path
) -> None:
    """Nothing of it is wider than the window, also with all details open."""
    ui.page()
    folder = os.environ.get("SKIPPING_SCREENSHOTS")
    with Browser() as browser:
        browser.open(f"{ui.url}/skipping/", width=width, height=height)
        assert browser.evaluate("document.title").endswith("File skipping")
        browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        widths = browser.evaluate(
            "[...document.querySelectorAll('.skipping-tab, .skipping-tab *')]"
            ".map(each => Math.ceil(each.getBoundingClientRect().right))"
        )
        assert len(widths) > 100
        assert max(widths) <= width
        assert browser.errors == []
        browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
        browser.evaluate("document.querySelectorAll('details')[2].open = true")
        browser.evaluate(f"document.querySelector('p code').textContent = {STORE!r}")
        picture = Path(folder or tmp_path) / name
        browser.screenshot(picture)
        with Image.open(picture) as image:
            image.convert("P", palette=Image.Palette.ADAPTIVE).save(picture, optimize=True)


def test_tab_hides_values(ui: UiSession) -> None:
    ui.sql("SELECT id FROM flights WHERE tailnum = 'secret'")
    assert "secret" not in ui.page()
    ui.sql(
        "SET spark.skipping.explain.values = true",
        "SELECT id FROM flights WHERE tailnum = 'shown'",
        "RESET spark.skipping.explain.values",
    )
    page = ui.page()
    assert "shown" in text_of(page)
    assert "secret" not in page


def test_tab_escapes(ui: UiSession) -> None:
    name = "<script>alert(1)"
    path = ui.folder / name
    ui.run(f"spark.range(3).write.parquet({str(path)!r})")
    ui.sql(
        f"CREATE SKIPPING INDEX ON parquet.`{path}` (id MIN_MAX)",
        f"SELECT id AS `{name}` FROM parquet.`{path}` WHERE id = 2",
    )
    page = ui.page()
    assert "<script" not in page.partition("<footer")[0]
    executions, _, tables = page.partition("Tables with an index")
    assert executions.count(escape(name)) >= 2
    assert escape(name) in tables
    ui.sql(f"DROP SKIPPING INDEX ON parquet.`{path}`")


def test_tab_is_added_once(ui: UiSession) -> None:
    ui.run("rewrite.disable(spark)")
    ui.sql("SELECT id FROM flights WHERE id = 3")
    assert "rewrite.disable was called" in ui.page()
    ui.run("rewrite.enable(spark.newSession()); rewrite.enable(start_other(spark))")
    assert ui.run("result = len(set(install._hooks.values()))") == 2
    ui.run("spark = rewrite.enable(spark)")
    assert ui.run("result = list_tabs(spark)").count("File skipping") == 1


def test_tab_survives_a_store_that_is_gone_and_a_section_that_fails(ui: UiSession) -> None:
    (ui.folder / "index.sqlite").write_bytes(b"not a database" * 1000)
    page = text_of(ui.page())
    assert "2 of 20 files opened" in page
    assert "The store did not respond" in page
    ui.run("tab._SECTIONS['tables'] = None")
    page = text_of(ui.page())
    assert "2 of 20 files opened" in page
    assert "No tables: IOException: TypeError" in page


def test_no_tab_without_ui(ui: UiSession) -> None:
    """This stops the session: it is the last test."""
    off = "spark.stop(); spark = start(folder / 'off', spark_ui_enabled='false')"
    assert ui.run(f"{off}; result = spark.sparkContext.uiWebUrl") is None
    ui.sql("SHOW SKIPPING INDEXES")
    with pytest.raises(urllib.error.URLError):
        ui.page()
