"""scikit-learn's own checks over the detector of plain tables (identity embedding, the Bayesian head)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, OutlierMixin, clone, is_outlier_detector
from sklearn.utils.estimator_checks import parametrize_with_checks

from fewone.detector.aligned import AlignedDetector
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load
from fewone.errors import FewoneError


@pytest.mark.filterwarnings("ignore:y is ignored")
@parametrize_with_checks([FewShotDetector(), AlignedDetector()])
def test_scikit_learn_conventions(estimator: FewShotDetector | AlignedDetector, check: Any) -> None:
    check(estimator)


def test_where_scikit_learn_is_imported_a_detector_is_one_of_its_estimators() -> None:
    detector = FewShotDetector(false_alarm_rate=0.1)
    assert isinstance(detector, BaseEstimator)
    assert isinstance(detector, OutlierMixin)
    assert is_outlier_detector(detector)
    assert clone(detector).get_params() == detector.get_params()


def test_where_fewone_was_imported_first_scikit_learns_checks_pass_all_the_same() -> None:
    program = """
import sys, warnings
from fewone.detector.few_shot_detector import FewShotDetector
assert "sklearn" not in sys.modules, "fewone imported scikit-learn"
from sklearn.utils.estimator_checks import check_estimator
warnings.simplefilter("ignore")
results = check_estimator(FewShotDetector(), on_skip=None, on_fail=None)
print(sorted({result["status"] for result in results}), len(results) > 30)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1].startswith("['passed'")
    assert found.stdout.splitlines()[-1].endswith("True")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"false_alarm_rate": "0.1"}, "false_alarm_rate is '0.1': a number or None is expected, got str"),
        ({"sampling_rate": True}, "sampling_rate is True: a number or None is expected, got bool"),
        ({"sampling_rate": 0.0}, "sampling_rate is 0.0: a number of Hz above 0"),
        ({"false_alarm_rate": 5}, "false_alarm_rate is 5: a share between 0 and 1"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FewShotDetector(**parameters).fit([[0.0], [1.0]])
    with pytest.raises(ValueError, match="Invalid parameter 'rate' for FewShotDetector"):
        FewShotDetector().set_params(rate=1)


def test_a_detector_is_shown_in_one_line() -> None:
    assert repr(FewShotDetector()) == "FewShotDetector(not fitted)"
    fitted = load("series", false_alarm_rate=0.05).fit(np.random.default_rng(0).normal(size=(5, 128)))
    assert "false_alarm_rate=0.05, fitted on 5 normals" in repr(fitted)
    assert len(repr(fitted)) <= 120
    assert "\n" not in repr(fitted)


def test_load_refuses_another_sampling_rate_at_once() -> None:
    with pytest.raises(FewoneError, match="trained on series of 2000 Hz, yours have 100 Hz"):
        load("vibration", sampling_rate=100)


def test_load_names_the_nearest_model() -> None:
    with pytest.raises(FewoneError, match="did you mean 'vibration'"):
        load("vibrations")
