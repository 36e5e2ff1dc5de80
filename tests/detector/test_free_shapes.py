"""A model whose shape is free takes series of every length and number of channels, and says what it does not take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load
from fewone.errors import InputError

Make = Callable[..., FewShotDetector]
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(16,), (77,), (1, 40), (3, 300)])
def test_any_length_and_any_channels_are_fitted_and_scored(make_detector: Make, shape: tuple[int, ...]) -> None:
    detector = make_detector("evidence", (0, 0)).fit(RANDOM.normal(size=(6, *shape)))
    assert detector.predict(100 + RANDOM.normal(size=(3, *shape))).tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((5, 9), r"\(n, length\) or \(n, channels, length\) with a length of at least 16 expected, got \(5, 9\)"),
        ((5, 40, 3), r"channels come before time steps: give X.transpose\(0, 2, 1\)"),
        ((5000,), "for a long recording use fewone.windows"),
        ((5, 2, 20, 20), "expected, got"),
    ],
)
def test_what_is_no_series_of_16_steps_is_refused(make_detector: Make, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_detector("evidence", (0, 0)).fit(np.zeros(shape))


def test_ragged_series_and_gaps_are_refused(make_detector: Make) -> None:
    detector = make_detector("evidence", (0, 0))
    with pytest.raises(InputError, match="all examples must have one shape"):
        detector.fit([np.zeros(20), np.zeros(21)])
    with pytest.raises(InputError, match="NaN"):
        detector.fit(np.full((3, 20), np.nan))


@pytest.mark.parametrize("shape", [(4, 33), (4, 2, 32)])
def test_other_lengths_and_channels_than_fitted_on_are_refused(make_detector: Make, shape: tuple[int, ...]) -> None:
    detector = make_detector("evidence", (0, 0)).fit(RANDOM.normal(size=(5, 32)))
    with pytest.raises(InputError, match=r"\(n, 32\) expected, got .*fitted on; fit it anew") as caught:
        detector.predict(np.zeros(shape))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="fitted on"):
        detector.partial_fit(np.zeros(shape))


def test_a_saved_detector_of_free_shape_scores_the_same(make_detector: Make, tmp_path: Path) -> None:
    values = RANDOM.normal(size=(6, 2, 50))
    detector = make_detector("evidence", (0, 0)).fit(values)
    detector.save(tmp_path / "saved")
    np.testing.assert_array_equal(load(tmp_path / "saved").score_samples(values), detector.score_samples(values))


def test_a_model_of_any_shape_says_so_in_its_repr() -> None:
    assert repr(load("series")) == "FewShotDetector(evidence for any shape, not fitted)"
