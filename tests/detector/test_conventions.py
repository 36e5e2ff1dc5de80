"""scikit-learn's own checks over the detector of plain tables (identity embedding, the Bayesian head)."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fewone.detector.few_shot_detector import FewShotDetector


def expected_failures(detector: FewShotDetector) -> dict[str, str]:
    return {}


@pytest.mark.filterwarnings("ignore:y is ignored")
@parametrize_with_checks([FewShotDetector()], expected_failed_checks=expected_failures)
def test_scikit_learn_conventions(estimator: FewShotDetector, check: Any) -> None:
    check(estimator)
