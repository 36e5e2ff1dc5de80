"""A detector and files -> what it says of each example and of each recording, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fewone.detector.aligned import AlignedDetector
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.recording_verdicts import judge_recording
from fewone.detector.recordings import SeriesScores
from fewone.detector.thresholds import Scores
from fewone.errors import FewoneError
from fewone.file_scoring.user_files import FileExamples
from fewone.file_scoring.verdict_rows import Judged, Verdict, note_missing, tell_recording


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
        verdicts = [tell_recording(file, detector.judge_series(series), places, probability)]
    else:
        verdicts = [
            Verdict(file, place, 1, 0, float(score - detector.offset_), float(p), bool(score < detector.offset_))
            for place, score, p in zip(places.tolist(), scores, np.exp(-np.logaddexp(0.0, scores)), strict=True)
        ]
    return note_missing(last, verdicts, left_out)


def _judge_aligned(detector: AlignedDetector, blocks: Sequence[FileExamples], each_window: bool) -> Judged:
    """A run is judged as a whole or not at all: every segment has a detector of its own."""
    last = blocks[-1]
    left_out = np.concatenate([block.not_judged for block in blocks])
    if len(left_out):
        return note_missing(last, [], left_out)
    values = np.concatenate([block.values for block in blocks])
    places = np.concatenate([block.places for block in blocks])
    run = FileExamples(last.file, values, places, last.recording and not each_window)
    return note_missing(last, _judge_run(detector, run), left_out)


def _judge_run(detector: AlignedDetector, examples: FileExamples) -> list[Verdict]:
    """One verdict for a run of aligned windows, or one for each of them where they are not taken as one recording."""
    expected = len(detector.segments_)
    if len(examples.places) != expected:
        raise FewoneError(
            f"{examples.file}: {len(examples.places)} windows, the detector was fitted on runs of {expected}; give"
            f" whole runs of the same operation, cut alike"
        )
    run = examples.values[None]
    if examples.recording:
        (found,) = detector.judge_runs(run)
        return [tell_recording(str(examples.file), found, examples.places, float(detector.anomaly_probability(run)[0]))]
    scores, file = detector.score_segments(run)[0], str(examples.file)
    decisions = scores - [segment.offset_ for segment in detector.segments_]
    probabilities = np.exp(-np.logaddexp(0.0, scores))
    return [
        Verdict(file, int(place), 1, 0, float(decision), float(probability), bool(decision < 0))
        for place, decision, probability in zip(examples.places, decisions, probabilities, strict=True)
    ]
