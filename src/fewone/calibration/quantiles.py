"""Scores of normals of some tasks -> quantiles for normals of a new task, by leaving one task out in turn.

With F_r the quantile at rate r of all tasks but u, the rate r is chosen so that mean_u P(score of u > F_r) = target:
a conformal threshold over tasks, whose observed rate meets the target on average over new tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float64]

NOMINAL_RATES = np.geomspace(0.9, 1e-4, 200)
"""The rates that are tried, from high to low."""


@dataclass(frozen=True)
class _Pool:
    """The values (n,) of all units in ascending order, each unit weighing the same, and the unit of each."""

    values: Values
    weights: Values
    unit: NDArray[np.int64]

    @staticmethod
    def of(units: Sequence[Values]) -> _Pool:
        values = np.concatenate(units)
        order = np.argsort(values, kind="stable")
        weights = np.concatenate([np.full(len(unit), 1.0 / len(unit)) for unit in units])
        unit = np.repeat(np.arange(len(units)), [len(unit) for unit in units])
        return _Pool(values[order], weights[order], unit[order])

    def without(self, unit: int) -> _Pool:
        kept = self.unit != unit
        return _Pool(self.values[kept], self.weights[kept], self.unit[kept])

    def quantiles(self, rates: Values) -> Values:
        """The smallest values that at most these shares of the weight exceed."""
        reached = np.cumsum(self.weights)
        places = np.searchsorted(reached, (1.0 - rates) * reached[-1] - 1e-9)
        found: Values = self.values[np.minimum(places, len(self.values) - 1)]
        return found


def find_quantiles(units: Sequence[Tensor], levels: Sequence[float]) -> tuple[float, ...]:
    """The value at each level (0.9: exceeded by 10 %) for normals of a unit that is not among the given ones.

    The quantile of all values together is exceeded too often by a new unit: it knows how these few units spread, and
    its own error counts more upwards than downwards. So a smaller rate is put in, by as much as leaving one unit out
    shows to be needed: the others' quantile at that rate is exceeded by the unit left out, on average, at the
    target rate. All J units err less than J - 1 of them, by (J - 1) / J, and the correction is smaller by this factor.
    """
    values = [unit.double().numpy() for unit in units]
    target = 1.0 - np.asarray(levels, dtype=np.float64)
    pool = _Pool.of(values)
    if len(values) < 2:
        return tuple(pool.quantiles(target).tolist())
    needed = _find_needed(pool, values, target)
    return tuple(pool.quantiles(target * (needed / target) ** (1.0 - 1.0 / len(values))).tolist())


def _find_needed(pool: _Pool, units: Sequence[Values], target: Values) -> Values:
    """The rates to put in so that the observed rates of units left out are the target ones, on average over units."""
    observed = np.zeros(len(NOMINAL_RATES))
    for number, unit in enumerate(units):
        limits = pool.without(number).quantiles(NOMINAL_RATES)
        below = np.searchsorted(np.sort(unit), limits, side="right")
        observed += (1.0 - below / len(unit)) / len(units)
    # It falls along the rates by construction; interpolated over logarithms, where tails are straight.
    falling = -np.log(np.maximum(observed, 1e-9))
    return np.exp(np.interp(-np.log(target), falling, np.log(NOMINAL_RATES)))
