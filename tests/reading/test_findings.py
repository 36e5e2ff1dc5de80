"""Gaps, missing values and uneven steps are counted and told, and filled only as far as was asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fewone
from fewone.errors import InputError
from fewone.reading import Recording


def record(times: list[float], values: list[float]) -> Recording:
    return Recording(np.array(values)[:, None], ("x",), np.array(times))


def test_an_empty_line_in_a_file_of_one_column_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n\n4\n")
    assert str(fewone.read_recording(tmp_path / "a.csv").inspect()) == "1 of 4 rows lack a value"
    (tmp_path / "a.csv").write_text("1,2.5\n\n4,5\n")
    assert str(fewone.read_recording(tmp_path / "a.csv").inspect()) == "1 empty lines passed over"


def test_gaps_and_uneven_steps_are_counted() -> None:
    times = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.4, 13.4, 14.4]
    found = record(times, [1.0, 2.0, np.nan, *range(6)]).inspect()
    assert (found.rows, found.missing_rows, found.gaps, found.longest_gap, found.uneven) == (9, 1, 1, 7.0, 1)
    assert str(found) == "1 of 9 rows lack a value, 1 gap in time, the longest 7 s, 1 uneven steps of time"
    assert found.sampling_rate == pytest.approx(1.0)


def test_stamps_rounded_to_milliseconds_are_even() -> None:
    times = np.round(np.arange(3000) / 3.0, 3).tolist()
    assert record(times, [0.0] * 3000).inspect().whole
    times = np.round(np.arange(3000) / 400.0, 3).tolist()
    assert record(times, [0.0] * 3000).inspect().gaps == 0


def test_resampling_is_exact_on_a_line_and_stops_at_the_largest_gap() -> None:
    times = [0.0, 0.1, 0.2, 0.3, 0.6, 0.7, 2.0, 2.1]
    even = fewone.regular(record(times, [10 * t for t in times]), "20Hz", "linear", "0.5s")
    assert even.times is not None
    np.testing.assert_allclose(np.diff(even.times), 0.05)
    known = np.isfinite(even.values[:, 0])
    np.testing.assert_allclose(even.values[known, 0], 10 * even.times[known], atol=1e-9)
    np.testing.assert_allclose(even.times[~known], np.arange(0.75, 1.99, 0.05), atol=1e-9)
    assert "put on 20 Hz" in even.said


def test_without_a_largest_gap_no_gap_is_filled_and_previous_holds_the_last_value() -> None:
    times = [0.0, 1.0, 2.0, 5.0, 6.0]
    even = fewone.regular(record(times, [0, 1, 2, 5, 6]), 1.0)
    np.testing.assert_array_equal(even.values[:, 0], [0, 1, 2, np.nan, np.nan, 5, 6])
    held = fewone.regular(record(times, [0, 1, 2, 5, 6]), "1s", "previous", "1s")
    np.testing.assert_array_equal(held.values[:, 0], [0, 1, 2, 2, np.nan, 5, 6])


def test_missing_rows_are_filled_up_to_so_many() -> None:
    recording = Recording(np.array([[0.0], [np.nan], [2.0], [np.nan], [np.nan], [5.0], [np.nan]]), ("x",))
    filled = fewone.regular(recording, fill="linear", largest_gap=1)
    np.testing.assert_array_equal(filled.values[:, 0], [0, 1, 2, np.nan, np.nan, 5, np.nan])


def test_coming_down_averages_so_that_nothing_fast_comes_back_as_slow() -> None:
    times = np.arange(1000) / 1000.0
    fast = Recording(np.sin(2 * np.pi * 99 * times)[:, None], ("x",), times)
    assert np.abs(fewone.regular(fast, "100Hz").values[1:-1]).max() < 0.15


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("fast",), "resample: 'fast' is not above 0 or no quantity; say 100Hz or 10ms"),
        (("100Hertz",), "is no rate"),
        (("1Hz", "cubic"), "fill: 'cubic' is not known; say linear or previous"),
        (("1Hz", "linear", "-3s"), "largest_gap: '-3s' is not above 0"),
        ((None, "linear"), "say up to which length"),
    ],
)
def test_a_wrong_dial_is_named(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(InputError) as caught:
        fewone.regular(record([0.0, 1.0], [0.0, 1.0]), *arguments)  # type: ignore[arg-type]
    assert told in str(caught.value)


def test_resampling_needs_times() -> None:
    with pytest.raises(InputError, match="no time column"):
        fewone.regular(Recording(np.zeros((3, 1)), ("x",)), "10Hz")
