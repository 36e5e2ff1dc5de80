"""fewone tune: search the paper's grids on validation tasks and write the best experiment as TOML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from joblib import Parallel, delayed
from rich.console import Console

from fewone.experiments import Experiment, read_experiment
from fewone.experiments.tune import Best, tune
from fewone.files import atomic_write
from fewone.training.process import own_process


@dataclass(frozen=True)
class Arguments:
    """Search inner and outer rate, steps and batch norm for an experiment, on its validation tasks only.

    The study is a journal file: run the same command again, or at the same time, to add trials to it.
    """

    experiment: tyro.conf.Positional[Path]
    """TOML file of one experiment; its training settings are the budget of a trial."""
    trials: int = 20
    """Trials to add, over all jobs."""
    jobs: int = 1
    """Trials at once."""
    out: Path | None = None
    """Where the best experiment goes (default: beside the experiment, NAME.best.toml)."""
    runs: Path = Path("runs/tune")
    """Folder of the journal and of the trials' trainings."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""


def main(arguments: list[str]) -> int:
    chosen = tyro.cli(Arguments, prog="fewone tune", args=arguments)
    experiment = read_experiment(chosen.experiment)
    name = chosen.experiment.stem
    journal, runs = chosen.runs / f"{name}.journal", chosen.runs / name
    share = [len(range(worker, chosen.trials, chosen.jobs)) for worker in range(chosen.jobs)]
    found: list[Best] = Parallel(n_jobs=chosen.jobs)(
        delayed(_work)(experiment, journal, runs, trials, chosen.data_dir or None) for trials in share if trials
    )
    best = min(found, key=lambda one: one.loss)
    out = chosen.out or chosen.experiment.with_suffix(".best.toml")
    atomic_write(out, best.experiment.to_toml().encode())
    Console().print(
        f"best validation loss {best.loss:.4f} of {best.finished} trials ({best.pruned} more were pruned): {out}",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _work(experiment: Experiment, journal: Path, runs: Path, trials: int, data_dirs: tuple[Path, ...] | None) -> Best:
    """A share of the trials, in a process that is the command's own."""
    own_process(experiment.training.threads)
    return tune(experiment, journal, runs, trials, data_dirs)
