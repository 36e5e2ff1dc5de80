"""fewone report: results -> one HTML page, the records behind it, and the tables in Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from fewone.cli.options import parse_options
from fewone.files import atomic_write
from fewone.reporting.markdown import render_markdown
from fewone.reporting.page import build_report, render_html
from fewone.reporting.prose import render_pages
from fewone.reporting.records_page import FOLDER, render_records
from fewone.reporting.seed_averages import collect


@dataclass(frozen=True)
class Arguments:
    """The paper's tables beside ours, from a folder of results."""

    results: tyro.conf.Positional[Path]
    """Folder of results, as fewone sweep writes it."""
    out: Path = Path("report")
    """Folder for index.html, the records behind it, results.md and the pages of prose with figures from the rows."""


def main(arguments: list[str]) -> int:
    chosen = parse_options(Arguments, arguments, "fewone report")
    report = build_report(collect(chosen.results))
    (chosen.out / FOLDER).mkdir(parents=True, exist_ok=True)
    atomic_write(chosen.out / "index.html", render_html(report).encode())
    for name, page in render_records(report.averages).items():
        atomic_write(chosen.out / FOLDER / name, page.encode())
    for name, text in {"results.md": render_markdown(report), **render_pages(report)}.items():
        atomic_write(chosen.out / name, text.encode())
    console = Console()
    for notice in report.averages.notices:
        console.print(notice, highlight=False, markup=False)
    console.print(
        f"{chosen.out / 'index.html'}: {report.wanted_cells - report.open_cells} of {report.wanted_cells} published"
        f" numbers have ours beside them",
        highlight=False,
        soft_wrap=True,
    )
    return 0
