"""fewone evaluate: a trained learner on the test tasks of its dataset, as a table and as rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from fewone.checkpoints import load_learner
from fewone.cli.options import parse_options
from fewone.episodes import TaskSplits
from fewone.errors import FewoneError
from fewone.experiments import Experiment
from fewone.experiments.build import load_splits
from fewone.experiments.evaluate import evaluate_on_test, measure_diagnostics
from fewone.learners import MetaLearner
from fewone.results import Interval, Row, Summary, cut_to_shares, warn_of_few, write_records
from fewone.training.process import own_process

COLUMNS: dict[str, str] = {
    "accuracy": "accuracy (balanced)",
    "auroc": "AUROC",
    "pr_auc": "PR-AUC",
    "f1": "F1",
    "false_alarms": "false alarms",
    "misses": "misses",
}


@dataclass(frozen=True)
class Arguments:
    """Evaluate a trained learner on the test tasks of its dataset."""

    folder: tyro.conf.Positional[Path]
    """Where `fewone train` wrote."""
    results: Path | None = None
    """A folder to which the rows are added, such as results/mine."""
    further_k: tuple[int, ...] = ()
    """Evaluate it with these K as well (default: those of its experiment)."""
    normal_share: tuple[float, ...] = ()
    """Evaluate it with these shares of normals in the support (default: that of its experiment)."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""
    threads: int | None = None
    """Threads of torch (default: as in training)."""


def main(arguments: list[str]) -> int:
    """Print the table, add the rows."""
    chosen = parse_options(Arguments, arguments, "fewone evaluate")
    learner, experiment, splits = open_trained(chosen.folder, chosen.data_dir, chosen.threads)
    # A share is evaluated at the K that are asked for: not at the further ones of the training, which may be too small.
    sizes = (experiment.k, *chosen.further_k) if chosen.normal_share or chosen.further_k else None
    rows: tuple[Row, ...] = ()
    for share in chosen.normal_share or (experiment.test_normal_share,):
        found = evaluate_on_test(experiment, splits, learner, chosen.folder, sizes, share)
        rows += found.rows
    console = Console()
    for row in rows:
        console.print(describe_row(row), highlight=False, soft_wrap=True)
        console.print(draw_table(row.summary))
        if warning := warn_of_few(row.summary.accuracy.units):
            console.print(warning, highlight=False, soft_wrap=True)
    if chosen.results is not None:
        records = (*rows, *measure_diagnostics(experiment, splits, learner, chosen.folder, found.alarms))
        for path in write_records(chosen.results, *records):
            console.print(f"{len(rows)} row(s) added: {path}", highlight=False, soft_wrap=True)
    return 0


def describe_row(row: Row) -> str:
    """What a row is about, in two lines."""
    experiment = row.experiment
    threshold = "its own threshold" if row.threshold == "own" else "a threshold calibrated over tasks"
    return (
        f"{experiment.learner} on {experiment.dataset}, K={row.k}"
        f" ({row.normal_share:.0%} normal), seed {row.seed}: {threshold},\n"
        f"each {row.level}, {row.summary.accuracy.units} independent test task(s), {row.scores.episodes} episodes"
    )


def open_trained(
    folder: Path, data_dirs: tuple[Path, ...], threads: int | None
) -> tuple[MetaLearner, Experiment, TaskSplits]:
    """A trained learner, its experiment, and the very data that it was trained on."""
    learner, card = load_learner(folder)
    experiment = card.experiment
    if experiment is None:
        raise FewoneError(f"{folder}: does not say by which experiment it was trained; give a folder of fewone train")
    own_process(threads or experiment.training.threads)
    splits = load_splits(experiment, data_dirs)
    if splits.fingerprint != card.fingerprint:
        raise FewoneError(
            f"{folder}: trained on other data than these (fingerprint {card.fingerprint}, here"
            f" {splits.fingerprint}); give the folder it was trained on with --data-dir"
        )
    return learner, experiment, splits


def draw_table(summary: Summary) -> Table:
    """Means in per cent with their 95 % intervals over tasks."""
    table = Table("metric", "mean %", "95 % interval")
    for name, heading in COLUMNS.items():
        value: Interval = cut_to_shares(getattr(summary, name))
        bounds = "" if value.low is None or value.high is None else f"{100 * value.low:.1f} to {100 * value.high:.1f}"
        table.add_row(heading, f"{100 * value.mean:.1f}", bounds)
    return table
