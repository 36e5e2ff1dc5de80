"""A recording with gaps and uneven steps -> one on even steps, filled as far as was allowed and no further.

With new times u on even steps, x'(u) is the straight line between the two rows next to u ("linear") or the row before
it ("previous"), wherever those rows are at most `largest_gap` apart; else it is missing. Coming down to less than two
thirds of the rate, x'(u) is the mean over the rows of its step, so that what is too fast for the new rate does not
come back as something slow.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fewone.errors import InputError
from fewone.reading.options import ReadOptions
from fewone.reading.recording import Floats, Recording, find_step, format_seconds

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_RATES = {"hz": 1.0, "khz": 1e3}
_QUANTITY = re.compile(r"\s*([0-9.]+(?:[eE][+-]?\d+)?)\s*([a-zA-Zµ]*)\s*")

AVERAGED = 1.5
"""Where the old rate is higher than so many times the new one, rows are averaged, not picked."""


def parse_rate(text: str | float) -> float:
    """100 or "100Hz" or "10ms" -> 100.0 Hz."""
    number, unit = _parse(text, "resample", "100Hz or 10ms")
    if unit in _UNITS:
        return 1.0 / (number * _UNITS[unit])
    if unit and unit.lower() not in _RATES:
        raise InputError(f"resample: {text!r} is no rate; say 100Hz or 10ms")
    return number * _RATES.get(unit.lower(), 1.0)


def parse_gap(text: str | float) -> tuple[float, Literal["seconds", "rows"]]:
    """ "0.5s" -> half a second; 3 or "3" -> three rows."""
    number, unit = _parse(text, "largest_gap", "0.5s, 200ms or a number of rows")
    if unit in ("", "rows", "row"):
        return number, "rows"
    if unit not in _UNITS:
        raise InputError(f"largest_gap: {text!r} is no time; say 0.5s, 200ms or a number of rows")
    return number * _UNITS[unit], "seconds"


def _parse(text: str | float, name: str, example: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(str(text))
    try:
        number = float(found.group(1)) if found else 0.0
    except ValueError:
        number = 0.0
    if found is None or number <= 0.0:
        raise InputError(f"{name}: {text!r} is not above 0 or no quantity; say {example}")
    return number, found.group(2)


def regular(
    recording: Recording,
    resample: str | float | None = None,
    fill: Literal["linear", "previous"] | None = "linear",
    largest_gap: str | float | None = None,
) -> Recording:
    """Even steps of time, and missing values filled.

    Parameters
    ----------
    recording
        What `read_recording` gave.
    resample
        The new rate, 100 or "100Hz" or "10ms"; None keeps the rows.
    fill
        How values are found between rows; None fills nothing.
    largest_gap
        What is at most this far apart is filled, "0.5s" or a number of (new) rows; None: only between neighbours on
        even steps (1.5 steps of the old rate), so that no gap is filled.

    Returns
    -------
    A new recording; what is not filled stays missing.

    Raises
    ------
    InputError
        A rate without a time column, or a word that is not known.

    Examples
    --------
    >>> slow = Recording(np.array([[0.0], [2.0], [4.0]]), ("torque",), np.array([0.0, 1.0, 2.0]))
    >>> regular(slow, resample="2Hz").values[:, 0].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if fill not in (None, "linear", "previous"):
        raise InputError(f"fill: {fill!r} is not known; say linear or previous")
    if resample is None:
        return _fill_rows(recording, fill, largest_gap)
    if recording.times is None:
        raise InputError("resample: there is no time column to go by; name it with --time")
    step = find_step(recording.times)
    if step is None:
        raise InputError("resample: at least two rows with different times are needed")
    rate = parse_rate(resample)
    allowed = _allow(largest_gap, 1.0 / rate, default=1.5 * max(step, 1.0 / rate))
    times = recording.times
    first = np.ceil(round(times[0] * rate, 6)) if fill != "previous" else np.ceil(times[0] * rate)
    new = (first + np.arange(int(np.floor(times[-1] * rate - first + 1e-6)) + 1)) / rate
    averaged = 1.0 / step > AVERAGED * rate
    columns = [
        _average(new, times, column, rate, allowed) if averaged else _interpolate(new, times, column, fill, allowed)
        for column in recording.values.T
    ]
    values = np.stack(columns, axis=1) if columns else np.empty((len(new), 0))
    said = f"{recording.said}; put on {rate:g} Hz ({'means' if averaged else fill or 'nearest rows'})"
    said += f", gaps up to {format_seconds(allowed)} filled"
    return Recording(values, recording.channels, new, None, said, recording.passed)


