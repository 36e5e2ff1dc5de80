"""Where normal ends: from calibration over tasks, or from the normals alone; and which examples belong together.

Speaks in anomaly logits; knows no sign of scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewone.calibration import CalibrationMap
from fewone.calibration.calibrated import LEVELS
from fewone.errors import InputError

Scores = NDArray[np.float64]

MEASURED_RATE, MOST_RATE = round(1.0 - LEVELS[-1], 6), round(1.0 - LEVELS[0], 6)
"""The rates that calibrations measure."""

LEAST_RATE = MEASURED_RATE / 10.0
"""Rates below what was measured are extrapolated this far."""


def find_threshold(
    rate: float | None, calibration: CalibrationMap | None, support_size: int, leave_one_out: Callable[[], Scores]
) -> float:
    """The logit above which an example is called anomalous; rate None: the learner's own, 0."""
    if rate is None:
        return 0.0
    if calibration is not None:
        check_carried(rate)
        return calibration.threshold(support_size, rate)
    return conformal_threshold(leave_one_out(), rate)


def check_carried(rate: float) -> None:
    """Refuse a rate that no calibration carries: far beyond the quantiles that are kept."""
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise InputError(
            f"false_alarm_rate {rate:g} is not carried by a calibration: it measured {MEASURED_RATE:g} to {MOST_RATE:g}"
            f" and is extrapolated to {LEAST_RATE:g}; ask for a rate in between, and look at the order of the scores"
        )


def find_tail_scale(calibration: CalibrationMap | None, support_size: int) -> float:
    """By how much the logit of normals grows where they become e times as rare; log-odds say 1."""
    return 1.0 if calibration is None else max(1.0, calibration.tail_scale(support_size))


def conformal_threshold(leave_one_out: Scores, rate: float) -> float:
    """The logit that a normal exceeds with a probability of about `rate`, from the K normals' logits alone."""
    rank = int(rate * (len(leave_one_out) + 1) + 1e-9)
    if rank < 1:
        raise InputError(
            f"false_alarm_rate {rate:g} from the normals alone needs {int(np.ceil(1 / rate)) - 1} of them, got"
            f" {len(leave_one_out)}; this learner carries no calibration over tasks that would allow fewer"
        )
    return float(np.sort(leave_one_out)[-rank])


def split_groups(groups: ArrayLike, count: int) -> list[NDArray[np.int64]]:
    """The rows of each group, in their order; the groups in order of first appearance."""
    names = np.asarray(groups)
    if names.shape != (count,):
        raise InputError(f"groups: one name per example expected, shape ({count},), got {names.shape}")
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    rows = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    return [rows[group] for group in np.argsort(first)]
