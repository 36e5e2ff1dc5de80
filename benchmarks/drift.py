"""Ten good runs of one month, then the later months: how many false alarms, and what adding confirmed runs brings.

for fold in A B C D; do python -m fewone.vibration_making cnc/M02-$fold runs/cnc-M02-$fold; done
python benchmarks/drift.py M01 --models runs
python benchmarks/drift.py M02 --models runs --ways never each

An operation starts with ten good runs of its first month that has as many. Every later run is judged in the order of
time, good and bad, and then looked at by a person: each `every` runs that were confirmed as good are added to the
normals (`partial_fit`), of which the newest `keep` stay; bad runs are never added. Bad runs of before the start are
judged first. The models learned from operations of M01 other than those they judge here, on M01 as on M02. The way is
chosen on M01. Runs are judged as AlignedDetector judges them (mean over six segments and worst
segment), without the envelope, which can only add alarms; segments are standardised by the first ten runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewone.calibration import CalibrationMap
from fewone.checkpoints import load_calibration, load_learner
from fewone.datasets import DATASETS
from fewone.datasets.cnc_milling import FOLDS, SEGMENTS, Run, list_runs, read_segments
from fewone.datasets.sources import default_data_dirs
from fewone.detector.recording_verdicts import RecordingScorer, find_limits, judge_recording
from fewone.episodes import Moments
from fewone.learners.evidence import Evidence
from fewone.learners.evidence_kinds import Features
from fewone.vibration_making import EVIDENCE, observe, pick

MONTHS = ("Feb_2019", "Aug_2019", "Feb_2020", "Aug_2020", "Feb_2021", "Aug_2021")
START = 10


@dataclass(frozen=True)
class Way:
    """rate: of false alarms asked for; every: so many confirmed runs are added at once (0: never); keep: 0 for all."""

    rate: float = 0.05
    every: int = 0
    keep: int = 0


WAYS = {
    "never": Way(),
    "never, 1 %": Way(rate=0.01),
    "never, 0.5 %": Way(rate=0.005),
    "every 5": Way(every=5),
    "every 5, newest 20": Way(every=5, keep=20),
    "every 5, 0.5 %": Way(rate=0.005, every=5),
    "every 2, 0.5 %": Way(rate=0.005, every=2),
    "each": Way(every=1),
    "each, 1 %": Way(rate=0.01, every=1),
    "each, 0.5 %": Way(rate=0.005, every=1),
}
"""Those that were tried on M01."""

CHOSEN = "each"
"""Chosen on M01: more bad runs found and fewer alarms than with `every 5`, and more found than with none."""


@dataclass(frozen=True)
class Course:
    """All runs of an operation in the order of time; start: the first ten.

    views: what the model sees of all runs, segment by segment.
    """

    runs: tuple[Run, ...]
    views: tuple[dict[str, Features], ...]
    start: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """What was learned from other operations."""

    learner: Evidence
    calibration: CalibrationMap


def find_time(run: Run) -> tuple[int, bool, str]:
    """Month, bad runs last, number within the month."""
    month = next(number for number, name in enumerate(MONTHS) if f"_{name}_" in run.path.name)
    return month, run.bad, run.path.name


@torch.no_grad()
def read_course(runs: Sequence[Run], learner: Evidence) -> Course | None:
    """None: no month has ten good runs."""
    ordered = sorted(runs, key=find_time)
    good = [number for number, run in enumerate(ordered) if not run.bad]
    months = [list(group) for _, group in groupby(good, key=lambda number: find_time(ordered[number])[0])]
    first = next((tuple(month[:START]) for month in months if len(month) >= START), None)
    if first is None:
        return None
    values = torch.from_numpy(np.stack([read_segments(run.path) for run in ordered])).to(torch.float32)
    found = []
    for segment in range(SEGMENTS):
        inputs = values[:, segment]
        found.append(learner.look(Moments.of(inputs[list(first)]).apply(inputs).unsqueeze(0)))
    return Course(tuple(ordered), tuple(found), first)


@torch.no_grad()
def call(course: Course, model: Model, normals: Sequence[int], queries: Sequence[int], rate: float) -> list[bool]:
    """Which of these runs are called anomalous by a detector of these normals."""
    learner, calibration, size = model.learner, model.calibration, len(normals)
    point = calibration.at(size)
    scorer = RecordingScorer(find_limits(calibration.threshold(size, rate), rate, calibration, size, 1.0))
    of, to = torch.tensor(normals), torch.tensor(queries)
    logits: list[Tensor] = []
    for views in course.views:
        judged = learner.score(observe(learner, pick(views, of), pick(views, to)))[0]
        logits.append(point.slope * (judged.double() - point.threshold))
    return [judge_recording(scorer, row).decision < 0 for row in torch.stack(logits, 1).numpy()]


def follow(course: Course, model: Model, way: Way) -> dict[str, Any]:
    """Counts over an operation's time: later good runs, false alarms among them, bad runs, and those found."""
    normals, waiting = list(course.start), list[int]()
    first = course.start[-1]
    alarms, found = [], []
    before = [number for number, run in enumerate(course.runs) if run.bad and number < first]
    if before:
        found += call(course, model, normals, before, way.rate)
    for number in range(first + 1, len(course.runs)):
        (anomalous,) = call(course, model, normals, [number], way.rate)
        if course.runs[number].bad:
            found.append(anomalous)
            continue
        alarms.append(anomalous)
        waiting.append(number)
        if way.every and len(waiting) >= way.every:
            normals, waiting = [*normals, *waiting][-way.keep :], []
    bad = [number for number, run in enumerate(course.runs) if run.bad]
    last = call(course, model, normals, bad, way.rate) if bad else []
    return {
        "later": len(alarms),
        "alarms": sum(alarms),
        "bad": len(bad),
        "found": sum(found),
        "found_at_the_end": sum(last),
    }


