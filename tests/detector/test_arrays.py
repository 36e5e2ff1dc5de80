"""What people bring: every container and layout is understood, every mistake is told with expected and got."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from fewone.detector.arrays import arrange, as_array, as_labels, check_range
from fewone.errors import FewoneError, InputError


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6).reshape(2, 3),
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        torch.arange(6).reshape(2, 3),
        torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).requires_grad_(),
        pd.DataFrame(np.arange(6.0).reshape(2, 3)),
        [[0, 1, 2], [3, 4, 5]],
        [np.arange(3), np.arange(3, 6)],
        np.array([["0", 1, 2], [3, 4, 5.0]], dtype=object),
    ],
)
def test_every_container_gives_the_same_numbers(values: object) -> None:
    np.testing.assert_array_equal(as_array(values), [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ((4, 8), (1, 8)),
        ((4, 1, 8), (1, 8)),
        ((4, 3, 8), (3, 8)),
        ((4, 5, 6), (1, 5, 6)),
        ((4, 5, 6, 1), (1, 5, 6)),
        ((4, 5, 6, 3), (3, 5, 6)),
        ((4, 3, 5, 6), (3, 5, 6)),
    ],
)
def test_every_layout_becomes_channels_first(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).normal(size=given)
    arranged = arrange(array, shape)
    assert arranged.shape == (4, *shape)
    if given == (4, 5, 6, 3):
        np.testing.assert_array_equal(arranged[2, 1], array[2, :, :, 1])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0, np.nan], [1.0, 2.0]], "1 of 2 examples hold NaN or infinity, the first is example 0"),
        ([[1.0, 2.0], [np.inf, 2.0]], "the first is example 1"),
        ([[1.0, 2.0], [1.0]], r"all examples must have one shape, got \[\(1,\), \(2,\)\]"),
        ([["a", "b"]], "numbers are expected"),
        (np.array([["a"]], dtype=object), "numbers are expected"),
        (np.zeros((2, 2), complex), "Complex data not supported"),
        ("series.csv", "got str"),
        (None, "got NoneType"),
        (3.0, "single number"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(values: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        as_array(values)
    assert isinstance(caught.value, FewoneError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "shape", "words"),
    [
        ((4, 7), (1, 8), r"\(n, 8\) expected, got \(4, 7\)"),
        ((4, 8, 3), (3, 8), r"\(n, 3, 8\) expected, got \(4, 8, 3\); .*X.transpose\(0, 2, 1\)"),
        ((8,), (1, 8), r"this is one example: give X\[None\]"),
        ((5, 6, 2), (3, 5, 6), r"\(n, 5, 6, 3\) expected, got \(5, 6, 2\)"),
        ((1000,), (1, 8), "fewone.windows or score_series"),
    ],
)
def test_a_wrong_shape_is_told_with_expected_got_and_advice(
    given: tuple[int, ...], shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        arrange(np.zeros(given), shape)


def test_labels_mark_known_anomalies_with_minus_one() -> None:
    labels = as_labels([1, -1, 1], 3)
    assert labels is not None
    assert labels.tolist() == [0, 1, 0]
    assert as_labels([0, 1, 2], 3) is None
    assert as_labels(None, 3) is None


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([1, 1], r"shape \(3,\), got \(2,\)"),
        ([-1, 0, 1], r"\+1 .* and -1"),
        ([-1, -1, -1], "at least one normal"),
        (["good", "good", "bad"], "numbers are expected"),
        ([True, False, True], "numbers are expected, .* got bool"),
    ],
)
def test_labels_that_make_no_sense_are_refused(y: list[object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        as_labels(y, 3)


def test_pictures_in_0_to_1_are_refused_by_a_model_of_0_to_255() -> None:
    with pytest.raises(InputError, match="multiply by 255"):
        check_range(np.full((1, 2, 2), 0.5), 1 / 255)
    check_range(np.full((1, 2, 2), 200.0), 1 / 255)
    check_range(np.full((1, 2, 2), 0.5), 1.0)
