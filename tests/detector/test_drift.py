"""Drift is told where recent normals score lower, and hardly ever where they do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

import fewone
from fewone.detector.drift import find_drift
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.errors import InputError


def test_no_drift_is_told_where_there_is_none() -> None:
    random, told = np.random.default_rng(0), 0
    for _ in range(60):
        detector = FewShotDetector().fit(random.normal(size=(10, 4)))
        told += detector.drift(random.normal(size=(60, 4))).drifted
    assert told <= 5


def test_a_slow_drift_is_told_with_its_time_before_most_are_called_anomalous() -> None:
    random = np.random.default_rng(0)
    detector = FewShotDetector().fit(random.normal(size=(15, 4)))
    recent = random.normal(size=(120, 4))
    recent[40:] += np.linspace(0, 8, 80)[:, None]
    found = detector.drift(recent)
    assert found.drifted and found.since is not None and 40 < found.since < 110
    assert (found.scores[: found.since] < 0).mean() < 0.5
    assert found.p_values[: 40 - 10].min() > found.p_values[-1]
    assert f"from example {found.since} on" in str(found)
    assert "partial_fit" in str(found)
    assert isinstance(found.plot(), Figure)
    assert "no drift" in str(detector.drift(recent[:30]))


def test_examples_that_score_higher_are_no_drift() -> None:
    own, recent = np.array([0.0, 1.0, 2.0, 3.0]), np.linspace(8.0, 9.0, 20)
    assert not find_drift(own, recent, 10).drifted
    assert find_drift(own, -recent, 10).drifted


def test_aligned_runs_drift_too(make_detector: Callable[..., FewShotDetector]) -> None:
    random = np.random.default_rng(0)
    aligned = fewone.AlignedDetector(make_detector()).fit(random.normal(size=(10, 2, 1, 32)))
    assert aligned.drift(random.normal(size=(20, 2, 1, 32)) * 30 + 40).drifted


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match="at least 3 normals"):
        FewShotDetector().fit(np.zeros((1, 2))).drift(np.zeros((20, 2)))
    with pytest.raises(InputError, match="blocks of 10 examples, of which 2 to 4"):
        find_drift(np.arange(5.0), np.arange(4.0), 10)
