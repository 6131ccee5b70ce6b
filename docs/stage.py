"""Lay out the pages for the site, and put what was built at the address of its version.

`python docs/stage.py FOLDER` makes `FOLDER/pages` and `FOLDER/mkdocs.yml`. On GitHub a page at the
top links to `docs/page.md`, and a page in docs/ to `../PAGE.md`; in the folder both are neighbours.
README.md is the first page, `index.md`. The Makefile puts notebooks into `pages/notebooks`, as
Markdown.

`python docs/stage.py FOLDER --publish` copies `FOLDER/html` to `FOLDER/site/VERSION`. Other
versions there stay; `site/index.html` leads to this one, and `site/versions.json` lists all.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOP = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")


def stage(folder: Path) -> None:
    """Fill the folder with the pages."""
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


def publish(html: Path, site: Path) -> str:
    """Copy a built site to its version's folder, and return the version."""
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(html, site / version)
    versions = sorted(page.parent.name for page in site.glob("*/index.html"))
    (site / "versions.json").write_text(json.dumps(versions))
    (site / "index.html").write_text(
        f'<!DOCTYPE html>\n<meta http-equiv="refresh" content="0; url={version}/index.html">\n'
    )
    return str(version)


if __name__ == "__main__":
    build = Path(sys.argv[1])
    if "--publish" in sys.argv[2:]:
        publish(build / "html", build / "site")
    else:
        stage(build / "pages")
        shutil.copy(ROOT / "docs" / "mkdocs.yml", build)
