"""fewone analyze: a look inside a trained learner."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from fewone.cli.evaluate import open_trained
from fewone.evaluation import append, find_origin, interval
from fewone.evaluation.gradients import measure_cosines
from fewone.evaluation.results import Cosine
from fewone.experiments.run import EVALUATION_SEED, make_sampler


@dataclass(frozen=True)
class Arguments:
    """Look inside a trained learner.

    cosine: of the gradients of K normals and of a disjoint class-balanced batch at the learned initialisation, on the
    test tasks (the paper's table): near 1, a step on normals alone also helps to tell anomalies apart.
    """

    what: tyro.conf.Positional[Literal["cosine"]]
    """What to look at."""
    folder: tyro.conf.Positional[Path]
    """Where `fewone train` wrote."""
    results: Path | None = None
    """A file of JSON lines to which the cosines are added."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""
    threads: int | None = None
    """Threads of torch (default: as in training)."""


def main(arguments: list[str]) -> int:
    """Print the mean cosine and its interval over tasks, add the record."""
    chosen = tyro.cli(Arguments, prog="fewone analyze", args=arguments)
    learner, experiment, splits = open_trained(chosen.folder, chosen.data_dir, chosen.threads)
    started, started_cpu = time.perf_counter(), time.process_time()
    sampler = make_sampler(experiment, splits, 1.0)
    found = measure_cosines(learner, splits.test, splits.plan, sampler, EVALUATION_SEED)
    mean = interval(found.values)
    bounds = "" if mean.low is None or mean.high is None else f" ({mean.low:.3f} to {mean.high:.3f})"
    console = Console()
    console.print(
        f"{experiment.learner} on {experiment.dataset}, K={experiment.k}, seed {experiment.seed}: cosine"
        f" {mean.mean:.3f}{bounds} over {mean.units} test task(s)",
        highlight=False,
        soft_wrap=True,
    )
    if chosen.results is not None:
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
        origin = find_origin(splits.fingerprint, seconds, cpu_seconds)
        record = Cosine(experiment.to_plain(), experiment.seed, found.units, found.values, origin)
        console.print(append(chosen.results, record) or f"added to {chosen.results}", highlight=False, soft_wrap=True)
    return 0
