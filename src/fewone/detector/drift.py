"""Recent examples that are presumed normal -> whether they still score as the support does, over time.

Let u_1 ... u_K be the scores of the support's normals, each judged by the others, and s_1 ... s_n those of recent
examples in the order of time. A block of w of them is held against the u by Welch's t,

    t = (mean u - mean s) / sqrt(var u / K + var s / w + var u / K),    p = P(Student's t > t),

one-sided: drift is what scores as less normal. The second var u / K stands for the support itself: all of a block are
judged by the same K normals, whose luck they share. `drifted` is told when the smallest p, times the number of blocks
that do not overlap, is below `level`: looking often does not make drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fewone.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scores = NDArray[np.float64]

LEVEL = 0.01
"""The probability with which drift is told where there is none."""


@dataclass(frozen=True)
class Drift:
    """What `drift` found.

    Attributes
    ----------
    scores
        (n,) the decision value of each example, in the order given.
    own
        (K,) those of the support's normals, each judged by the others.
    ends
        (m,) the number of the last example of each block.
    p_values
        (m,) how likely normals as those of the support score as low as the block does, or lower.
    drifted
        Whether that is too unlikely, over all blocks together.
    since
        The number of the last example of the first block that shows it; None: no drift.
    """

    scores: Scores
    own: Scores
    ends: NDArray[np.int64]
    p_values: Scores
    drifted: bool
    since: int | None

    def __str__(self) -> str:
        alarms = float((self.scores < 0).mean())
        told = f"{alarms:.0%} of {len(self.scores)} recent examples are called anomalous"
        if not self.drifted:
            return f"no drift (smallest p-value {self.p_values.min():.2g}); {told}"
        return (
            f"drift, seen from example {self.since} on (smallest p-value {self.p_values.min():.2g}); {told}: add recent"
            f" normals with partial_fit"
        )

    def plot(self) -> Figure:
        """The scores and the p-values over time."""
        from fewone.detector.drawing import draw_drift

        return draw_drift(self.scores, self.own, self.ends, self.p_values, self.since)


def find_drift(own: Scores, scores: Scores, block: int, level: float = LEVEL) -> Drift:
    """own (K,) and scores (n,) in the order of time, above 0 normal; blocks of `block` that begin at every example."""
    if len(own) < 3:
        raise InputError(f"drift is seen beside at least 3 normals, the detector was fitted on {len(own) or 1}")
    if not 2 <= block <= len(scores):
        raise InputError(f"drift looks at blocks of {block} examples, of which 2 to {len(scores)} may be: give block=")
    ends = np.arange(block - 1, len(scores))
    p_values = np.array([_compare(own, scores[end - block + 1 : end + 1]) for end in ends])
    limit = level / max(1, len(scores) // block)
    low = np.flatnonzero(p_values < limit)
    return Drift(scores, own, ends, p_values, bool(len(low)), int(ends[low[0]]) if len(low) else None)


def _compare(own: Scores, recent: Scores) -> float:
    """Welch's p-value that the recent ones are lower."""
    from scipy.special import stdtr  # only on need: it takes long to import

    # Scores that do not differ at all have rounding noise instead of a variance.
    floor = (1e-6 * (1.0 + np.abs(own).max())) ** 2
    parts = np.array([2.0 * max(own.var(ddof=1), floor) / len(own), max(recent.var(ddof=1), floor) / len(recent)])
    freedom = parts.sum() ** 2 / (parts[0] ** 2 / (len(own) - 1) + parts[1] ** 2 / (len(recent) - 1))
    return float(stdtr(freedom, (recent.mean() - own.mean()) / np.sqrt(parts.sum())))
