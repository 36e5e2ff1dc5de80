"""Bad input is refused with the reason in one line, or handled rightly; never a silent wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fewone
from fewone.calibration import CalibrationMap
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.errors import FewoneError, InputError

Maker = Callable[..., FewShotDetector]
SERIES = [("plda", (1, 32)), ("evidence", (0, 0))]
every_series = pytest.mark.parametrize(("algorithm", "shape"), SERIES)


def refuse(words: str, call: Callable[..., object], *given: object) -> None:
    with pytest.raises(FewoneError, match=words) as caught:
        call(*given)
    assert "\n" not in str(caught.value)


@every_series
def test_lengths_that_differ_inside_x(make_detector: Maker, algorithm: str, shape: tuple[int, int]) -> None:
    ragged = [np.zeros(32), np.zeros(31), np.zeros(32)]
    refuse("all examples must have one shape, got", make_detector(algorithm, shape).fit, ragged)
    fitted = make_detector(algorithm, shape).fit(np.random.default_rng(0).normal(size=(4, 32)))
    refuse("all examples must have one shape", fitted.predict, ragged)


@every_series
def test_channels_that_differ_between_fit_and_predict(
    make_detector: Maker, algorithm: str, shape: tuple[int, int]
) -> None:
    fitted = make_detector(algorithm, shape).fit(np.random.default_rng(0).normal(size=(4, 32)))
    for method in (fitted.predict, fitted.partial_fit, fitted.why, fitted.drift):
        refuse(r"expected, got \(6, 2, 32\)", method, np.zeros((6, 2, 32)))
    refuse("2 channels|expected", fitted.score_series, np.zeros((100, 2)))


def test_a_length_below_16_for_a_model_of_any_length(make_detector: Maker) -> None:
    refuse("length of at least 16 expected", make_detector("evidence", (0, 0)).fit, np.zeros((5, 15)))


@every_series
def test_normals_that_never_move_make_every_move_anomalous_and_the_report_tells(
    make_detector: Maker, algorithm: str, shape: tuple[int, int]
) -> None:
    still = np.full((5, 32), 7.0)
    detector = make_detector(algorithm, shape).fit(still)
    assert np.isfinite(detector.decision_function(still)).all()
    moved = still + np.random.default_rng(0).normal(size=(5, 32))
    assert detector.predict(moved).tolist() == [-1] * 5
    assert "5 of 5 normals are constant" in str(detector.report())


@every_series
def test_a_constant_series_among_moving_normals_is_anomalous(
    make_detector: Maker, algorithm: str, shape: tuple[int, int], normals: np.ndarray
) -> None:
    detector = make_detector(algorithm, shape).fit(normals)
    assert detector.predict(np.zeros((1, 32))).tolist() == [-1]
    assert "constant" not in str(detector.report())


def test_one_normal_orders_examples_and_the_report_says_that_it_does_no_more(
    make_detector: Maker, any_learner: str, normals: np.ndarray
) -> None:
    detector = make_detector(any_learner).fit(normals[:1])
    near, far = detector.score_samples(np.stack([normals[0] + 0.01, normals[0] * 50 + 90]))
    assert near > far
    assert "trust the order of the scores alone" in str(detector.report())


def test_a_rate_that_no_calibration_carries_is_refused(
    trained: Callable[[], FewShotDetector], calibration: CalibrationMap
) -> None:
    waves = np.sin(np.arange(128) / 4 + np.arange(10)[:, None])
    detector = trained().set_params(calibration=calibration)
    for rate in (1e-6, 0.7):
        refuse(
            "is not carried by a calibration: it measured 0.005 to 0.5",
            detector.set_params(false_alarm_rate=rate).fit,
            waves,
        )
    assert "below what the calibration measured" in str(detector.set_params(false_alarm_rate=0.001).fit(waves).report())
    with pytest.raises(InputError, match="from the normals alone needs 99 of them, got 10"):
        trained().set_params(false_alarm_rate=0.01).fit(waves)
    with pytest.raises(InputError, match="a share between 0 and 1"):
        fewone.load("series", false_alarm_rate=1.5)


@every_series
def test_normals_in_units_whose_squares_overflow_are_refused_and_such_queries_are_anomalous(
    make_detector: Maker, algorithm: str, shape: tuple[int, int], normals: np.ndarray
) -> None:
    for unit in (1e25, 1e-25, 1e38):
        refuse("give them in other units", make_detector(algorithm, shape).fit, unit * normals)
    for unit in (1e-9, 1e9):
        fitted = make_detector(algorithm, shape).fit(unit * normals)
        queries = np.stack([unit * 1e8 * normals[0], np.zeros(32), 1e37 * normals[0], 1e300 * normals[0]])
        assert fitted.predict(queries).tolist() == [-1] * 4
