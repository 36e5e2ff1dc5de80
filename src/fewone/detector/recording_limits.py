"""What is said of a recording, and the same rule as `recording_verdicts` in numpy, for where torch is not.

The torch module stays the reference: a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KNOTS = tuple(2**power for power in range(21))
"""Limits are kept for recordings of so many windows; between them they are interpolated over log n."""

STRONGEST = 0.98
"""The lag-one correlation is taken to be no higher."""


@dataclass(frozen=True)
class RecordingVerdict:
    """What is said of one recording.

    Attributes
    ----------
    decision
        The smaller of the two parts; above 0 normal, below 0 anomalous.
    whole
        The part of the mean over all windows.
    event
        The part of the most anomalous window.
    worst
        The number, from 0, of that window among those of the recording.
    windows
        How many there are.
    """

    decision: float
    whole: float
    event: float
    worst: int
    windows: int

    @property
    def cause(self) -> str:
        """`normal`, `event`, `whole recording`, or both of these where both parts are below 0."""
        if self.decision >= 0:
            return "normal"
        parts = [name for name, part in (("whole recording", self.whole), ("event", self.event)) if part < 0]
        return " and ".join(parts) if self.windows > 1 else "window"

    def __str__(self) -> str:
        if self.decision >= 0:
            return f"normal {self.decision:+.2f} over {self.windows} windows"
        where = f"event at window {self.worst}" if self.event < 0 else ""
        whole = "whole recording" if self.whole < 0 else ""
        return f"ANOMALOUS {self.decision:+.2f}: {' and '.join(part for part in (whole, where) if part)}"


@dataclass(frozen=True)
class Limits:
    """T and t at KNOTS."""

    whole: tuple[float, ...]
    event: tuple[float, ...]


def judge_by_limits(limits: Limits, logits: NDArray[np.float64]) -> RecordingVerdict:
    """The verdict on windows with these logits (n,), in the order of time."""
    count, mean = len(logits), float(logits.sum() / len(logits))
    size = find_effective_count(logits - mean)
    knots = np.log(KNOTS)
    whole = float(np.interp(np.log(size), knots, limits.whole)) - mean
    event = float(np.interp(np.log(count), knots, limits.event)) - float(logits.max())
    return RecordingVerdict(min(whole, event), whole, event, int(logits.argmax()), count)


def find_effective_count(departures: NDArray[np.float64]) -> float:
    """n' of logits by their departures (n,) from their mean."""
    count, squares = len(departures), float(np.square(departures).sum())
    found = float((departures[:-1] * departures[1:]).sum()) / (squares if squares > 0 else 1.0)
    correlation = min(max(found + (1.0 + 4.0 * max(found, 0.0)) / count, 0.0), STRONGEST)
    return max(1.0, count * (1.0 - correlation) / (1.0 + correlation))
