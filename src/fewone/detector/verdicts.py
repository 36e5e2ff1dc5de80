"""A detector and files -> what it says of each example and of each recording, as rows for people and programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewone.detector.aligned import AlignedDetector
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.recording_verdicts import RecordingVerdict, judge_recording
from fewone.detector.recordings import SeriesScores
from fewone.detector.thresholds import Scores
from fewone.detector.user_files import FileExamples
from fewone.errors import FewoneError
from fewone.files import atomic_write


@dataclass(frozen=True)
class Verdict:
    """One thing that is called normal or anomalous: a recording, one of its windows, a picture or a row of a table.

    place: the row of a table or the first time step of a window, from 0. windows: how many a recording has. worst: the
    first time step of its most anomalous window. decision: below 0 = anomalous. cause, of a recording: normal, event
    (at the worst window) or whole recording, or both; whole and event: the decision values of these two parts.
    """

    file: str
    place: int
    windows: int
    worst: int
    decision: float
    anomaly_probability: float
    anomalous: bool
    cause: str = ""
    judged: bool = True
    whole: float | None = None
    event: float | None = None


@dataclass(frozen=True)
class NotJudged:
    """A window, a row or a whole file of which nothing can be said, and why. place: None for a whole file."""

    file: str
    place: int | None
    cause: str
    judged: bool = False


@dataclass(frozen=True)
class Judged:
    """All that is said of one file. said: how it was read; notes: what is missing in it, in one line each."""

    verdicts: tuple[Verdict, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    said: str = ""
    notes: tuple[str, ...] = field(default=())


MISSING = "a value is missing or time jumps"


def judge_blocks(
    detector: FewShotDetector | AlignedDetector, blocks: Iterable[FileExamples], each_window: bool = False
) -> Judged:
    """What is said of a file that comes block by block; each_window: of every window instead of the recording."""
    if isinstance(detector, AlignedDetector):
        return _judge_aligned(detector, list(blocks), each_window)
    scores, places, left_out = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for block in blocks:
        if len(block.places):
            scores.append(detector.score_samples(block.values))
        places.append(block.places)
        left_out.append(block.not_judged)
    found = np.concatenate(scores), np.concatenate(places), np.concatenate(left_out)
    return _conclude(detector, block, *found, each_window)


def _conclude(
    detector: FewShotDetector,
    last: FileExamples,
    scores: Scores,
    places: NDArray[np.int64],
    left_out: NDArray[np.int64],
    each_window: bool,
) -> Judged:
    """scores (n,) of the examples at places (n,), positive = normal."""
    file = str(last.file)
    if last.recording and not each_window and len(scores):
        series = SeriesScores(places, scores - detector.offset_, 0, np.zeros(0))
        own = judge_recording(detector.own_recording_scorer(), -scores).decision
        probability = float(np.exp(-np.logaddexp(0.0, own)))
        verdicts = [_tell(file, detector.judge_series(series), places, probability)]
    else:
        verdicts = [
            Verdict(file, place, 1, 0, float(score - detector.offset_), float(p), bool(score < detector.offset_))
            for place, score, p in zip(places.tolist(), scores, np.exp(-np.logaddexp(0.0, scores)), strict=True)
        ]
    return _note(last, verdicts, left_out)


def _judge_aligned(detector: AlignedDetector, blocks: Sequence[FileExamples], each_window: bool) -> Judged:
    """A run is judged as a whole or not at all: every stretch has a detector of its own."""
    last = blocks[-1]
    left_out = np.concatenate([block.not_judged for block in blocks])
    if len(left_out):
        return _note(last, [], left_out)
    values = np.concatenate([block.values for block in blocks])
    places = np.concatenate([block.places for block in blocks])
    run = FileExamples(last.file, values, places, last.recording and not each_window)
    return _note(last, _judge_run(detector, run), left_out)


def _note(last: FileExamples, verdicts: Sequence[Verdict], left_out: NDArray[np.int64]) -> Judged:
    notes = []
    if not last.findings.whole:
        kind = "windows" if last.recording else "rows"
        notes.append(f"{last.file}: {last.findings}; {len(left_out)} {kind} not judged")
    left = tuple(NotJudged(str(last.file), place, MISSING) for place in left_out.tolist())
    return Judged(tuple(verdicts), left, last.said, tuple(notes))


def list_all(judged: Judged) -> list[Verdict | NotJudged]:
    return [*judged.verdicts, *judged.not_judged]


def as_json(one: Verdict | NotJudged) -> str:
    """One object on one line, the same from every command; `judged` says which of the two it is."""
    return json.dumps(asdict(one), ensure_ascii=False)


def _tell(file: str, found: RecordingVerdict, places: NDArray[np.int64], probability: float) -> Verdict:
    return Verdict(
        file,
        0,
        found.windows,
        int(places[found.worst]),
        found.decision,
        probability,
        found.decision < 0,
        cause=found.cause,
        whole=found.whole,
        event=found.event,
    )


def _judge_run(detector: AlignedDetector, examples: FileExamples) -> list[Verdict]:
    """One verdict for a run of aligned windows, or one for each of them where they are not taken as one recording."""
    expected = len(detector.stretches_)
    if len(examples.places) != expected:
        raise FewoneError(
            f"{examples.file}: {len(examples.places)} windows, the detector was fitted on runs of {expected}; give"
            f" whole runs of the same course, cut alike"
        )
    run = examples.values[None]
    if examples.recording:
        (found,) = detector.judge_runs(run)
        return [_tell(str(examples.file), found, examples.places, float(detector.anomaly_probability(run)[0]))]
    scores, file = detector.score_stretches(run)[0], str(examples.file)
    decisions = scores - [stretch.offset_ for stretch in detector.stretches_]
    probabilities = np.exp(-np.logaddexp(0.0, scores))
    return [
        Verdict(file, int(place), 1, 0, float(decision), float(probability), bool(decision < 0))
        for place, decision, probability in zip(examples.places, decisions, probabilities, strict=True)
    ]


def as_csv(verdicts: Iterable[Verdict | NotJudged], header: bool = True) -> str:
    """One line per verdict, the columns named after its fields; what was not judged has empty cells."""
    names = [field.name for field in fields(Verdict)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(names)
    writer.writerows([getattr(verdict, name, None) for name in names] for verdict in verdicts)
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