def read_model(folder: Path) -> Model:
    learner, _ = load_learner(folder)
    calibration = load_calibration(folder)
    if not isinstance(learner, Evidence) or calibration is None:
        raise SystemExit(f"{folder}: no calibrated model of the learner evidence")
    return Model(learner, calibration)


def prepare(machine: str, models: Path) -> Iterator[tuple[str, Course, Model]]:
    """Operations with bad runs, each with a model that has not seen it."""
    source = DATASETS["cnc"].source
    folder = None if source is None else source.find(default_data_dirs())
    if folder is None:
        raise SystemExit("the milling data are not in FEWONE_DATA")
    runs = [run for run in list_runs(folder) if run.machine == machine]
    for fold, held_out in FOLDS.items():
        model = read_model(models / f"cnc-M02-{fold}")
        for operation in held_out.test:
            of_operation = [run for run in runs if run.operation == operation]
            course = read_course(of_operation, model.learner) if any(run.bad for run in of_operation) else None
            if course is not None:
                yield f"{machine}/{operation}", course, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", choices=("M01", "M02"))
    parser.add_argument("--models", type=Path, default=Path("runs"))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--results", type=Path, default=Path("results/validation/drift.jsonl"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    courses = list(prepare(chosen.machine, chosen.models))
    for name in chosen.ways:
        way = WAYS[name]
        counts = {unit: follow(course, model, way) for unit, course, model in courses}
        row = {"machine": chosen.machine, "way": name, **vars(way), "evidence": list(EVIDENCE), "operations": counts}
        with chosen.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        shares = [one["alarms"] / one["later"] for one in counts.values()]
        sums = {key: sum(one[key] for one in counts.values()) for key in ("bad", "found", "found_at_the_end")}
        print(chosen.machine, name, f"false alarms {np.mean(shares):.1%}", sums, flush=True)


if __name__ == "__main__":
    main()
