"""Each notebook runs from top to bottom, and prints what is committed.

`make notebooks` sets UPDATE_NOTEBOOKS, and the outputs are then written to the notebooks.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=[p.stem for p in NOTEBOOKS])
MAX_BYTES = 500_000
SHOWN = ("image/png", "text/html", "text/plain")
"""What is committed of an output; progress bars have others."""

SECONDS = re.compile(r"\d+(?:[.,]\d+)* (m?s)\b")
BAR = re.compile(r"(… s</td>.*?width:)[\d.]+%")
"""The length of a time, as a bar."""
TEMPORARY = re.compile(rf"{re.escape(gettempdir())}/tmp\w{{8}}/")


@pytest.mark.process
@pytest.mark.nightly
@EACH
# Jupyter's own event loop handling warns on some versions of Python.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_notebook_prints_what_is_committed(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    committed = list(texts(notebook))
    client_of(notebook, tmp_path).execute()
    keep_repeatable(notebook)
    if os.environ.get("UPDATE_NOTEBOOKS"):
        nbformat.write(notebook, path)
    else:
        assert list(texts(notebook)) == committed
    assert not list(tmp_path.iterdir()), "it leaves nothing in the folder where it was started"


@pytest.mark.process
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_notebooks_run_side_by_side_in_one_folder(tmp_path: Path) -> None:
    notebooks = [nbformat.read(FOLDER / "any_engine.ipynb", as_version=4) for _ in range(2)]
    committed = list(texts(notebooks[0]))

    async def execute_all() -> None:
        await asyncio.gather(*(client_of(n, tmp_path).async_execute() for n in notebooks))

    asyncio.run(execute_all())
    for notebook in notebooks:
        keep_repeatable(notebook)
    assert [list(texts(notebook)) for notebook in notebooks] == [committed] * 2


def client_of(notebook: Any, folder: Path) -> NotebookClient:
    """What runs a notebook in a folder."""
    return NotebookClient(
        notebook,
        timeout=600,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )


def keep_repeatable(notebook: Any) -> None:
    """Keep only the outputs that the next run prints, too."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in code_cells(notebook):
        cell.outputs = [each for each in cell.outputs if clean(each)]


def clean(output: Any) -> bool:
    """Remove times and paths from an output; return whether it is kept: logs are not."""
    if output.output_type == "stream":
        output.text = hide_run(output.text)
        return bool(output.name == "stdout")
    output.data = {kind: output.data[kind] for kind in SHOWN if kind in output.data}
    for kind in ("text/html", "text/plain"):
        if kind in output.data:
            output.data[kind] = hide_run(output.data[kind])
    return bool(output.data)


def hide_run(text: str) -> str:
    return TEMPORARY.sub("", BAR.sub(r"\g<1>100%", SECONDS.sub(r"… \1", text)))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook: Any) -> Iterator[str]:
    """The printed texts of each cell; pictures are only named, since fonts differ."""
    for number, cell in enumerate(code_cells(notebook), start=1):
        for output in cell.outputs:
            if output.output_type == "stream":
                yield f"[{number}] {output.text}"
            else:
                for kind, value in output.data.items():
                    yield f"[{number}] {kind} {'' if kind == 'image/png' else value}"


@EACH
def test_notebook_is_committed_with_outputs(path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES
    notebook = nbformat.read(path, as_version=4)
    assert [cell.execution_count for cell in code_cells(notebook)] == list(
        range(1, len(code_cells(notebook)) + 1)
    ), "it was run from top to bottom"
    printed = "\n".join(texts(notebook))
    assert printed
    for private in (r"/tmp/", r"/home/", r"/work/", r"file:/", r"site-packages", r"part-\d{5}"):
        assert not re.search(private, printed), private
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}", printed), "a random id"
    assert not re.search(r"\b20[2-9]\d-\d\d-\d\d", printed), "the date of a run"
    assert not re.search(r"object at 0x|Traceback", printed)
    assert not SECONDS.search(printed)


def test_notebooks_are_listed_in_the_readme() -> None:
    listed = re.findall(r"\]\((\w+\.ipynb)\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == [path.name for path in NOTEBOOKS]
