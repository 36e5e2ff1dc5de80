"""fewone demo: the whole story in two minutes, with a table here and a page in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fewone.cli.options import parse_options
from fewone.cli.train import Display
from fewone.demo import DATASET, ITERATIONS, K, demonstrate, describe, make_experiment
from fewone.training.process import own_process


@dataclass(frozen=True)
class Arguments:
    """Meta-train on synthetic series, adapt to unseen tasks from ten normal windows, compare, write a page."""

    out: Path = Path("demo")
    """Folder for the page and the trained learner; a second run finds it there."""
    iterations: int = ITERATIONS
    """How long to meta-train."""


def main(arguments: list[str]) -> int:
    chosen = parse_options(Arguments, arguments, "fewone demo")
    console = Console()
    own_process()
    with Display(console, make_experiment(chosen.iterations)) as display:
        shown = demonstrate(chosen.out, chosen.iterations, display.watch, console.print)
    table = Table(title=f"{DATASET}: {shown.comparisons[0].own.accuracy.units} unseen tasks, K={K} normals each")
    for column in ("method", "balanced accuracy, %", "with a calibrated threshold, %", "AUROC, %"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in describe(shown.comparisons):
        table.add_row(*row)
    console.print(table)
    console.print(f"The page with windows and scores: {chosen.out / 'index.html'}", highlight=False, soft_wrap=True)
    return 0
