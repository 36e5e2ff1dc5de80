"""What the site makes of pages that are read in the repository too: the README is its first page, and links to sources,
which a site does not hold, become plain words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
_FOLDERS = "src|tests|benchmarks|paper|examples|deploy|results"
_FILES = r"LICENSE|CONTRIBUTING\.md|CHANGELOG\.md|CITATION\.cff|README\.md|mkdocs\.yml"
_OUTSIDE = re.compile(rf"\[([^\]]+)\]\((?:\.\./)*(?:(?:{_FOLDERS})(?:/[^)]*)?|{_FILES})\)")


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """The page's text as the site shows it."""
    if page.file.src_uri == "index.md":
        markdown = README.read_text(encoding="utf-8").replace("](docs/", "](")
    return _OUTSIDE.sub(r"\1", markdown)
