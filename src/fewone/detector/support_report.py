"""A fitted support -> what a user should know of it: examples that look odd, a threshold without promise, a shift.

Says what it saw; changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewone.calibration import CalibrationMap

ODD_DEVIATIONS = 3.5
"""How many robust deviations above the median leave-one-out score an example looks odd (Iglewicz and Hoaglin)."""


SHIFT_RATE = 0.01
"""A support as unlikely as this among the tasks of the calibration is called shifted."""


@dataclass(frozen=True)
class SupportReport:
    """What the normals say of each other.

    Attributes
    ----------
    support_size : K, the number of normals.
    known_anomalies : how many known anomalies the detector was fitted with.
    leave_one_out : (K,) the decision value of each normal when the others are the support; empty for K = 1.
    odd : the numbers, from 0, of the normals that look unlike the others: look at them, leave them out if they are bad.
    warnings : one line each.
    """

    support_size: int
    known_anomalies: int
    leave_one_out: NDArray[np.float64]
    odd: tuple[int, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"fitted on {self.support_size} normals and {self.known_anomalies} known anomalies"]
        if self.odd:
            lines.append(f"normals that look odd, numbered from 0: {', '.join(map(str, self.odd))}")
        elif len(self.leave_one_out):
            lines.append("no normal looks odd beside the others")
        return "\n".join([*lines, *self.warnings])


def find_odd(leave_one_out: NDArray[np.float64]) -> tuple[int, ...]:
    """Normals that stand apart from the others; decision values (K,), each judged by the others.

    Apart, and called anomalous by them; or so far apart that it needs no threshold. Being called anomalous alone is not
    enough (with a shift all of them may be), and in a support of one kind someone is always the farthest.
    """
    if len(leave_one_out) < 3:
        return ()
    median = np.median(leave_one_out)
    deviation = max(float(1.4826 * np.median(np.abs(leave_one_out - median))), 1e-9)
    apart = (median - leave_one_out) / deviation
    odd = (apart > ODD_DEVIATIONS) & (leave_one_out < 0)
    if len(leave_one_out) >= 5:
        odd |= apart > 2 * ODD_DEVIATIONS
    return tuple(np.flatnonzero(odd).tolist())


def report_support(
    support_size: int,
    known_anomalies: int,
    scores: NDArray[np.float64],
    offset: float,
    calibration: CalibrationMap | None,
    rate: float | None,
) -> SupportReport:
    """scores (K,) of the normals, each judged by the others, positive = normal; decision = score - offset."""
    decisions = scores - offset
    found = []
    if len(decisions) > 2 and np.median(decisions) < 0:
        found.append(
            "warning: most of the normals would be called anomalous given the others: the model does not know this kind"
            " of data; give more normals, or train a model on your own tasks"
        )
    elif calibration is not None and _is_shifted(support_size, scores, calibration):
        found.append(
            f"warning: to the model these normals look less normal than {1 - SHIFT_RATE:.0%} of such sets from tasks"
            f" like those it was calibrated on (a shift, such as a new machine): expect more false alarms than promised"
        )
    if rate is not None and calibration is not None:
        # A shift need not show in the normals' own scores: on the second milling machine it did not.
        found.append(
            f"a rate of {rate:g} is a mean over tasks like those of the calibration: on a new machine or another kind"
            f" of data (a shift) expect more false alarms, even where nothing looks odd here"
        )
    if rate is not None and calibration is not None and support_size == 1:
        found.append("warning: with one normal the false-alarm rate is a prior from other tasks; nothing confirms it")
    if rate is not None and calibration is None:
        found.append(
            f"the threshold comes from {support_size} normals alone: a rate of {rate:g} is met on average only"
        )
    return SupportReport(support_size, known_anomalies, decisions, find_odd(decisions), tuple(found))


def _is_shifted(support_size: int, scores: NDArray[np.float64], calibration: CalibrationMap) -> bool:
    """Whether as many normals of the calibration's tasks, judged by as many others, hardly ever scored so low."""
    if len(scores) < 2:
        return False
    # Each was judged by the others, so by one fewer than the support has.
    return -float(scores.mean()) > calibration.threshold(support_size - 1, SHIFT_RATE, len(scores))
