"""Every notebook runs from top to bottom, in an empty folder, and is committed without output.

`make` names a folder in EXECUTED_NOTEBOOKS where they are left with their output, for the site.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.process, pytest.mark.nightly]

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[p.stem for p in NOTEBOOKS])
# Jupyter's own event loop handling warns on some versions of Python.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_notebook(path: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(empty)}})
    client.execute()
    if folder := os.environ.get("EXECUTED_NOTEBOOKS"):
        for cell in code:  # what Spark logs is no part of the story
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
        Path(folder).mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, Path(folder, path.name))