def _allow(largest_gap: str | float | None, step: float, default: float) -> float:
    if largest_gap is None:
        return default
    number, unit = parse_gap(largest_gap)
    return number if unit == "seconds" else (number + 1.0) * step


def _interpolate(
    new: NDArray[np.float64],
    times: NDArray[np.float64],
    column: Floats,
    fill: Literal["linear", "previous"] | None,
    allowed: float,
) -> NDArray[np.float64]:
    """The rows that have a value are the knots; where two of them are too far apart nothing is put between."""
    known = np.isfinite(column)
    knots, values = times[known], column[known].astype(np.float64)
    if not len(knots):
        return np.full(len(new), np.nan)
    slack = 1e-6 * max(allowed, 1e-6)
    after = np.clip(np.searchsorted(knots, new - slack, side="left"), 0, len(knots) - 1)
    before = np.clip(np.searchsorted(knots, new + slack, side="right") - 1, 0, len(knots) - 1)
    exact = np.abs(knots[after] - new) <= slack
    outside = ~exact & ((new < knots[0]) | (new > knots[-1]))
    far = (knots[after] - knots[before]) > allowed + slack
    if fill == "previous":
        far = (new - knots[before]) > allowed + slack
        found = values[before]
    else:
        found = np.interp(new, knots, values)
    found = np.where(exact, values[after], found)
    if fill is None:
        far = ~exact
    return np.where((far & ~exact) | outside, np.nan, found)


def _average(
    new: NDArray[np.float64], times: NDArray[np.float64], column: Floats, rate: float, allowed: float
) -> NDArray[np.float64]:
    """The mean over the rows of each new step (from half a step before to half a step after)."""
    known = np.isfinite(column)
    place = np.floor((times[known] - new[0]) * rate + 0.5).astype(np.int64)
    inside = (place >= 0) & (place < len(new))
    counts = np.bincount(place[inside], minlength=len(new))
    sums = np.bincount(place[inside], column[known][inside].astype(np.float64), minlength=len(new))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return _interpolate(new, new, means, "linear", max(allowed, 1.0 / rate))


def _fill_rows(
    recording: Recording, fill: Literal["linear", "previous"] | None, largest_gap: str | float | None
) -> Recording:
    """The same rows, missing values filled; without times a row is a step."""
    if fill is None:
        return recording
    if largest_gap is None:
        raise InputError("fill: say up to which length gaps may be filled, such as largest_gap 0.5s or 3 rows")
    number, unit = parse_gap(largest_gap)
    if recording.times is None and unit == "seconds":
        raise InputError("largest_gap: there is no time column; give a number of rows")
    times = np.arange(len(recording), dtype=np.float64) if unit == "rows" else recording.times
    assert times is not None
    allowed = number + 1.0 if unit == "rows" else number
    columns = [_interpolate(times, times, column, fill, allowed) for column in recording.values.T]
    said = f"{recording.said}; gaps up to {largest_gap} filled ({fill})"
    return Recording(
        np.stack(columns, axis=1), recording.channels, recording.times, recording.groups, said, recording.passed
    )


def make_regular(recording: Recording, options: ReadOptions) -> Recording:
    """As the options say."""
    if not options.regularizes:
        if options.largest_gap is not None:
            raise InputError(
                f"largest_gap: {options.largest_gap} fills nothing by itself; say --fill or --resample too"
            )
        return recording
    fill = options.fill or ("linear" if options.resample is not None else None)
    return regular(recording, options.resample, fill, options.largest_gap)
