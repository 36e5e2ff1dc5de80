"""Which evidence for the vibration of machines, on operations of machine M01 that were left out.

python benchmarks/vibration.py --stacks taught fixed --page docs/benchmarks/vibration.md

The training and validation operations of cnc/M02 (all of them M01's) are left out in four parts; everything is learned
from the others, within them again by leaving parts out (fewone.vibration_making). Nothing of M02 is looked at. Rows as
those of left_out.py, `learner` being `evidence: ` and the kinds, or `evidence, untrained: ` where weights and priors
stay as they are made (`ridge 1`: an earlier projection, whose covariance was drawn further to its diagonal). A segment
is standardised by all normals of its task instead of the support's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from fewone.datasets import load
from fewone.evaluation.protocol import ScoredEpisode, ScoredTwice
from fewone.experiments.evaluate import THRESHOLDS
from fewone.results import Row, read_results
from fewone.vibration_making import (
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
    teach_parts,
)
from pages import write_page

DATASET = "cnc/M02"
SIZES, SETS = (2, 10), 5
SHOWN = ("accuracy", "auroc", "f1", "false_alarms")
TESTED = (
    ("evidence", Path("results/vibration")),
    ("support-distance", Path("results/own")),
    ("rocket-nn", Path("results/cnc")),
)
INTRODUCTION = """The zoo's `vibration` judges by two kinds of evidence: random convolutions over all axes in units of
their deviation within training tasks (`machine`), and what tells the bad runs of other operations from their good ones
in the same description (`taught`). Left out: the operations of M01 in four parts, everything learned from the others;
`fixed` are level, movement, power and form of the spectrum, `general` those of the model `series`. What is learned was
not to stand alone, so of the stacks with fixed evidence the smallest of the best was taken, before any test row of it
was made; `ridge 1` marks a first projection. `untrained`: weights and priors as they are made. Then the test: one model
a fold, made once (nothing in it is drawn at random but the supports it learns from), five trainings of
`support-distance`, one of the random convolutions with their nearest normal. Per cent at the calibrated threshold;
operations count alike.
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
    tasks: Sequence[Seen], parts: Sequence[tuple[set[str], Teaching]], kinds: Sequence[str], trained: bool
) -> Iterator[dict[str, Any]]:
    """The values of every unit, each judged by what was learned without it."""
    pairs: dict[int, list[tuple[ScoredEpisode, ScoredEpisode]]] = {size: [] for size in SIZES}
    for left, teaching in parts:
        learned = learn([one for one in tasks if one.unit not in left], teaching, kinds, trained)
        for one in tasks:
            if one.unit in left:
                for episode in draw(one, teaching.whole, learned.learner, SIZES, SETS):
                    pairs[episode.size].append(separate(learned, episode))
    for size, both in pairs.items():
        own, calibrated = zip(*both, strict=True)
        for results, threshold in zip(ScoredTwice(own, calibrated, 0.0, 0.0).summarize(), THRESHOLDS, strict=True):
            for level, scores in (("example", results.examples), ("run", results.runs)):
                if scores is not None:
                    values = {name: list(getattr(scores, name)) for name in METRICS}
                    yield {"k": size, "threshold": threshold, "level": level, "units": list(scores.units), **values}


def leave_out(tasks: Sequence[Seen]) -> Iterator[tuple[set[str], Teaching]]:
    """Each part of the units, and what the others teach."""
    units = list(dict.fromkeys(one.unit for one in tasks))
    for part in range(PARTS):
        left = set(units[part::PARTS])
        yield left, teach_parts([one for one in tasks if one.unit not in left])


def tabulate_left_out(results: Path) -> Iterator[Table]:
    """One table per level: each stack at its own threshold and calibrated."""
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    names = list(dict.fromkeys(row["learner"] for row in rows))
    for level in ("example", "run"):
        table = Table(title=f"Operations of M01 left out, each {'segment' if level == 'example' else 'run'}")
        for head in ("evidence", *(f"K={k} {metric}" for k in SIZES for metric in SHOWN)):
            table.add_column(head)
        for name in names:
            cells = []
            for k in SIZES:
                asked = (name, k, level, "calibrated")
                (row,) = [one for one in rows if (one["learner"], one["k"], one["level"], one["threshold"]) == asked]
                cells += [f"{100 * sum(row[metric]) / len(row[metric]):.1f}" for metric in SHOWN]
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
    parser.add_argument("--results", type=Path, default=Path("results/validation/vibration.jsonl"))
    parser.add_argument("--page", type=Path, help="write all rows so far, and those of the test, as a page")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.stacks:
        measure(chosen.stacks, chosen.results)
    if chosen.page is not None:
        tables = [*tabulate_left_out(chosen.results), *tabulate_test()]
        write_page(chosen.page, "Evidence for the vibration of machines", INTRODUCTION, tables)


def measure(stacks: Sequence[str], results: Path) -> None:
    """Add the rows of these stacks."""
    splits = load(DATASET)
    everything = build(tuple(dict.fromkeys(kind for kinds in STACKS.values() for kind in kinds)))
    tasks = [look_at(task, everything) for task in (*splits.train, *splits.validation)]
    parts = list(leave_out(tasks))
    for name in stacks:
        for trained in (True, False):
            said = f"evidence{'' if trained else ', untrained'}: {name}"
            plain = choose_experiment(DATASET, STACKS[name]).to_plain()
            for row in judge(tasks, parts, STACKS[name], trained):
                kept = {"dataset": DATASET, "learner": said, "seed": 0, **row, "experiment": plain}
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept) + "\n")
                shown = {metric: round(sum(row[metric]) / len(row[metric]), 3) for metric in METRICS}
                print(said, row["k"], row["threshold"], row["level"], shown, flush=True)


if __name__ == "__main__":
    main()
