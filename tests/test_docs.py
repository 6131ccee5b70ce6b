"""The pages: their code runs, their links and anchors are there, and what they name exists."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from skipping.config.options import OPTIONS
from skipping.parser.parse import parse
from tests.test_house import ROOT

DOCS = ROOT / "docs"
TOP = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = (*(ROOT / name for name in TOP), *sorted(DOCS.rglob("*.md")))
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its file's name if it has one, the section, the code."""

    language: str
    title: str
    section: str
    code: str


def blocks(page: Path) -> list[Block]:
    found, section = [], ""
    fence = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$|^## ([^\n]+)$', re.M | re.S)
    for match in fence.finditer(page.read_text()):
        if match[4]:
            section = match[4]
        else:
            found.append(Block(match[1], match[2] or "", section, match[3]))
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """What a program prints, with `cwd` before the checkout on its path."""
    environment = {**os.environ, "PYTHONPATH": f"{cwd}{os.pathsep}{ROOT}", **more}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, cwd=cwd, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


# What the pages say is there


@EVERY_PAGE
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.is_file(), target
        assert not anchor or anchor in anchors(to), target


def anchors(page: Path) -> set[str]:
    """Those of its headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_site_and_the_readme() -> None:
    navigation, readme = (DOCS / "mkdocs.yml").read_text(), (ROOT / "README.md").read_text()
    for page in DOCS.glob("*.md"):
        assert f": {page.name}\n" in navigation, page.name
        assert f"](docs/{page.name})" in readme, page.name
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f": notebooks/{notebook.stem}.md\n" in navigation, notebook.name
    assert len(readme.splitlines()) <= 120


@pytest.mark.parametrize("page", [*PAGES, DOCS / "flows.svg"], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """Paths from the top, as `skipping/indexing/refresh.py`; `make x`; `python -m x`."""
    text = page.read_text()
    folders = "providers|skipping|rewrite|tests|notebooks|docs"
    for named in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w/.-]*\w)", prose(page)):
        assert (ROOT / named).exists(), named
    for module in re.findall(r"python -m ((?:skipping|rewrite|tests)[\w.]*)", text):
        assert find_spec(module), module
    for target in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", text, re.M):
        assert re.search(rf"^{''.join(target)}:", (ROOT / "Makefile").read_text(), re.M), target


def test_java_packages_on_the_page_are_those_of_the_tree() -> None:
    table = re.findall(r"^\| `(\w+)` \| ", (DOCS / "architecture.md").read_text(), re.M)
    there = {path.parent.name for path in (ROOT / "rewrite" / "jvm").glob("*/*.java")}
    assert there <= {*table}, there - {*table}


def test_names_of_the_generated_page_are_there() -> None:
    names = re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(), re.M)
    assert len(names) > 30
    for name in names:
        assert pkgutil.resolve_name(name).__doc__, name
    import rewrite
    import skipping

    public = {*rewrite.__all__, *skipping.__all__} - {"Session", "SkippingError"}
    assert public <= {name.rpartition(".")[2] for name in names}


@EVERY_PAGE
def test_python_compiles_and_imports(page: Path) -> None:
    """All of it. Other tests run the pages on extending (below) and the quickstart (the wheel)."""
    own = {block.title.removesuffix(".py") for block in blocks(page)}
    for block in blocks(page):
        if block.language == "python":
            tree = ast.parse(block.code)
            imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            known = [i for i in imports if not (isinstance(i, ast.ImportFrom) and i.module in own)]
            exec(compile(ast.Module([*known], []), str(page), "exec"), {})


@EVERY_PAGE
def test_statements_parse(page: Path) -> None:
    for block in blocks(page):
        if block.language == "sql":
            assert parse(block.code) is not None, block.code


def test_every_statement_is_on_the_page() -> None:
    text = (DOCS / "sql.md").read_text()
    for verb in ("CREATE", "REFRESH", "DESC", "SHOW", "ALTER", "RECOVER", "ANALYZE", "DROP"):
        assert f"`{verb}" in text
    for option in OPTIONS:
        assert f"`{option.name}`" in text, option.name


def test_the_readme_shows_what_the_quickstart_runs() -> None:
    (shown,) = (b.code for b in blocks(ROOT / "README.md") if b.language == "python")
    assert shown in [block.code for block in blocks(DOCS / "quickstart.md")]


def test_the_recipe_for_joins_of_delta_rs_opens_two_files(tmp_path: Path) -> None:
    (recipe,) = (b.code for b in blocks(DOCS / "joins.md") if b.title == "recipe.py")
    assert run(sys.executable, "-c", recipe, cwd=tmp_path).splitlines() == [
        "2 of 10 files",
        "[{'owner': 'Ann', 'delay': 3}]",
    ]


# The page on extending, followed step by step


def follow(section: str, folder: Path) -> str:
    """Write the files of a section of the page (and of those before), then run its other blocks."""
    found = blocks(DOCS / "extending.md")
    assert section in {block.section for block in found}
    for block in found:
        if block.title:
            (folder / block.title).write_text(block.code)
    program = "\n".join(
        block.code
        for block in found
        if block.language == "python" and not block.title and block.section == section
    )
    assert "assert" in program
    return run(sys.executable, "-W", "error", "-c", program, cwd=folder)


def contract(folder: Path, chosen: str, *suites: str, **more: str) -> int:
    """How many tests of contract suites pass; none may fail."""
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header")
    files = [ROOT / "tests" / suite for suite in suites]
    printed = run(*pytest_, *files, "-c", ROOT / "pyproject.toml", "-k", chosen,
                  f"--rootdir={ROOT}", cwd=folder, **more)  # fmt: skip
    passed = re.search(r"(\d+) passed", printed)
    assert passed, printed
    return int(passed[1])


@pytest.mark.process
@pytest.mark.nightly
def test_a_new_kind_by_the_page(tmp_path: Path) -> None:
    follow("A new index type", tmp_path)
    (entry_points,) = re.findall(
        r'^\[project\.entry-points\."(.+)"\]\n(.+)', (tmp_path / "pyproject.toml").read_text(), re.M
    )
    # As pip would install it.
    installed = tmp_path / "prefix_list-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: prefix-list\nVersion: 1.0\n")
    group, line = entry_points
    (installed / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")
    assert contract(tmp_path, "PREFIX_LIST", "providers/test_contract.py") >= 4


@pytest.mark.process
@pytest.mark.nightly
def test_a_new_table_format_by_the_page(tmp_path: Path) -> None:
    follow("A new table format", tmp_path)
    # And no file is opened that the index pruned: those hold garbage now.
    program = """
