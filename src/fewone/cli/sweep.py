"""fewone sweep: every experiment of a file, on all cores or on a cluster; again, to do what is missing."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fewone.cli.options import parse_options
from fewone.experiments import Experiment
from fewone.experiments.cost import estimate
from fewone.experiments.grid import Grid, matches, read_grid
from fewone.experiments.sweep import Backend, Job, Outcome, plan, sweep
from fewone.results import read_results
from fewone.training.process import own_process


@dataclass(frozen=True)
class Arguments:
    """Run every experiment of TOML files that has no row in the results yet; says first what that will cost."""

    grids: tyro.conf.Positional[tuple[Path, ...]]
    """Files of [[experiments]], such as paper/main.toml; done one after the other."""
    filter: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE[,VALUE]...")] = ()
    """Only experiments with these values, such as dataset=omniglot learner=oc-maml,maml k=10."""
    jobs: int = 1
    """Experiments at once."""
    backend: Backend = "loky"
    """Processes on this machine, or the workers of a Dask cluster."""
    scheduler: str | None = None
    """Address of the Dask scheduler, such as tcp://HOST:8786."""
    results: Path = Path("results")
    """Folder of the results; those of a file NAME.toml go to RESULTS/NAME, one small file per training."""
    runs: Path = Path("runs")
    """Folder of the trainings, one folder each; grids with the same experiment share it."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""
    costs: Path = Path("results")
    """Folder of results by whose costs those to come are estimated."""
    list: bool = False
    """Only say what would be run."""


def main(arguments: list[str]) -> int:
    """The exit code is 1 if a job failed."""
    chosen = parse_options(Arguments, arguments, "fewone sweep")
    console = Console()
    grids = [read_grid(path) for path in chosen.grids]
    planned = [(grid, _plan(grid, chosen, console)) for grid in grids]
    _say_costs([job.experiment for _, jobs in planned for job in jobs], chosen, console)
    if chosen.list:
        return 0
    own_process()
    # Planned anew: an experiment of two files is trained once.
    return max([_run(grid, _plan(grid, chosen, None), chosen, console) for grid, _ in planned], default=0)


def _plan(grid: Grid, chosen: Arguments, console: Console | None) -> builtins.list[Job]:
    """The jobs of a file that are not done; said on the console, if one is given."""
    wanted = [experiment for experiment in grid.experiments if matches(experiment, chosen.filter)]
    results = (chosen.results / grid.name).absolute()
    folders = tuple(folder.absolute() for folder in chosen.data_dir) or None
    jobs = plan(wanted, chosen.runs.absolute(), results, folders)
    if console is not None:
        console.print(
            f"{grid.title}: {len(wanted)} experiments, {len(wanted) - len(jobs)} done, {len(jobs)} to run",
            highlight=False,
            soft_wrap=True,
        )
        for job in jobs if chosen.list else ():
            console.print(f"  {job.name}", highlight=False)
    return jobs


def _say_costs(experiments: Sequence[Experiment], chosen: Arguments, console: Console) -> None:
    found = estimate(experiments, read_results(chosen.costs).rows if chosen.costs.is_dir() else ())
    if experiments and found is not None:
        console.print(f"{found}, {found.core_hours / chosen.jobs:.1f} hours with --jobs {chosen.jobs}", highlight=False)


def _run(grid: Grid, jobs: Sequence[Job], chosen: Arguments, console: Console) -> int:
    """Do the jobs of one file; 1 if one failed."""
    failed: list[Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(grid.name, total=len(jobs))
        for outcome in sweep(jobs, chosen.jobs, chosen.backend, chosen.scheduler):
            failed += [outcome] if outcome.error else []
            state = f"failed: {outcome.error}" if outcome.error else f"done in {outcome.seconds:.0f} s"
            console.print(f"{outcome.job.name}: {state}", highlight=False, markup=False, soft_wrap=True)
            bar.update(task, advance=1, description=f"{grid.name}, {len(failed)} failed" if failed else grid.name)
    if failed:
        console.print(f"{len(failed)} of {len(jobs)} jobs failed; run the same command to try them again")
    return 1 if failed else 0
