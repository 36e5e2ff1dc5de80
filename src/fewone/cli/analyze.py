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

from fewone.cli.evaluate import describe_row, draw_table, open_trained
from fewone.cli.options import parse_options
from fewone.cli.score import load_fitted
from fewone.episodes import TaskSplits
from fewone.errors import FewoneError
from fewone.evaluation.gradients import measure_cosines
from fewone.evaluation.symmetry import Symmetry, measure_symmetry
from fewone.evaluation.validation_plan import spread
from fewone.experiments import Experiment
from fewone.experiments.build import make_sampler
from fewone.experiments.evaluate import EVALUATION_SEED, count_alarms, evaluate_without_steps
from fewone.learners import MetaLearner
from fewone.results import Alarms, Cosine, Row, bootstrap, find_provenance, interval, write_records

THEORY_TASKS = 40
THEORY_PAIRS = 20


@dataclass(frozen=True)
class Arguments:
    """Look inside a trained learner.

    cosine: of the gradients of K normals and of a disjoint class-balanced batch at the learned initialisation, on the
    test tasks (the paper's table): near 1, a step on normals alone also helps to tell anomalies apart.
    unadapted: accuracy on the test tasks without an inner step: what the support is not needed for.
    alarms: the false-alarm rates that a detector realises on the test tasks where 10, 5 and 1 % are asked for.
    theory: whether E[H1 g2] = E[H2 g1] at the learned initialisation (the paper's Equation 5), on training tasks, for
    two class-balanced minibatches and for one of normals against a class-balanced one.
    faults: which faults a fitted detector would find, from which strength on, and what it is blind to; injected
    into its own normals, each judged by the others.
    """

    what: tyro.conf.Positional[Literal["cosine", "unadapted", "alarms", "theory", "faults"]]
    """What to look at."""
    folder: tyro.conf.Positional[Path]
    """Where `fewone train` wrote; of faults: a detector made by `fewone fit`."""
    plot: Path | None = None
    """Of faults: draw the table into this picture as well."""
    results: Path | None = None
    """A folder to which what was found is added, such as results/mine."""
    data_dir: tuple[Path, ...] = ()
    """Folders that hold the data (default: those that FEWONE_DATA names)."""
    threads: int | None = None
    """Threads of torch (default: as in training)."""


def main(arguments: list[str]) -> int:
    """Print what was found, add the records."""
    chosen = parse_options(Arguments, arguments, "fewone analyze")
    if chosen.what == "faults":
        return _look_at_faults(chosen.folder, chosen.plot)
    learner, experiment, splits = open_trained(chosen.folder, chosen.data_dir, chosen.threads)
    console = Console()
    records: Sequence[Cosine | Alarms | Row]
    if chosen.what == "cosine":
        records = [_look_at_cosine(console, learner, experiment, splits)]
    elif chosen.what == "unadapted":
        records = rows = evaluate_without_steps(experiment, splits, learner)
        for row in rows:
            console.print(f"no inner step taken: {describe_row(row)}", highlight=False, soft_wrap=True)
            console.print(draw_table(row.summary))
    elif chosen.what == "theory":
        records = ()
        console.print(draw_symmetry(_look_at_theory(learner, experiment, splits)))
    else:
        records = alarms = count_alarms(experiment, splits, learner, chosen.folder)
        about = f"{experiment.learner} on {experiment.dataset}, seed {experiment.seed}: false alarms on test tasks"
        console.print(about, highlight=False, soft_wrap=True)
        console.print(draw_alarms(alarms))
    if chosen.results is not None:
        for path in write_records(chosen.results, *records):
            console.print(f"added: {path}", highlight=False, soft_wrap=True)
    return 0


def _look_at_faults(folder: Path, plot: Path | None) -> int:
    """The table of faults and strengths."""
    detector, _ = load_fitted(folder)
    found = detector.check_faults()
    print(found)
    if plot is not None:
        try:
            plot.parent.mkdir(parents=True, exist_ok=True)
            found.plot().savefig(plot, dpi=120)
        except (OSError, ValueError) as error:
            raise FewoneError(f"{plot}: cannot be written ({error}); give another place, such as faults.png") from error
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
    provenance = find_provenance(splits.fingerprint, seconds, cpu_seconds)
    return Cosine(experiment, provenance, found.units, found.values)


def _look_at_theory(learner: MetaLearner, experiment: Experiment, splits: TaskSplits) -> list[Symmetry]:
    """Pairs of equal shares and of different ones, on at most THEORY_TASKS training tasks."""
    sampler = make_sampler(experiment, splits, 1.0)
    tasks = spread(splits.train, THEORY_TASKS)
    return [measure_symmetry(learner, tasks, sampler, share, THEORY_PAIRS, EVALUATION_SEED) for share in (0.5, 1.0)]


def draw_symmetry(found: Sequence[Symmetry]) -> Table:
    """One line for each kind of pair, and what its interval says."""
    table = Table("batches", "difference", "95 % interval", "cosine", "says", "tasks", "pairs")
    for one in found:
        low, high = one.difference.low, one.difference.high
        assert low is not None and high is not None
        table.add_row(
            "balanced, balanced" if one.first_share == 0.5 else "normals, balanced",
            f"{one.difference.mean:.4f}",
            f"{low:.3f} to {high:.3f}",
            f"{one.cosine:.3f}",
            "different" if low > 0 else "no difference",
            str(one.difference.units),
            str(one.pairs),
        )
    return table


def draw_alarms(records: Sequence[Alarms]) -> Table:
    """Target and observed rates in per cent, the observed ones with 95 % intervals over resampled tasks."""
    table = Table("K", "each", "target %", "observed %", "95 % interval", "missed anomalies %", "tasks")
    for record in sorted(records, key=lambda one: (one.k, one.level, -one.rate)):
        observed, missed = bootstrap(record.false_alarms), bootstrap(record.misses)
        bounds = ""
        if observed.low is not None and observed.high is not None:
            bounds = f"{100 * observed.low:.1f} to {100 * observed.high:.1f}"
        table.add_row(
            str(record.k),
            record.level,
            f"{100 * record.rate:g}",
            f"{100 * observed.mean:.1f}",
            bounds,
            f"{100 * missed.mean:.1f}",
            str(observed.units),
        )
    return table