import pyarrow as pa, pyarrow.compute as pc
from pathlib import Path
from folder_table import read, source, write
from providers import Compare
from skipping import SkippingIndex

root = Path("table").absolute()
for day in range(10):
    write(root, pa.table({"day": [day] * 5, "user": [f"u{day}", None] * 2 + ["x"]}))
index = SkippingIndex.create(source(root), "day MIN_MAX, user VALUE_LIST")
for predicate, condition, pruned in (
    (Compare("day", "=", 3), pc.field("day") == 3, 9),
    (Compare("user", "=", "u3"), pc.field("user") == "u3", 9),
    (Compare("user", "=", "x"), pc.field("user") == "x", 0),
):
    expected = read(index, Compare("day", ">=", 0), condition)
    why = index.why(predicate)
    assert sum(why["pruned"].to_pylist()) == pruned
    for file in why.filter(why["pruned"]).to_pylist():
        path = Path(file["path"])
        path.rename(f"{path}.kept")
        path.write_bytes(b"garbage")
    assert read(index, predicate, condition).equals(expected)
    assert expected.num_rows
    for kept in root.glob("*.kept"):
        kept.rename(kept.with_suffix(""))
gone = index.table.files()["path"][0].as_py()
write(root, pa.table({"day": [11], "user": ["y"]}), removed=[gone])
table = index.table
assert len(table.files()) == 10 and len(table.files(table.version() - 1)) == 10
assert len(table.changes(-1, table.version())) == 11
assert len(table.changes(table.version(), table.version())) == 0
assert table.changes(0, table.version() + 1) is None
assert table.find_reachable(pa.array([gone, "/nowhere"])).to_pylist() == [True, False]
"""
    run(sys.executable, "-W", "error", "-c", program, cwd=tmp_path)


@pytest.mark.process
@pytest.mark.nightly
def test_a_new_store_by_the_page(tmp_path: Path) -> None:
    follow("A new store", tmp_path)
    suites = [f"skipping/stores/test_store_{part}.py" for part in ("contract", "questions")]
    store = "folder_store:FolderStore"
    assert contract(tmp_path, "candidate", *suites, SKIPPING_TEST_STORE=store) >= 45
