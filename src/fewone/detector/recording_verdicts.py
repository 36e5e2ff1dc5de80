"""The windows of one recording -> one verdict: wrong as a whole, or an event in some window. One false-alarm rate.

Let z_1 ... z_n be the anomaly logits of a recording's windows, a the false-alarm rate that is asked for, and

    whole = T(n') - mean_i z_i      T(m): what the mean of m normal windows exceeds with a probability of a / 2
    event = t(n)  - max_i z_i       t(n): what the largest of n normal windows exceeds with a probability of a / 2
    decision = min(whole, event)    above 0 normal, below 0 anomalous; its sum of rates is a, whatever n is.

A single window has no two parts: T(1) = t(1) is the threshold of windows at the rate a. T and t come from the
calibration over held-out tasks (the quantiles of means, and of maxima or of single normals, the rate shared out over
the windows, which holds however they depend on each other); beyond what was measured tails are exponential,
t(n) = t(1) + scale log n, which is also the rule where no calibration is: logits are log-odds, and n chances of an
event are log n. Windows that follow each other say less than as many independent ones. With r the lag-one correlation
of the logits (corrected for its bias, at least 0),

    n' = max(1, n (1 - r) / (1 + r)).

Where no rate is asked for, the mean is held against the learner's own threshold 0, and an event is as rare among
the windows of a normal recording as a logit above 0 is for a single normal. Where that is more than MOST_ALARMS of the
normals, whose many windows are no reason for as many alarms, recordings are judged at that rate.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewone.calibration import CalibrationMap
from fewone.detector.recording_limits import KNOTS, STRONGEST, Limits, RecordingVerdict

MOST_ALARMS = 0.1
"""The share of normal recordings of several windows that may be anomalous where no rate is asked for."""


def find_limits(
    threshold: float, rate: float | None, calibration: CalibrationMap | None, support_size: int, scale: float
) -> Limits:
    """threshold: of single windows, above which they are anomalous; scale: of the tail of normals, where not known."""
    if calibration is None:
        whole = [threshold] * len(KNOTS)
        event = [threshold + scale * math.log(count) for count in KNOTS]
        return Limits(tuple(whole), tuple(event))
    single = calibration.find_rate(support_size, threshold)
    if rate is None and single > MOST_ALARMS:
        rate = MOST_ALARMS
    if rate is None:
        whole = [threshold] * len(KNOTS)
        event = [calibration.peak_threshold(support_size, single, count) for count in KNOTS]
    else:
        half = rate / 2.0
        whole = [calibration.threshold(support_size, half, count) for count in KNOTS]
        event = [calibration.peak_threshold(support_size, half, count) for count in KNOTS]
    # A single window has one part, with all of the rate; more windows never have a lower limit of their largest.
    event = np.maximum.accumulate([threshold, *event[1:]]).tolist()
    return Limits((threshold, *whole[1:]), tuple(event))


class RecordingScorer(nn.Module):
    """Logits (..., n) of the windows of recordings -> whole and event, (..., 2): above 0 normal. Elementary functions
    alone, so that the export has it.
    """

    knots: Tensor
    whole: Tensor
    event: Tensor

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.register_buffer("knots", torch.tensor(KNOTS, dtype=torch.float64).log())
        self.register_buffer("whole", torch.tensor(limits.whole, dtype=torch.float64))
        self.register_buffer("event", torch.tensor(limits.event, dtype=torch.float64))

    def forward(self, logits: Tensor) -> Tensor:
        wide = logits.double()
        count = torch.ones_like(wide).sum(-1, keepdim=True)
        mean = wide.sum(-1, keepdim=True) / count
        whole = self._interpolate(self.whole, find_effective_size(wide - mean, count)) - mean
        event = self._interpolate(self.event, count) - wide.amax(-1, keepdim=True)
        return torch.cat([whole, event], -1)

    def limit_whole(self, count: int) -> float:
        """T(count)."""
        return float(self._interpolate(self.whole, self.whole.new_tensor([count])))

    def _interpolate(self, values: Tensor, count: Tensor) -> Tensor:
        """values at KNOTS -> at count (..., 1), over its logarithm; constant beyond the ends."""
        low, high = self.knots[:-1], self.knots[1:]
        shares = ((count.log() - low) / (high - low)).clamp(0.0, 1.0)
        return values[0] + (shares * (values[1:] - values[:-1])).sum(-1, keepdim=True)


def find_effective_size(departures: Tensor, count: Tensor) -> Tensor:
    """n' (..., 1): departures (..., n) of the logits from their mean, in the order of time."""
    squares = departures.square().sum(-1, keepdim=True)
    squares = torch.where(squares > 0, squares, torch.ones_like(squares))
    # With a zero at its end the row is never empty, over which runtimes differ.
    following = torch.cat([departures[..., 1:], torch.zeros_like(departures[..., :1])], -1)
    found = (departures * following).sum(-1, keepdim=True) / squares
    # Kendall: the estimate from n values lies (1 + 4 r) / n too low.
    correlation = (found + (1.0 + 4.0 * found.clamp_min(0.0)) / count).clamp(0.0, STRONGEST)
    return (count * (1.0 - correlation) / (1.0 + correlation)).clamp_min(1.0)


@torch.inference_mode()
def judge_recording(scorer: RecordingScorer, logits: NDArray[np.float64]) -> RecordingVerdict:
    """The verdict on windows with these logits (n,), in the order of time."""
    whole, event = scorer(torch.from_numpy(np.ascontiguousarray(logits))).tolist()
    return RecordingVerdict(min(whole, event), whole, event, int(logits.argmax()), len(logits))
