"""Which evidence for the vibration of machines, on operations of machine M01 that were left out.

python benchmarks/vibration.py --results results/validation/vibration.jsonl

The training and validation operations of cnc/M02 (all of them M01's) are left out in four parts; everything is learned
from the others, within them again by leaving parts out (fewone.vibration_making). Nothing of M02 is looked at. Rows as
those of left_out.py, `learner` being `evidence: ` and the kinds, or `evidence, untrained: ` where weights and priors
stay as they are made (`ridge 1`: an earlier projection); a stretch is standardised by all normals of its task instead of the support's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from fewone.datasets import load
from fewone.evaluation.protocol import ScoredEpisode, ScoredTwice
from fewone.experiments.evaluate import THRESHOLDS
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

DATASET = "cnc/M02"
SIZES, SETS = (2, 10), 5
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
        logits = learned.learner.judge(episode.observed)[0]
    knot = learned.calibration.at(episode.size)
    weights, sizes = torch.ones_like(logits), torch.ones_like(episode.recordings)
    own, calibrated = (
        ScoredEpisode(episode.unit, episode.number, scores, episode.labels, weights, episode.recordings, sizes)
        for scores in (logits, knot.slope * (logits - knot.threshold))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=list(STACKS))
    parser.add_argument("--results", type=Path, default=Path("results/validation/vibration.jsonl"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    splits = load(DATASET)
    everything = build(tuple(dict.fromkeys(kind for kinds in STACKS.values() for kind in kinds)))
    tasks = [look_at(task, everything) for task in (*splits.train, *splits.validation)]
    parts = list(leave_out(tasks))
    for name in chosen.stacks:
        for trained in (True, False):
            said = f"evidence{'' if trained else ', untrained'}: {name}"
            plain = choose_experiment(DATASET, STACKS[name]).to_plain()
            for row in judge(tasks, parts, STACKS[name], trained):
                kept = {"dataset": DATASET, "learner": said, "seed": 0, **row, "experiment": plain}
                with chosen.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept) + "\n")
                shown = {metric: round(sum(row[metric]) / len(row[metric]), 3) for metric in METRICS}
                print(said, row["k"], row["threshold"], row["level"], shown, flush=True)


if __name__ == "__main__":
    main()
