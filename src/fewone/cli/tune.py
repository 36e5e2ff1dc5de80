"""fewone tune: search the paper's grids on validation tasks and write the best experiment as TOML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from joblib import Parallel, delayed
from rich.console import Console

from fewone.cli.options import parse_options
from fewone.experiments import Experiment, read_experiment
from fewone.experiments.grid import name_choice
from fewone.experiments.tune import Best, Searched, find_space, tune
from fewone.files import atomic_write
from fewone.training.process import own_process


@dataclass(frozen=True)
class Arguments:
    """Search inner and outer rate, steps and batch norm for an experiment, on its validation tasks only.

    Successive halving over the paper's grid: after 1, 3, 9, ... validations only the best third goes on. The study is a
    journal file: run the same command again, or at the same time, to go on with it. Tables of experiments read what was
    chosen with `chosen = "chosen"`.
    """

    experiment: tyro.conf.Positional[Path]
    """TOML file of one experiment; its training settings are the budget of a trial."""
    trials: int | None = None
    """Trials to add, over all jobs (default: the whole grid)."""
    search: tuple[Searched, ...] = ("inner_rate", "outer_rate", "inner_steps", "norm")
    """What is searched; the other settings stay as the experiment has them."""
    jobs: int = 1
    """Trials at once."""
    out: Path | None = None
    """Where the best experiment goes (default: chosen/DATASET.LEARNER.K10.toml beside the experiment)."""
    runs: Path = Path("runs/tune")
    """Folder of the journal and of the trials' trainings."""
    results: Path | None = None
    """A folder to which each trial is added as a record, such as results/search."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""


def main(arguments: list[str]) -> int:
    chosen = parse_options(Arguments, arguments, "fewone tune")
    experiment = read_experiment(chosen.experiment)
    name = chosen.experiment.stem
    journal, runs = chosen.runs / f"{name}.journal", chosen.runs / name
    trials = chosen.trials or find_space(experiment.dataset).keep(experiment, chosen.search).size
    share = [len(range(worker, trials, chosen.jobs)) for worker in range(chosen.jobs)]
    found: list[Best] = Parallel(n_jobs=chosen.jobs)(
        delayed(_work)(experiment, journal, runs, part, chosen) for part in share if part
    )
    best = min(found, key=lambda one: one.value)
    usual = chosen.experiment.parent / "chosen" / name_choice(experiment.dataset, experiment.learner, experiment.k)
    out = chosen.out or usual
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(out, best.experiment.to_toml().encode())
    Console().print(
        f"best on validation tasks {best.value:.4f} of {best.finished} trials ({best.pruned} more were stopped): {out}",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _work(experiment: Experiment, journal: Path, runs: Path, trials: int, chosen: Arguments) -> Best:
    """A share of the trials, in a process that is the command's own."""
    own_process(experiment.training.threads)
    return tune(experiment, journal, runs, trials, chosen.data_dir or None, chosen.results, chosen.search)
