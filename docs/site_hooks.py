"""Puts the pages at the top of the repository into the site, with their links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
TOP = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")


def on_files(files: Files, config: Any) -> Files:
    """Add them; README.md is the first page."""
    for name in TOP:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links between the top and docs/, which are one folder in the site."""
    if page.file.src_uri in TOP:
        return re.sub(r"\]\(docs/", "](", markdown).replace('src="docs/', 'src="')
    return re.sub(r"\]\(\.\./(?=[A-Z]+(?:\.md)?[#)])", "](", markdown)
