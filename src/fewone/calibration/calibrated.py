"""The map from score to log-odds, and a learner behind it."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fewone.episodes import NORMAL, Examples
from fewone.errors import FewoneError
from fewone.learners import Scorer

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
"""The quantiles of the normals' logits that are kept."""


class Adapting(Protocol):
    """All that calibration asks of a learner or a baseline."""

    def adapt(self, support: Examples) -> Scorer: ...


@runtime_checkable
class LeavingOneOut(Protocol):
    """A learner with a shorter way to score normals of one support by the rest than to adapt to every rest."""

    def leave_one_out(self, support: Examples, left: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class NormalQuantiles:
    """Quantiles, at LEVELS, of the mean (or of the largest) calibrated logit of `group` normals."""

    group: int
    quantiles: tuple[float, ...]


@dataclass(frozen=True)
class CalibrationPoint:
    """What supports of k normals need: log-odds = slope * (score - threshold - support_weight * (own - reference)).

    own: the mean score of the support's normals, each scored by the others; reference: its mean over held-out tasks;
    support_weight: how far the threshold goes along when a support departs from it (0 for k = 1, which has no others).
    mean_quantiles: of the mean logit of groups of normals; largest_quantiles: of the largest logit of groups of more
    than one.
    """

    k: int
    slope: float
    threshold: float
    support_weight: float
    reference: float
    mean_quantiles: tuple[NormalQuantiles, ...] = ()
    largest_quantiles: tuple[NormalQuantiles, ...] = ()


@dataclass(frozen=True)
class CalibrationMap:
    """Points in the order of k; between them everything is interpolated over log k, beyond them it stays."""

    points: tuple[CalibrationPoint, ...]

    def at(self, k: int) -> CalibrationPoint:
        """The calibration point for k normals."""
        if not self.points:
            raise FewoneError("the calibration holds no point; calibrate the learner again")
        after = bisect_left([point.k for point in self.points], k)
        if after == 0:
            return replace(self.points[0], k=k)
        if after == len(self.points):
            return replace(self.points[-1], k=k)
        low, high = self.points[after - 1], self.points[after]
        share = math.log(k / low.k) / math.log(high.k / low.k)
        numbers = {
            field.name: (1 - share) * getattr(low, field.name) + share * getattr(high, field.name)
            for field in fields(CalibrationPoint)
            if field.name not in ("k", "mean_quantiles", "largest_quantiles")
        }
        means = _mix(low.mean_quantiles, high.mean_quantiles, share)
        largest = _mix(low.largest_quantiles, high.largest_quantiles, share)
        return CalibrationPoint(k=k, mean_quantiles=means, largest_quantiles=largest, **numbers)

    def threshold(self, k: int, false_alarm_rate: float, group: int = 1) -> float:
        """The logit above which a share `false_alarm_rate` of normals (of the means of `group` of them) lies.

        Between the kept quantiles the log of the rate is interpolated; beyond the last one its slope goes on.
        """
        _check_rate(false_alarm_rate)
        known = [one for one in self._find_quantiles(k) if one.group <= group]
        return _find_logit(known[-1].quantiles, false_alarm_rate)

    def peak_threshold(self, k: int, false_alarm_rate: float, group: int) -> float:
        """The logit that the largest of `group` normals exceeds with a probability of at most `false_alarm_rate`.

        From the largest groups whose maximum was measured, the rate shared out among so many of them (a bound that
        holds however the normals depend on each other); from single normals where no maximum was measured. Beyond
        what was measured the tail is exponential, at the larger of its two slopes.
        """
        _check_rate(false_alarm_rate)
        known = [*self._find_quantiles(k)[:1], *(one for one in self.at(k).largest_quantiles if one.group <= group)][-1]
        rate = false_alarm_rate * min(1.0, known.group / group)
        last = 1.0 - LEVELS[-1]
        if rate >= last:
            return _find_logit(known.quantiles, rate)
        return known.quantiles[-1] + self.tail_scale(k) * math.log(last / rate)

    def tail_scale(self, k: int) -> float:
        """By how much the logit of single normals grows where they become e times as rare."""
        quantiles = self._find_quantiles(k)[0].quantiles
        wide = (quantiles[-1] - quantiles[2]) / math.log((1 - LEVELS[2]) / (1 - LEVELS[-1]))
        steep = (quantiles[-1] - quantiles[-2]) / math.log((1 - LEVELS[-2]) / (1 - LEVELS[-1]))
        return max(wide, steep, 1e-3)

    def find_rate(self, k: int, logit: float) -> float:
        """The share of single normals above a logit; at most a half, and never 0."""
        quantiles = self._find_quantiles(k)[0].quantiles
        if logit >= quantiles[-1]:
            share = (1 - LEVELS[-1]) * math.exp((quantiles[-1] - logit) / self.tail_scale(k))
            return max(share, sys.float_info.min)
        after = bisect_left(quantiles, logit)
        if after == 0:
            return 0.5
        share = (logit - quantiles[after - 1]) / max(quantiles[after] - quantiles[after - 1], 1e-12)
        return math.exp((1 - share) * math.log(1 - LEVELS[after - 1]) + share * math.log(1 - LEVELS[after]))

    def _find_quantiles(self, k: int) -> tuple[NormalQuantiles, ...]:
        found = self.at(k).mean_quantiles
        if not found:
            raise FewoneError("the calibration holds no quantiles of normals; calibrate the learner again")
        return found


def _check_rate(false_alarm_rate: float) -> None:
    if not 0 < false_alarm_rate < 1:
        raise FewoneError(f"the false-alarm rate is {false_alarm_rate}: a number between 0 and 1 is needed")


def _find_logit(quantiles: Sequence[float], rate: float) -> float:
    """Interpolated over the log of the rate between the kept quantiles; beyond the last one its slope goes on."""
    rates = [-math.log(1 - level) for level in LEVELS]
    wanted = -math.log(rate)
    after = min(max(bisect_left(rates, wanted), 1), len(rates) - 1)
    share = (wanted - rates[after - 1]) / (rates[after] - rates[after - 1])
    return quantiles[after - 1] + share * (quantiles[after] - quantiles[after - 1])


def _mix(low: Sequence[NormalQuantiles], high: Sequence[NormalQuantiles], share: float) -> tuple[NormalQuantiles, ...]:
    """Between two points, the groups that both have."""
    return tuple(
        NormalQuantiles(
            one.group, tuple((1 - share) * a + share * b for a, b in zip(one.quantiles, two.quantiles, strict=True))
        )
        for one, two in zip(low, high, strict=False)
    )


def mix_calibrations(own: CalibrationMap, start: CalibrationMap, share: float) -> CalibrationMap:
    """Between two maps at every K that either knows: share of `own`, 1 - share of `start`, slopes in their logarithm.

    Quantiles of groups that one of them alone has are its own.

    >>> few = CalibrationMap((CalibrationPoint(5, slope=1.0, threshold=2.0, support_weight=0.0, reference=0.0),))
    >>> many = CalibrationMap((CalibrationPoint(5, slope=4.0, threshold=0.0, support_weight=0.0, reference=0.0),))
    >>> mix_calibrations(few, many, 0.5).at(5).slope, mix_calibrations(few, many, 0.5).at(5).threshold
    (2.0, 1.0)
    """
    points = []
    for k in sorted({point.k for one in (own, start) for point in one.points}):
        mine, theirs = own.at(k), start.at(k)
        numbers = {
            name: share * getattr(mine, name) + (1 - share) * getattr(theirs, name)
            for name in ("threshold", "support_weight", "reference")
        }
        slope = math.exp(share * math.log(mine.slope) + (1 - share) * math.log(theirs.slope))
        means = _join(mine.mean_quantiles, theirs.mean_quantiles, share)
        largest = _join(mine.largest_quantiles, theirs.largest_quantiles, share)
        points.append(CalibrationPoint(k, slope, mean_quantiles=means, largest_quantiles=largest, **numbers))
    return CalibrationMap(tuple(points))


def _join(
    own: Sequence[NormalQuantiles], start: Sequence[NormalQuantiles], share: float
) -> tuple[NormalQuantiles, ...]:
    """In the order of the groups; those that both have are mixed."""
    mine, theirs = {one.group: one for one in own}, {one.group: one for one in start}
    mixed = {group: _mix([theirs[group]], [mine[group]], share)[0] for group in mine.keys() & theirs.keys()}
    return tuple(one for _, one in sorted({**theirs, **mine, **mixed}.items()))


class CalibratedScorer(Scorer):
    """A scorer's logits times a slope minus an offset, (T, 1) each."""

    slope: Tensor
    offset: Tensor

    def __init__(self, scorer: Scorer, slope: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.scorer = scorer
        self.register_buffer("slope", slope)
        self.register_buffer("offset", offset)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.calibrate(self.scorer(inputs))

    def calibrate(self, logits: Tensor) -> Tensor:
        """The scorer's own logits (T, n) -> log-odds (T, n)."""
        return logits * self.slope - self.offset


class Calibrated(nn.Module):
    """A learner whose scores are log-odds, true over tasks: the same seam as the learner's own."""

    def __init__(self, learner: Adapting, calibration: CalibrationMap) -> None:
        super().__init__()
        self.learner = learner
        self.calibration = calibration

    def adapt(self, support: Examples) -> CalibratedScorer:
        scorer = self.learner.adapt(support)
        slopes, offsets = [], []
        for task in range(len(support)):
            one = support[task : task + 1]
            point = self.calibration.at(max(1, int((one.labels == NORMAL).sum())))
            weight, own = point.support_weight, torch.tensor(point.reference)
            if weight:
                own = score_leaving_one_out(self.learner, one).mean()
            shift = 0.0 if own.isnan() else weight * (float(own) - point.reference)
            slopes.append(point.slope)
            offsets.append(point.slope * (point.threshold + shift))
        return CalibratedScorer(scorer, _column(slopes, support), _column(offsets, support))


def _column(values: list[float], support: Examples) -> Tensor:
    return support.inputs.new_tensor(values).unsqueeze(-1)


def score_leaving_one_out(learner: Adapting, support: Examples, folds: int = 10) -> Tensor:
    """What a learner says of a support's normals (of `folds` of them), each scored by the rest: (1, K) -> (folds,).

    Empty for a single normal, which has no others.
    """
    normal = (support.labels[0] == NORMAL).nonzero().flatten()
    if len(normal) < 2:
        return support.inputs.new_zeros(0)
    left = normal[torch.linspace(0, len(normal) - 1, min(folds, len(normal))).round().to(torch.int64)]
    if isinstance(learner, LeavingOneOut):
        with torch.no_grad():
            return learner.leave_one_out(support, left)
    everything = torch.arange(support.labels.shape[1], device=left.device)
    rest = torch.stack([everything[everything != position] for position in left])
    with torch.no_grad():
        scorer = learner.adapt(Examples.of(support.inputs[0][rest], support.labels[0][rest]))
        scores: Tensor = scorer(support.inputs[0][left].unsqueeze(1))
    return scores.squeeze(1)
