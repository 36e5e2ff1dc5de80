"""The spine: an experiment from its data to its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fewone.experiment import Experiment
from fewone.experiments.build import load_splits
from fewone.experiments.evaluate import evaluate_on_test, evaluate_without_steps, measure_diagnostics
from fewone.experiments.train import train
from fewone.results import Results, write_records
from fewone.training.course import Watcher


def run(
    experiment: Experiment,
    folder: Path,
    data_dirs: Sequence[Path] | None = None,
    results: Path | None = None,
    watch: Watcher | None = None,
    trunks: Path | None = None,
) -> Results:
    """Train (or go on, or find it done), evaluate on the test tasks, keep the rows. trunks: those that runs share."""
    splits = load_splits(experiment, data_dirs)
    learner = train(experiment, splits, folder, watch, trunks=trunks)
    found = evaluate_on_test(experiment, splits, learner, folder)
    if results is not None:
        unadapted = () if learner.initialisation is None else evaluate_without_steps(experiment, splits, learner)
        diagnostics = measure_diagnostics(experiment, splits, learner, folder, found.alarms)
        write_records(results, *found.rows, *unadapted, *diagnostics)
    return found.results
