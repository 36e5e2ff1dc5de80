"""Ten good runs of one month, then the later months: how many false alarms, and what adding confirmed runs brings.

python benchmarks/drift.py M01 --results results/validation/drift.jsonl
python benchmarks/drift.py M02 --ways never chosen --results results/validation/drift.jsonl

A machine's operation starts with ten good runs of its first month that has as many. Every later run is judged in the
order of time, good and bad, and then looked at by a person: each `every` runs that were confirmed as good are added to
the normals (`partial_fit`), of which the newest `keep` stay; bad runs are never added. Bad runs of before the start are
judged first. On M01 the model was learned without the operation (the parts of benchmarks/vibration.py); the way to use
it was chosen there and frozen as `chosen`, then M02 was run once, with the model learned from all of M01.
Runs are judged as AlignedDetector judges them (mean over six stretches and worst stretch), without the envelope, which
can only add alarms; stretches are standardised by the first ten.
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

from fewone.datasets import DATASETS, load
from fewone.datasets.cnc_milling import STRETCHES, Run, list_runs, read_stretches
from fewone.datasets.sources import default_data_dirs
from fewone.detector.recording_verdicts import RecordingScorer, find_limits, judge_recording
from fewone.episodes import Moments
from fewone.learners.evidence_kinds import Features
from fewone.vibration_making import EVIDENCE, Learned, build, learn, look_at, observe, pick, teach_parts
from vibration import leave_out

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
    "each": Way(every=1),
    "each, newest 20": Way(every=1, keep=20),
    "each, 1 %": Way(rate=0.01, every=1),
    "each, 0.5 %": Way(rate=0.005, every=1),
    "every 5": Way(every=5),
    "every 5, 1 %": Way(rate=0.01, every=5),
    "every 5, 0.5 %": Way(rate=0.005, every=5),
}
"""Those that were tried on M01."""


@dataclass(frozen=True)
class Course:
    """All runs of an operation in the order of time, as the views see each stretch; start: the first of the ten."""

    runs: tuple[Run, ...]
    stretches: tuple[dict[str, Features], ...]
    start: tuple[int, ...]


def find_time(run: Run) -> tuple[int, bool, str]:
    """Month, bad runs last, number within the month."""
    month = next(number for number, name in enumerate(MONTHS) if f"_{name}_" in run.path.name)
    return month, run.bad, run.path.name


@torch.no_grad()
def read_course(runs: Sequence[Run]) -> Course | None:
    """None: no month has ten good runs."""
    ordered = sorted(runs, key=find_time)
    good = [number for number, run in enumerate(ordered) if not run.bad]
    months = [list(group) for _, group in groupby(good, key=lambda number: find_time(ordered[number])[0])]
    first = next((tuple(month[:START]) for month in months if len(month) >= START), None)
    if first is None:
        return None
    values = torch.from_numpy(np.stack([read_stretches(run.path) for run in ordered])).to(torch.float32)
    learner, seen = build(), []
    for stretch in range(STRETCHES):
        inputs = values[:, stretch]
        seen.append(learner.look(Moments.of(inputs[list(first)]).apply(inputs).unsqueeze(0)))
    return Course(tuple(ordered), tuple(seen), first)


@torch.no_grad()
def call(course: Course, learned: Learned, normals: Sequence[int], queries: Sequence[int], rate: float) -> list[bool]:
    """Which of these runs are called anomalous by a detector of these normals."""
    learner, calibration, size = learned.learner, learned.calibration, len(normals)
    knot = calibration.at(size)
    threshold = calibration.threshold(size, rate)
    scorer = RecordingScorer(find_limits(threshold, rate, calibration, size, 1.0))
    logits: list[Tensor] = []
    for views in course.stretches:
        seen = observe(learner, pick(views, torch.tensor(normals)), pick(views, torch.tensor(queries)))
        logits.append(knot.slope * (learner.judge(seen)[0].double() - knot.threshold))
    return [judge_recording(scorer, row).decision < 0 for row in torch.stack(logits, 1).numpy()]


def follow(course: Course, learned: Learned, way: Way) -> dict[str, Any]:
    """Counts over an operation's time: later good runs, false alarms among them, bad runs, and those found."""
    normals, waiting = list(course.start), list[int]()
    first = course.start[-1]
    alarms, found = [], []
    before = [number for number, run in enumerate(course.runs) if run.bad and number < first]
    if before:
        found += call(course, learned, normals, before, way.rate)
    for number in range(first + 1, len(course.runs)):
        (anomalous,) = call(course, learned, normals, [number], way.rate)
        if course.runs[number].bad:
            found.append(anomalous)
            continue
        alarms.append(anomalous)
        waiting.append(number)
        if way.every and len(waiting) >= way.every:
            normals, waiting = [*normals, *waiting][-way.keep :], []
    bad = [number for number, run in enumerate(course.runs) if run.bad]
    last = call(course, learned, normals, bad, way.rate) if bad else []
    return {
        "later": len(alarms),
        "alarms": sum(alarms),
        "bad": len(bad),
        "found": sum(found),
        "found_at_the_end": sum(last),
    }


def prepare(machine: str) -> Iterator[tuple[str, Course, Learned]]:
    """Operations with bad runs, each with a model that has not seen it."""
    source = DATASETS["cnc"].source
    folder = None if source is None else source.find(default_data_dirs())
    if folder is None:
        raise SystemExit("the milling data are not in FEWONE_DATA")
    splits, learner = load("cnc/M02"), build()
    tasks = [look_at(task, learner) for task in (*splits.train, *splits.validation)]
    models: dict[str, Learned] = {}
    if machine == "M01":
        for left, teaching in leave_out(tasks):
            learned = learn([one for one in tasks if one.unit not in left], teaching)
            models |= dict.fromkeys(left, learned)
    else:
        learned = learn(tasks, teach_parts(tasks))
    for operation, runs in groupby(list_runs(folder), key=lambda run: (run.machine, run.operation)):
        of_operation, unit = list(runs), "/".join(operation)
        if operation[0] != machine or (machine == "M01" and unit not in models):
            continue
        course = read_course(of_operation) if any(run.bad for run in of_operation) else None
        if course is not None:
            yield unit, course, models.get(unit, learned)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", choices=("M01", "M02"))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--results", type=Path, default=Path("results/validation/drift.jsonl"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    courses = list(prepare(chosen.machine))
    for name in chosen.ways:
        way = WAYS[name]
        counts = {unit: follow(course, learned, way) for unit, course, learned in courses}
        row = {"machine": chosen.machine, "way": name, **vars(way), "evidence": EVIDENCE, "operations": counts}
        with chosen.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        shares = [one["alarms"] / one["later"] for one in counts.values()]
        sums = {key: sum(one[key] for one in counts.values()) for key in ("bad", "found", "found_at_the_end")}
        print(chosen.machine, name, f"false alarms {np.mean(shares):.1%}", sums, flush=True)


if __name__ == "__main__":
    main()
