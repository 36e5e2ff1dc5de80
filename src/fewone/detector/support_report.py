"""A fitted support -> what a user should know of it: examples that look odd, a threshold without promise, a shift.

Says what it saw; changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewone.calibration import CalibrationMap
from fewone.detector.thresholds import MEASURED_RATE
from fewone.errors import say_count

ODD_DEVIATIONS = {3: 38.0, 4: 11.5, 5: 13.7, 7: 10.1, 10: 8.0, 15: 7.7, 20: 7.4, 30: 7.2, 50: 7.3, 100: 7.6}
"""By K, how many robust deviations above the median leave-one-out logit an example looks odd: what the largest of K
logits of one kind, whose tail is exponential (Gumbel's), exceeds in 2 % of supports. The deviation is 1.4826 times the
median absolute one, whose own error is large for few."""

STRANGE = 3.0
"""What a calibrated model must say of an odd normal besides: log-odds of 3, twenty to one that it is anomalous. The
tail of a model's scores among normals of one kind may be longer than Gumbel's (sines at random phases): by the
deviations alone a normal was named in up to a fifth of such supports."""

SHIFT_RATE = 0.05
"""A support as unlikely as this among the tasks of the calibration is called shifted: so many of the supports of known
kinds are called so, too."""


@dataclass(frozen=True)
class SupportReport:
    """What the normals say of each other.

    Attributes
    ----------
    support_size
        K, the number of normals.
    known_anomalies
        How many known anomalies the detector was fitted with.
    leave_one_out
        (K,) the decision value of each normal when the others are the support; empty for K = 1.
    odd
        The numbers, from 0, of the normals that look unlike the others: look at them, leave them out if they are bad.
    warnings
        One line each.

    Examples
    --------
    >>> import numpy as np
    >>> from fewone import FewShotDetector
    >>> normals = np.random.default_rng(0).normal(size=(20, 3))
    >>> normals[7] += 40.0
    >>> FewShotDetector().fit(normals).report().odd
    (7,)
    """

    support_size: int
    known_anomalies: int
    leave_one_out: NDArray[np.float64]
    odd: tuple[int, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        anomalies = say_count(self.known_anomalies, "known anomaly", "known anomalies")
        lines = [f"fitted on {say_count(self.support_size, 'normal')} and {anomalies}"]
        if self.odd:
            lines.append(f"normals that look odd, numbered from 0: {', '.join(map(str, self.odd))}")
        elif len(self.leave_one_out):
            lines.append("no normal looks odd beside the others")
        return "\n".join([*lines, *self.warnings])


def find_odd(leave_one_out: NDArray[np.float64], highest: float | None = None) -> tuple[int, ...]:
    """Normals that stand apart from the others; decision values (K,), each judged by the others.

    Being called anomalous alone is not enough (with a shift all of them may be), and in a support of one kind someone
    is always the farthest. An odd one has a decision value below `highest`, where that is given; of fewer than five it
    must be called anomalous in any case.
    """
    count = len(leave_one_out)
    if count < 3:
        return ()
    median = np.median(leave_one_out)
    deviation = max(float(1.4826 * np.median(np.abs(leave_one_out - median))), 1e-9)
    limit = np.interp(np.log(count), np.log(list(ODD_DEVIATIONS)), list(ODD_DEVIATIONS.values()))
    odd = (median - leave_one_out) / deviation > limit
    if highest is None and count < 5:
        highest = 0.0
    if highest is not None:
        odd &= leave_one_out < highest
    return tuple(np.flatnonzero(odd).tolist())


def find_faults(normals: NDArray[np.floating[Any]]) -> list[str]:
    """What is wrong with normals (K, *shape) whatever a model says of them, one line each."""
    flat = normals.reshape(len(normals), -1)
    faults = []
    if len(flat) == 1:
        faults.append(
            "warning: one normal shows nothing of how normals differ: the threshold is a prior from other tasks;"
            " trust the order of the scores alone"
        )
    elif (flat == flat[:1]).all():
        faults.append(f"warning: all {len(flat)} normals are the same to the last digit: copies of one count as one")
    elif len(np.unique(flat, axis=0)) < len(flat):
        copies = len(flat) - len(np.unique(flat, axis=0))
        are = "is a copy of another" if copies == 1 else "are copies of others"
        faults.append(f"warning: {copies} of {len(flat)} normals {are}: copies of one count as one")
    if flat.shape[1] > 1:
        constant = int((flat == flat[:, :1]).all(axis=1).sum())
        if constant:
            are = "is" if constant == 1 else "are"
            faults.append(
                f"warning: {constant} of {len(flat)} normals {are} constant (a dead sensor, a machine at rest?):"
                " whatever moves will look anomalous"
            )
    return faults


def report_support(
    support_size: int,
    known_anomalies: int,
    scores: NDArray[np.float64],
    offset: float,
    calibration: CalibrationMap | None,
    rate: float | None,
    faults: Sequence[str] = (),
) -> SupportReport:
    """scores (K,) of the normals, each judged by the others, positive = normal; decision = score - offset.

    faults: what `find_faults` says of the normals themselves.
    """
    decisions = scores - offset
    found = list(faults)
    if len(decisions) > 2 and np.median(decisions) < 0:
        found.append(
            "warning: most of the normals would be called anomalous given the others: the model does not know this kind"
            " of data; give more normals, or train a model on your own tasks"
        )
    elif calibration is not None and _is_shifted(support_size, scores, calibration):
        asked = "" if rate is None else f"; a rate of {rate:g} is not what you will see"
        found.append(
            f"warning: to the model these normals look less normal than {1 - SHIFT_RATE:.0%} of such sets from tasks"
            f" like those it was calibrated on (a shift: a new machine, another kind of data): expect more false alarms"
            f" than promised{asked}; give more normals from different days, or train on your own tasks"
        )
    if rate is not None and calibration is not None and rate < MEASURED_RATE:
        found.append(
            f"warning: a rate of {rate:g} lies below what the calibration measured ({MEASURED_RATE:g}): extrapolated"
        )
    if rate is not None and calibration is None:
        found.append(
            f"the threshold comes from {say_count(support_size, 'normal')} alone: a rate of {rate:g} is met on average"
            f" only"
        )
    highest = None if calibration is None else min(0.0, -STRANGE - offset)
    return SupportReport(support_size, known_anomalies, decisions, find_odd(decisions, highest), tuple(found))


def _is_shifted(support_size: int, scores: NDArray[np.float64], calibration: CalibrationMap) -> bool:
    """Whether as many normals of the calibration's tasks, judged by as many others, seldom scored so low on average.

    Means of groups of some sizes were measured; between them the limit is interpolated over the log of the size.
    """
    if len(scores) < 2:
        return False
    # Each was judged by the others, so by one fewer than the support has.
    sizes = [one.group for one in calibration.at(support_size - 1).mean_quantiles]
    limits = [calibration.threshold(support_size - 1, SHIFT_RATE, size) for size in sizes]
    return -float(scores.mean()) > float(np.interp(np.log(len(scores)), np.log(sizes), limits))
