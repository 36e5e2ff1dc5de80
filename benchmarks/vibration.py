"""Which evidence for the vibration of machines, on operations of machine M01 that were left out.

python benchmarks/vibration.py --stacks taught fixed --page docs/benchmarks/vibration.md

The training and validation operations of cnc/M02 (all of them M01's) are left out in four parts; everything is learned
from the others, within them again by leaving parts out (fewone.vibration_making). Nothing of M02 is looked at. Rows as
those of left_out.py, `learner` being `evidence: ` and the kinds, or `evidence, untrained: ` where weights and priors
stay as they are made. `ridge 1`: an earlier projection, whose covariance was drawn further to its diagonal. `+ 3
machines`: each task taught as three made-up machines might have measured it, too. A level that ends on `, on a made-up
machine` is of operations left out, as one more such machine might have measured them. A segment is standardised by all
normals of its task instead of the support's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from fewone.datasets import load
from fewone.datasets.folder import FolderTasks, inject_faults
from fewone.episodes import InputScaling, Task
from fewone.evaluation.protocol import ScoredEpisode, ScoredTwice
from fewone.experiments.evaluate import THRESHOLDS
from fewone.results import Row, read_results
from fewone.vibration_making import (
    MACHINES,
    PARTS,
    Episode,
    Learned,
    Seen,
    Teaching,
    build,
    choose_experiment,
    draw,
    learn,
    look_at,
    look_at_all,
    teach_parts,
)
from pages import write_page

DATASET = "cnc/M02"
SIZES, SETS = (2, 10), 5
MADE_UP = ", on a made-up machine"
UNSEEN = MACHINES
"""The number of a made-up machine that teaches nothing."""
SHOWN = ("accuracy", "auroc", "f1", "false_alarms")
TESTED = (
    ("evidence", Path("results/vibration")),
    ("support-distance", Path("results/own")),
    ("rocket-nn", Path("results/cnc")),
)
INTRODUCTION = """The zoo's `vibration` judges by random convolutions over all axes in units of how the normals at
hand vary (`own machine`) and by what tells the bad runs of other operations from their good ones in the same
description (`taught`, and `own taught` in units of the normals at hand, too). Left out: the operations of M01 in four
parts, everything learned from the others, and judged as they are and as one more made-up machine might have measured
them (random response over frequency, axes turned into each other, noise). `+ 3 machines`: every task taught on three
other such machines besides; `injected`: by faults injected into good runs in place of the bad runs, `both`: beside
them. `machine` is in units of the deviation within training tasks, `fixed` are level, movement, power and form of the
spectrum, `general` those of the model `series`; `ridge 1` marks a first projection, `untrained` weights and priors as
they are made. Made-up machines came after a model without them had been tested on M02 and fell short there; they and
the kinds were chosen by these tables alone. Then the test: one model a fold, made once (nothing in it is drawn at
random but the supports it learns from and the machines), five trainings of `support-distance`, one of the random
convolutions with their nearest normal. Per cent at the calibrated threshold; operations count alike.
"""
METRICS = ("accuracy", "auroc", "f1", "false_alarms", "misses")
FIXED = ("level", "movement", "power", "spectrum")
STACKS = {
    "general": ("raw", "phase", "elastic-slope", *FIXED, "statistics", "texture"),
    "fixed": ("machine", *FIXED),
    "taught": ("machine-taught",),
    "taught, fixed": ("machine-taught", *FIXED),
    "taught, machine": ("machine-taught", "machine"),
    "taught, machine, fixed": ("machine-taught", "machine", *FIXED),
    "taught, own machine": ("machine-taught", "own-machine"),
    "taught, own machine, own taught": ("machine-taught", "own-machine", "own-machine-taught"),
}


def separate(learned: Learned, episode: Episode) -> tuple[ScoredEpisode, ScoredEpisode]:
    """One episode with the learner's own scores and with calibrated ones."""
    with torch.no_grad():
        logits = learned.learner.score(episode.observed)[0]
    point = learned.calibration.at(episode.size)
    weights, sizes = torch.ones_like(logits), torch.ones_like(episode.recordings)
    own, calibrated = (
        ScoredEpisode(episode.unit, episode.number, scores, episode.labels, weights, episode.recordings, sizes)
        for scores in (logits, point.slope * (logits - point.threshold))
    )
    return own, calibrated


def judge(
    parts: Sequence[Part], tested: Mapping[str, Sequence[Seen]], kinds: Sequence[str], trained: bool
) -> Iterator[dict[str, Any]]:
    """The values of every unit, each judged by what was learned without it; tested: the tasks, by where they are."""
    pairs: dict[tuple[str, int], list[tuple[ScoredEpisode, ScoredEpisode]]] = {}
    for part in parts:
        learned = learn(part.rest, part.teaching, kinds, trained)
        for where, tasks in tested.items():
            for one in tasks:
                if one.unit in part.left:
                    for episode in draw(one, part.teaching.whole, learned.learner, SIZES, SETS):
                        pairs.setdefault((where, episode.size), []).append(separate(learned, episode))
    for (where, size), both in pairs.items():
        own, calibrated = zip(*both, strict=True)
        for results, threshold in zip(ScoredTwice(own, calibrated, 0.0, 0.0).summarize(), THRESHOLDS, strict=True):
            for level, scores in (("example", results.examples), ("run", results.runs)):
                if scores is not None:
                    values = {name: list(getattr(scores, name)) for name in METRICS}
                    units = list(scores.units)
                    yield {"k": size, "threshold": threshold, "level": level + where, "units": units, **values}


@dataclass(frozen=True)
class Part:
    """Some units left out, and the others with what they teach."""

    left: frozenset[str]
    rest: tuple[Seen, ...]
    teaching: Teaching


