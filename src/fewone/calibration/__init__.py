"""Scores on held-out tasks -> a map from score to log-odds, per K, kept with the learner.

Enters: anything that adapts, tasks it was not trained on. Leaves: the map, and the same seam with true log-odds.
"""

from fewone.calibration.calibrated import (
    Adapting,
    Calibrated,
    CalibratedScorer,
    CalibrationMap,
    CalibrationPoint,
    LeavingOneOut,
    NormalQuantiles,
    mix_calibrations,
    score_leaving_one_out,
)
from fewone.calibration.fitting import HeldOut, Scored, calibrate, count_draws, fit_point

__all__ = [
    "Adapting",
    "Calibrated",
    "CalibratedScorer",
    "CalibrationMap",
    "CalibrationPoint",
    "HeldOut",
    "LeavingOneOut",
    "NormalQuantiles",
    "Scored",
    "calibrate",
    "count_draws",
    "fit_point",
    "mix_calibrations",
    "score_leaving_one_out",
]
