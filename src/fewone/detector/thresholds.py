"""Where normal ends: from calibration over tasks, or from the normals alone. Also scores of groups of examples.

Speaks in anomaly logits; knows no sign of scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewone.calibration import CalibrationMap
from fewone.errors import InputError

Scores = NDArray[np.float64]


def find_threshold(
    rate: float | None, calibration: CalibrationMap | None, support_size: int, leave_one_out: Callable[[], Scores]
) -> float:
    """The logit above which an example is called anomalous; rate None: the learner's own, 0."""
    if rate is None:
        return 0.0
    if calibration is not None:
        return calibration.threshold(support_size, rate)
    return conformal_threshold(leave_one_out(), rate)


def find_group_thresholds(
    threshold: float,
    rate: float | None,
    calibration: CalibrationMap | None,
    support_size: int,
    sizes: NDArray[np.int64],
) -> Scores:
    """The same for the mean logit of groups of these sizes: six windows at 5 % are not one recording at 5 %."""
    if rate is None or calibration is None:
        return np.full(len(sizes), threshold)
    found = {size: calibration.threshold(support_size, rate, size) for size in set(sizes.tolist())}
    return np.array([found[size] for size in sizes.tolist()])


def conformal_threshold(leave_one_out: Scores, rate: float) -> float:
    """The logit that a normal exceeds with a probability of about `rate`, from the K normals' logits alone."""
    rank = int(rate * (len(leave_one_out) + 1) + 1e-9)
    if rank < 1:
        raise InputError(
            f"false_alarm_rate {rate:g} from the normals alone needs {int(np.ceil(1 / rate)) - 1} of them, got"
            f" {len(leave_one_out)}; this learner carries no calibration over tasks that would allow fewer"
        )
    return float(np.sort(leave_one_out)[-rank])


def average_groups(scores: Scores, groups: ArrayLike) -> tuple[Scores, NDArray[np.int64]]:
    """The mean score and the number of examples of each group, in order of first appearance."""
    names = np.asarray(groups)
    if names.shape != scores.shape:
        raise InputError(f"groups: one name per example expected, shape {scores.shape}, got {names.shape}")
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    sizes = np.bincount(inverse)
    order = np.argsort(first)
    return (np.bincount(inverse, scores) / sizes)[order], sizes[order]