def leave_out(tasks: Sequence[Seen]) -> Iterator[Part]:
    units = list(dict.fromkeys(one.unit for one in tasks))
    for part in range(PARTS):
        left = frozenset(units[part::PARTS])
        rest = tuple(one for one in tasks if one.unit not in left)
        yield Part(left, rest, teach_parts(rest))


def tabulate_left_out(results: Path) -> Iterator[Table]:
    """One table per level: each stack at its own threshold and calibrated."""
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    names = list(dict.fromkeys(row["learner"] for row in rows))
    for level in ("example", "run", f"example{MADE_UP}", f"run{MADE_UP}"):
        what = "segment" if level.startswith("example") else "run"
        table = Table(
            title=f"Operations of M01 left out{level.removeprefix('example').removeprefix('run')}, each {what}"
        )
        for head in ("evidence", *(f"K={k} {metric}" for k in SIZES for metric in SHOWN)):
            table.add_column(head)
        for name in names:
            cells = []
            for k in SIZES:
                asked = (name, k, level, "calibrated")
                for row in rows:
                    if (row["learner"], row["k"], row["level"], row["threshold"]) == asked:
                        cells += [f"{100 * sum(row[metric]) / len(row[metric]):.1f}" for metric in SHOWN]
            if cells:
                table.add_row(name, *cells)
        yield table


def tabulate_test() -> Iterator[Table]:
    """New operations, and a new machine with new operations: means over folds (and the seeds that there are)."""
    for title, family in (
        ("New operations, cnc/A to D", "cnc/"),
        ("A new machine as well, cnc/M02-A to D", "cnc/M02-"),
    ):
        table = Table(title=title)
        for head in ("learner", "folds", "K", "level", "accuracy", "F1", "false alarms", "AUROC"):
            table.add_column(head)
        for learner, folder in TESTED:
            rows = [row for row in read_results(folder).rows if _fits(row, learner, family)]
            for k, level in ((k, level) for k in SIZES for level in ("example", "run")):
                chosen = [row for row in rows if (row.k, row.level) == (k, level)]
                if chosen:
                    folds = sorted({row.experiment.dataset[-1] for row in chosen})
                    cells = [_mean(chosen, metric) for metric in ("accuracy", "f1", "false_alarms", "auroc")]
                    table.add_row(learner, " ".join(folds), str(k), level, *cells)
        yield table


def _fits(row: Row, learner: str, family: str) -> bool:
    plain = row.experiment
    of_family = plain.dataset in {f"{family}{fold}" for fold in "ABCD"}
    return of_family and (plain.learner, row.split, row.threshold, row.normal_share) == (
        learner,
        "test",
        "calibrated",
        1.0,
    )


def _mean(rows: Sequence[Row], metric: str) -> str:
    """In per cent: operations count alike, whatever the seeds."""
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for unit, value in zip(row.scores.units, getattr(row.scores, metric), strict=True):
            values.setdefault((row.experiment.dataset, unit), []).append(value)
    return f"{100 * sum(sum(one) / len(one) for one in values.values()) / len(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stacks", nargs="*", choices=STACKS, default=[])
    parser.add_argument("--machines", action="store_true", help="teach on made-up machines, too")
    parser.add_argument(
        "--anomalies",
        choices=("labelled", "injected", "both"),
        default="labelled",
        help="what bad runs teach: their own, faults injected into good runs, or both",
    )
    parser.add_argument("--results", type=Path, default=Path("results/validation/vibration.jsonl"))
    parser.add_argument("--page", type=Path, help="write all rows so far, and those of the test, as a page")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.stacks:
        measure(chosen.stacks, chosen.machines, chosen.anomalies, chosen.results)
    if chosen.page is not None:
        tables = [*tabulate_left_out(chosen.results), *tabulate_test()]
        write_page(chosen.page, "Evidence for the vibration of machines", INTRODUCTION, tables)


def measure(stacks: Sequence[str], machines: bool, anomalies: str, results: Path) -> None:
    """Add the rows of these stacks."""
    splits = load(DATASET)
    left_out = (*splits.train, *splits.validation)
    teachers = left_out if anomalies == "labelled" else _inject(left_out, anomalies)
    everything = build(tuple(dict.fromkeys(kind for name in stacks for kind in STACKS[name])))
    tested = {
        "": [look_at(task, everything) for task in left_out],
        MADE_UP: [look_at(task, everything, UNSEEN) for task in left_out],
    }
    taught = look_at_all(teachers, everything, MACHINES if machines else 0)
    parts = list(leave_out(taught))
    for name in stacks:
        for trained in (True, False):
            said = f"evidence{'' if trained else ', untrained'}: {name}{f' + {MACHINES} machines' if machines else ''}"
            said += f", {anomalies}" if anomalies != "labelled" else ""
            experiment = choose_experiment(DATASET, STACKS[name]).to_plain()
            for row in judge(parts, tested, STACKS[name], trained):
                kept = {"dataset": DATASET, "learner": said, "seed": 0, **row, "experiment": experiment}
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept) + "\n")
                shown = {metric: round(sum(row[metric]) / len(row[metric]), 3) for metric in METRICS}
                print(said, row["k"], row["threshold"], row["level"], shown, flush=True)


def _inject(tasks: Sequence[Task], anomalies: str) -> tuple[Task, ...]:
    """The tasks with faults injected into their normals, beside their own anomalies or in place of them."""
    names = tuple(task.name for task in tasks)
    shape = tuple(tasks[0].normal.store.values.shape[1:])
    content = FolderTasks(tuple(tasks), shape, InputScaling(standardize=True), {})
    return tuple(inject_faults(Path(DATASET), content, names if anomalies == "both" else (), ()))


if __name__ == "__main__":
    main()
