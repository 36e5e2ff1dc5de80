"""fewone analyze: a look inside a trained learner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.table import Table

from fewone.cli.evaluate import open_trained
from fewone.episodes import TaskSplits
from fewone.evaluation import append, bootstrap, find_origin, interval
from fewone.evaluation.gradients import measure_cosines
from fewone.evaluation.results import Alarms, Cosine
from fewone.experiments import Experiment
from fewone.experiments.run import EVALUATION_SEED, count_alarms, make_sampler
from fewone.learners import MetaLearner


@dataclass(frozen=True)
class Arguments:
    """Look inside a trained learner.

    cosine: of the gradients of K normals and of a disjoint class-balanced batch at the learned initialisation, on the
    test tasks (the paper's table): near 1, a step on normals alone also helps to tell anomalies apart.
    alarms: the false-alarm rates that a detector realises on the test tasks where 10, 5 and 1 % are asked for.
    """

    what: tyro.conf.Positional[Literal["cosine", "alarms"]]
    """What to look at."""
    folder: tyro.conf.Positional[Path]
    """Where `fewone train` wrote."""
    results: Path | None = None
    """A file of JSON lines to which what was found is added."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""
    threads: int | None = None
    """Threads of torch (default: as in training)."""


def main(arguments: list[str]) -> int:
    """Print what was found, add the records."""
    chosen = tyro.cli(Arguments, prog="fewone analyze", args=arguments)
    learner, experiment, splits = open_trained(chosen.folder, chosen.data_dir, chosen.threads)
    console = Console()
    records: Sequence[Cosine | Alarms]
    if chosen.what == "cosine":
        records = [_look_at_cosine(console, learner, experiment, splits)]
    else:
        records = count_alarms(experiment, splits, learner, chosen.folder)
        about = f"{experiment.learner} on {experiment.dataset}, seed {experiment.seed}: false alarms on test tasks"
        console.print(about, highlight=False, soft_wrap=True)
        console.print(draw_alarms(records))
    if chosen.results is not None:
        notice = append(chosen.results, *records)
        console.print(notice or f"added to {chosen.results}", highlight=False, soft_wrap=True)
    return 0


def _look_at_cosine(console: Console, learner: MetaLearner, experiment: Experiment, splits: TaskSplits) -> Cosine:
    """The mean cosine and its interval over tasks."""
    started, started_cpu = time.perf_counter(), time.process_time()
    sampler = make_sampler(experiment, splits, 1.0)
    found = measure_cosines(learner, splits.test, splits.plan, sampler, EVALUATION_SEED)
    mean = interval(found.values)
    bounds = "" if mean.low is None or mean.high is None else f" ({mean.low:.3f} to {mean.high:.3f})"
    console.print(
        f"{experiment.learner} on {experiment.dataset}, K={experiment.k}, seed {experiment.seed}: cosine"
        f" {mean.mean:.3f}{bounds} over {mean.units} test task(s)",
        highlight=False,
        soft_wrap=True,
    )
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    origin = find_origin(splits.fingerprint, seconds, cpu_seconds)
    return Cosine(experiment.to_plain(), experiment.seed, found.units, found.values, origin)


def draw_alarms(records: Sequence[Alarms]) -> Table:
    """Asked and realised rates in per cent, the realised ones with 95 % intervals over resampled tasks."""
    table = Table("K", "each", "asked %", "realised %", "95 % interval", "missed anomalies %", "tasks")
    for record in sorted(records, key=lambda one: (one.k, one.level, -one.rate)):
        realised, missed = bootstrap(record.false_alarms), bootstrap(record.misses)
        bounds = ""
        if realised.low is not None and realised.high is not None:
            bounds = f"{100 * realised.low:.1f} to {100 * realised.high:.1f}"
        table.add_row(
            str(record.k),
            record.level,
            f"{100 * record.rate:g}",
            f"{100 * realised.mean:.1f}",
            bounds,
            f"{100 * missed.mean:.1f}",
            str(realised.units),
        )
    return table
