"""Tables of a benchmark as a page of Markdown."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table


def make_parser(documentation: str | None) -> argparse.ArgumentParser:
    """The options that benchmarks share: how many rounds, and where to write a page."""
    parser = argparse.ArgumentParser(description=documentation)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--markdown", type=Path, help="write the tables to this page as well")
    return parser


def present(tables: Sequence[Table], path: Path | None, title: str, program: str, documentation: str | None) -> None:
    """The tables on the screen and, with a path, on a page; `documentation` after 'one table each.' opens it."""
    for table in tables:
        Console().print(table)
    if path is not None:
        introduction = (documentation or "").split("one table each.")[1]
        write_page(path, title, f"Written by `python benchmarks/{program} --markdown FILE`. {introduction}", tables)


def write_page(path: Path, title: str, introduction: str, tables: Sequence[Table]) -> None:
    """What the rich tables show, column by column, below a title and a paragraph."""
    text = f"# {title}\n\n{' '.join(introduction.split())}\n\n"
    text += f"One core; torch {torch.__version__}, Python {platform.python_version()}.\n"
    for table in tables:
        columns = [list(column.cells) for column in table.columns]
        heads = [str(column.header) for column in table.columns]
        rows = [heads, ["---"] * len(heads), *map(list, zip(*columns, strict=True))]
        text += f"\n## {table.title}\n\n" + "".join("| " + " | ".join(map(str, row)) + " |\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(text)
    aside.replace(path)
