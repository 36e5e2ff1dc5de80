"""A fitted detector and one thing -> decisions, in columns. Enters: examples or a recording. Leaves: `Judged`.

Speaks scikit-learn's sign, as the detector does: below 0 is anomalous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.recordings import SeriesScores, windows
from fewone.errors import InputError

Floats = NDArray[np.float64]
Kind = Literal["example", "recording", "picture", "stream"]

LARGEST_FEEDBACK = 8
"""A recording that was normal joins the support with its so many most anomalous windows."""
LARGEST_EXPLAINED = 8
"""Of a recording so many of its most anomalous windows are explained."""


@dataclass(frozen=True)
class Thing:
    """Something to be scored: examples (n, *shape), each with a decision, or a recording (length, channels) with one.

    places (n,): where each example lies in its file or stream (None: counted from 0).
    """

    source: str
    kind: Kind
    values: NDArray[Any]
    places: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Judged:
    """The decisions on a thing, one entry each per decision, and of a recording the scores of its windows and steps."""

    thing: Thing
    places: NDArray[np.int64]
    windows: NDArray[np.int64]
    worst: NDArray[np.int64]
    scores: Floats
    decisions: Floats
    starts: NDArray[np.int64] | None = None
    window_scores: Floats | None = None
    steps: Floats | None = None

    @property
    def probabilities(self) -> Floats:
        return np.exp(-np.logaddexp(0.0, self.scores))

    @property
    def anomalous(self) -> NDArray[np.bool_]:
        return self.decisions < 0

    def rows(self) -> list[dict[str, Any]]:
        """One entry per decision, by the names that the database and the answers have for it."""
        columns = {
            "place": self.places,
            "windows": self.windows,
            "worst": self.worst,
            "score": self.scores,
            "decision": self.decisions,
            "probability": self.probabilities,
            "anomalous": self.anomalous,
        }
        entries = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, entry, strict=True)) for entry in entries]


def example_shape(detector: FewShotDetector) -> tuple[int, ...]:
    """Of one example, channels first: of the support where there is one, else of the model (0: any size)."""
    if hasattr(detector, "support_"):
        return tuple(detector.support_.values.shape[1:])
    if detector.card is None:
        raise InputError("this is a detector of plain tables; the service serves models of series and pictures")
    return detector.card.shape


def arrange_examples(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Examples as people lay them out -> (n, *shape), channels first; what is laid out otherwise stays as it is."""
    channels, *space = shape
    if channels == 1 and values.shape[1:] == tuple(space):
        return values[:, None]
    if len(space) == 2 and values.shape[1:] == (*space, channels):
        return np.moveaxis(values, -1, 1)
    return values


def judge(detector: FewShotDetector, thing: Thing, stride: int | None = None) -> Judged:
    """Score it; stride: of the windows of a recording (default: the window)."""
    if thing.kind == "recording":
        return _judge_recording(detector, thing, stride)
    scores = detector.score_samples(thing.values)
    count = len(scores)
    places = np.arange(count) if thing.places is None else thing.places
    return Judged(thing, places, np.ones(count, np.int64), places, scores, scores - detector.offset_)


def _judge_recording(detector: FewShotDetector, thing: Thing, stride: int | None) -> Judged:
    found = detector.score_series(thing.values, stride)
    raw = found.windows + detector.offset_
    return Judged(
        thing,
        np.zeros(1, np.int64),
        np.array([len(raw)]),
        found.starts[[int(raw.argmin())]],
        np.array([raw.mean()]),
        np.array([detector.decide(found)]),
        found.starts,
        raw,
        found.steps,
    )


def decide_again(detector: FewShotDetector, starts: NDArray[np.int64], window_scores: Floats) -> float:
    """The decision on a recording whose windows were scored before, at this detector's threshold."""
    return detector.decide(SeriesScores(starts, window_scores - detector.offset_, 0, np.zeros(0)))


def pick_windows(
    values: NDArray[Any], starts: NDArray[np.int64], window_scores: Floats, length: int, count: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The `count` most anomalous windows of a recording (length, channels): (m, channels, window) and their starts."""
    chosen = np.sort(starts[np.argsort(window_scores)[:count]])
    return np.stack([values[start : start + length].T for start in chosen]), chosen


def cut(values: NDArray[Any], length: int, stride: int | None = None) -> NDArray[Any]:
    """A recording (length, channels) as examples (n, channels, window)."""
    return np.ascontiguousarray(windows(values, length, stride))


def explain_recording(
    explain: Callable[[int, NDArray[Any]], Floats],
    values: NDArray[Any],
    starts: NDArray[np.int64],
    window_scores: Floats,
    length: int,
    count: int = LARGEST_EXPLAINED,
) -> Floats:
    """Where the anomaly is in a recording (length, channels), of its shape: the maps of its most anomalous windows.

    explain: where a window begins and its values (channels, window) -> its map.
    """
    chosen, firsts = pick_windows(values, starts, window_scores, length, count)
    found = np.zeros(values.shape)
    for start, window in zip(firsts.tolist(), chosen, strict=True):
        found[start : start + length] = np.maximum(found[start : start + length], explain(start, window).T)
    return found
