"""Lays out the pages for the site: those in docs/ and those at the top, in one folder.

`python docs/stage.py FOLDER` makes `FOLDER/pages`, with `mkdocs.yml` beside it. On GitHub a page at
the top links to `docs/page.md`, and a page in docs/ to `../PAGE.md`; in the folder both are
neighbours. README.md is the first page, `index.md`. Executed notebooks come into `pages/notebooks`
(see the Makefile), as Markdown.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOP = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")


def stage(folder: Path) -> None:
    """Fill the folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    left_out = shutil.ignore_patterns("*.py", "*.yml", "__pycache__")
    shutil.copytree(ROOT / "docs", folder, ignore=left_out)
    for name in TOP:
        text = (ROOT / name).read_text()
        if name == "LICENSE":
            text = f"# Licence\n\n```text\n{text}```\n"
        (folder / _staged(name)).write_text(re.sub(r"\]\(docs/", "](", text))
    for page in folder.glob("*.md"):
        text = re.sub(r"\]\(\.\./([A-Z]+(?:\.md)?)", r"](\1", page.read_text())
        text = re.sub(r"\]\(\.\./(notebooks/\w+)\.ipynb\)", r"](\1.md)", text)
        for name in ("README.md", "LICENSE"):
            text = text.replace(f"]({name})", f"]({_staged(name)})")
        page.write_text(text)


def _staged(name: str) -> str:
    return {"README.md": "index.md", "LICENSE": "LICENSE.md"}.get(name, name)


if __name__ == "__main__":
    stage(Path(sys.argv[1], "pages"))
    shutil.copy(ROOT / "docs" / "mkdocs.yml", sys.argv[1])
