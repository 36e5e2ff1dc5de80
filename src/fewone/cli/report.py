"""fewone report: results -> one HTML page and the same tables in Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from fewone.checkpoints import write_aside
from fewone.reporting.findings import collect
from fewone.reporting.page import build_report, render_html, render_markdown


@dataclass(frozen=True)
class Arguments:
    """The paper's tables beside ours, from a folder of results."""

    results: tyro.conf.Positional[Path]
    """Folder of *.jsonl files."""
    out: Path = Path("report")
    """Folder for index.html and results.md."""


def main(arguments: list[str]) -> int:
    chosen = tyro.cli(Arguments, prog="fewone report", args=arguments)
    report = build_report(collect(chosen.results))
    chosen.out.mkdir(parents=True, exist_ok=True)
    write_aside(chosen.out / "index.html", render_html(report).encode())
    write_aside(chosen.out / "results.md", render_markdown(report).encode())
    console = Console()
    for notice in report.evidence.notices:
        console.print(notice, highlight=False, markup=False)
    console.print(
        f"{chosen.out / 'index.html'}: {report.wanted_cells - report.open_cells} of {report.wanted_cells} published"
        f" numbers have ours beside them",
        highlight=False,
        soft_wrap=True,
    )
    return 0
