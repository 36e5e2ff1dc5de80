"""A detector as the last step of a scikit-learn pipeline: long recordings in, one verdict each, settings by search.

python examples/scikit_learn_pipeline.py
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import fewone

Array = NDArray[np.float64]


def record(count: int, seed: int, knocks: bool = False) -> Array:
    """Recordings of a motor, (count, 512); one that knocks has four short bursts."""
    random = np.random.default_rng(seed)
    turns = np.sin(np.arange(512) / 5 + random.uniform(0, 6, size=(count, 1))) + 0.1 * random.normal(size=(count, 512))
    if knocks:
        turns[:, 60::128] += 4.0
        turns[:, 61::128] -= 4.0
    return turns


def halve_rate(recordings: Array) -> Array:
    """512 samples at 2 kHz -> 128 at 500 Hz, the largest of each four: what the model of series takes."""
    groups = recordings.reshape(len(recordings), 128, 4)
    return np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)[..., 0]


def main() -> float:
    """Balanced accuracy on recordings that nothing was fitted or chosen on."""
    pipeline = Pipeline([("resample", FunctionTransformer(halve_rate)), ("detector", fewone.load("series"))])
    normal = record(10, seed=0)

    # The rate is chosen on recordings whose labels are known; those to fit on are the first ten, always.
    known, truth = np.concatenate([normal, record(20, 1), record(20, 2, knocks=True)]), np.repeat([1, -1], (30, 20))
    split = PredefinedSplit([-1] * 10 + [0] * 40)
    rates = {"detector__false_alarm_rate": [0.01, 0.05, 0.2]}
    search = GridSearchCV(pipeline, rates, cv=split, scoring=make_scorer(balanced_accuracy_score), refit=False)
    search.fit(known, truth)

    chosen = clone(pipeline).set_params(**search.best_params_).fit(normal)
    new = np.concatenate([record(20, 3), record(20, 4, knocks=True)])
    accuracy = float(balanced_accuracy_score(np.repeat([1, -1], 20), chosen.predict(new)))
    print(f"false-alarm rate {search.best_params_['detector__false_alarm_rate']}: balanced accuracy {accuracy:.0%}")
    return accuracy


if __name__ == "__main__":
    main()
