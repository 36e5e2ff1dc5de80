"""Windows of long recordings: the cut, the stream, the score per time step."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewone.detector.recordings import join_scores, score_steps, stream_windows, windows
from fewone.errors import InputError


def naive_starts(length: int, window: int, stride: int) -> list[int]:
    starts = list(range(0, length - window + 1, stride))
    return starts if starts[-1] + window == length else [*starts, length - window]


def test_windows_of_one_channel_keep_the_shape_of_the_series() -> None:
    cut = windows(np.arange(10.0), window=4, stride=3)
    assert cut.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]


def test_windows_of_several_channels_are_channels_first() -> None:
    series = np.arange(12).reshape(6, 2)
    cut = windows(series, window=3)
    assert cut.shape == (2, 2, 3)
    assert cut[1].tolist() == [[6, 8, 10], [7, 9, 11]]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_streamed_windows_and_step_scores_equal_the_naive_ones(data: st.DataObject) -> None:
    window, stride = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 12))
    length = data.draw(st.integers(window, 60))
    cuts = sorted(data.draw(st.lists(st.integers(0, length), max_size=6)))
    series = np.random.default_rng(length).normal(size=(length, 2))
    pieces = list(
        score_steps(
            stream_windows(np.split(series, cuts), window, stride),
            lambda values: values.astype(np.float64).mean(axis=(1, 2)),
        )
    )
    joined = join_scores(pieces)
    starts = naive_starts(length, window, stride)
    assert joined.starts.tolist() == starts
    expected = np.array([series[start : start + window].mean() for start in starts])
    np.testing.assert_allclose(joined.windows, expected, atol=1e-12)
    for step in range(length):
        covering = [score for start, score in zip(starts, expected, strict=True) if start <= step < start + window]
        np.testing.assert_allclose(joined.steps[step], np.mean(covering) if covering else np.nan, atol=1e-10)
    assert len(joined.steps) == length
    assert [piece.first_step for piece in pieces] == np.cumsum([0, *(len(p.steps) for p in pieces)])[:-1].tolist()


def test_a_stream_of_chunks_takes_the_memory_of_a_chunk() -> None:
    def peak(chunks: int) -> int:
        stream = (np.zeros((20_000, 3), np.float32) for _ in range(chunks))
        tracemalloc.start()
        for piece in score_steps(stream_windows(stream, 2048, 1024), lambda values: values[:, 0, 0].astype(float)):
            assert np.isfinite(piece.steps).all()
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    assert peak(100) < 1.2 * peak(10)


@pytest.mark.parametrize(
    ("series", "window", "stride", "words"),
    [
        (np.zeros((3, 500)), 128, None, "3 time steps, a window takes 128; are rows and columns exchanged"),
        (np.zeros(100), 128, None, "100 time steps"),
        (np.zeros((4, 4, 4)), 2, None, r"got an array of shape \(4, 4, 4\)"),
        (np.array(["a", "b"]), 1, None, "numbers"),
        (np.zeros(10), 0, None, "at least 1"),
        (np.zeros(10), 2, 0, "at least 1"),
    ],
)
def test_wrong_series_are_refused_with_expected_and_got(
    series: np.ndarray, window: int, stride: int | None, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        windows(series, window, stride)


def test_a_stream_names_the_time_step_of_a_missing_value() -> None:
    chunks = [np.zeros((5, 1)), np.array([[0.0], [np.nan]])]
    with pytest.raises(InputError, match="time step 6"):
        list(stream_windows(chunks, 2))


def test_a_stream_whose_channels_change_is_refused() -> None:
    with pytest.raises(InputError, match="time step 5 has 2 channels, before 1"):
        list(stream_windows([np.zeros((5, 1)), np.zeros((5, 2))], 2))
