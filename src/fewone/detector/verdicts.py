"""A detector and files -> what it says of each example and of each recording, as rows for people and programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from fewone.detector.aligned import AlignedDetector
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.user_files import FileExamples
from fewone.errors import FewoneError
from fewone.files import atomic_write


@dataclass(frozen=True)
class Verdict:
    """One thing that is called normal or anomalous: a recording, one of its windows, a picture or a row of a table.

    place: the row of a table or the first time step of a window, from 0. windows: how many windows of a recording were
    averaged. worst: the first time step of its most anomalous window. decision: below 0 = anomalous.
    """

    file: str
    place: int
    windows: int
    worst: int
    decision: float
    anomaly_probability: float
    anomalous: bool


def judge_file(detector: FewShotDetector | AlignedDetector, examples: FileExamples) -> list[Verdict]:
    """One verdict for a recording, or one for each example of a table."""
    if isinstance(detector, AlignedDetector):
        return _judge_run(detector, examples)
    groups = np.zeros(len(examples.places), np.int64) if examples.recording else np.arange(len(examples.places))
    decisions = detector.decision_function(examples.values, groups=groups)
    probabilities = detector.anomaly_probability(examples.values, groups=groups)
    if examples.recording:
        worst = int(examples.places[detector.score_samples(examples.values).argmin()])
        places, counts, worsts = [0], [len(examples.places)], [worst]
    else:
        places, counts, worsts = examples.places.tolist(), [1] * len(decisions), [0] * len(decisions)
    return [
        Verdict(str(examples.file), place, count, low, float(decision), float(probability), bool(decision < 0))
        for place, count, low, decision, probability in zip(
            places, counts, worsts, decisions, probabilities, strict=True
        )
    ]


def _judge_run(detector: AlignedDetector, examples: FileExamples) -> list[Verdict]:
    """One verdict for a run of aligned windows, or one for each of them where they are not taken as one recording."""
    expected = len(detector.stretches_)
    if len(examples.places) != expected:
        raise FewoneError(
            f"{examples.file}: {len(examples.places)} windows, the detector was fitted on runs of {expected}; give"
            f" whole runs of the same course, cut alike"
        )
    run = examples.values[None]
    scores, file = detector.score_stretches(run)[0], str(examples.file)
    if examples.recording:
        decision, probability = float(detector.decision_function(run)[0]), float(detector.anomaly_probability(run)[0])
        worst = int(examples.places[scores.argmin()])
        return [Verdict(file, 0, expected, worst, decision, probability, decision < 0)]
    decisions = scores - [stretch.offset_ for stretch in detector.stretches_]
    probabilities = np.exp(-np.logaddexp(0.0, scores))
    return [
        Verdict(file, int(place), 1, 0, float(decision), float(probability), bool(decision < 0))
        for place, decision, probability in zip(examples.places, decisions, probabilities, strict=True)
    ]


def as_csv(verdicts: Iterable[Verdict], header: bool = True) -> str:
    """One line per verdict, the columns named after its fields."""
    names = [field.name for field in fields(Verdict)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(names)
    writer.writerows([getattr(verdict, name) for name in names] for verdict in verdicts)
    return text.getvalue()


def write_text(path: Path, text: str) -> None:
    """A file for the user, written aside and renamed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
    except OSError as error:
        raise FewoneError(f"{path}: cannot be written ({error.strerror}); give another place") from error


def count_anomalous(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.anomalous for verdict in verdicts)
