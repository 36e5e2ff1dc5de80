"""A long recording -> windows, and window scores -> a score per time step. Enters: arrays or chunks of them.

Knows no learner and no threshold; memory does not grow with the length of a stream of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewone.errors import InputError

BLOCK_VALUES = 1 << 21
"""Long recordings are taken in pieces of about this many values, so that memory stays flat."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class WindowBlock:
    """Windows that start at the time steps `starts` (m,): values (m, channels, window)."""

    starts: NDArray[np.int64]
    values: Floats


@dataclass(frozen=True)
class SeriesScores:
    """Scores of a recording, or of the next piece of a stream of chunks; below 0 = anomalous, as everywhere outside.

    Attributes
    ----------
    starts
        (m,) the time step at which each window begins.
    windows
        (m,) the decision value of each window.
    first_step
        The time step of steps[0].
    steps
        (n,) the mean over the windows that cover each time step; NaN where a stride beyond the window leaves a gap.

    Examples
    --------
    >>> import fewone, numpy as np
    >>> series = np.sin(np.arange(1280) / 4)
    >>> scores = fewone.load("series").fit(fewone.windows(series, 128)).score_series(series, stride=64)
    >>> scores.starts[:3].tolist(), len(scores.windows), len(scores.steps)
    ([0, 64, 128], 19, 1280)
    """

    starts: NDArray[np.int64]
    windows: NDArray[np.float64]
    first_step: int
    steps: NDArray[np.float64]


def windows(series: ArrayLike, window: int, stride: int | None = None) -> Floats:
    """Cut a recording into windows of `window` time steps, one every `stride` (default: window, no overlap).

    Parameters
    ----------
    window
        Time steps of a window.
    stride
        Steps from one window to the next; None: the window.
    series
        (length,) or (length, channels); rows are time steps, as in a table or a file.

    Returns
    -------
    (n, window) for a series without a channel axis, else (n, channels, window): a read-only view where that is
    possible. What remains at the end and fills no window is left out.

    Raises
    ------
    InputError
        The recording is shorter than a window.

    Examples
    --------
    >>> windows([1, 2, 3, 4, 5], 3, stride=2)
    array([[1., 2., 3.],
           [3., 4., 5.]], dtype=float32)
    """
    rows = as_recording(series)
    step = _check_stride(window, stride)
    if len(rows) < window:
        raise InputError(_too_short(len(rows), rows.shape[1], window))
    view = np.lib.stride_tricks.sliding_window_view(rows, window, axis=0)[::step]
    return view[:, 0] if np.ndim(series) == 1 else view


def as_recording(series: ArrayLike) -> Floats:
    """(length,) or (length, channels) of any number type -> floats (length, channels)."""
    values = np.asarray(series)
    if values.dtype.kind not in "fiub":
        raise InputError(f"a series of numbers is expected, got values of type {values.dtype}")
    if values.ndim not in (1, 2):
        raise InputError(f"a series is (length,) or (length, channels), got an array of shape {values.shape}")
    wide = values.dtype.kind == "f" and values.itemsize > 4
    rows: Floats = values.astype(np.float64 if wide else np.float32, copy=False)
    return rows[:, None] if rows.ndim == 1 else rows


def stream_windows(chunks: Iterable[ArrayLike], window: int, stride: int | None = None) -> Iterator[WindowBlock]:
    """Windows of a recording that arrives in chunks of rows, whatever their sizes.

    The last window ends where the recording ends, so that every time step is covered (if stride <= window).
    """
    step = _check_stride(window, stride)
    held = np.empty((0, 0), np.float32)
    length = upcoming = 0  # rows seen so far; the time step at which the next window starts
    for rows in _pieces(chunks):
        if length and rows.shape[1] != held.shape[1]:
            raise InputError(f"the chunk at time step {length} has {rows.shape[1]} channels, before {held.shape[1]}")
        _check_finite(rows, length)
        held = np.concatenate([held, rows]) if length else rows
        length += len(rows)
        held_start = length - len(held)
        if upcoming + window <= length:
            view = np.lib.stride_tricks.sliding_window_view(held[upcoming - held_start :], window, axis=0)[::step]
            yield WindowBlock(upcoming + step * np.arange(len(view)), view)
            upcoming += step * len(view)
        # The last window of all may start before the next regular one: `window` rows are kept for it.
        held = held[max(0, min(upcoming, length - window) - held_start) :].copy()
    if length < window:
        raise InputError(_too_short(length, held.shape[1], window))
    if upcoming - step + window < length:
        yield WindowBlock(np.array([length - window]), held[-window:].T[None])


def score_steps(
    blocks: Iterable[WindowBlock], score: Callable[[Floats], NDArray[np.float64]]
) -> Iterator[SeriesScores]:
    """Score each block of windows and spread the scores over the time steps they cover.

    Each piece holds the time steps that no later window covers; the pieces laid end to end are the whole recording.
    """
    first = 0
    total, count = np.zeros(0), np.zeros(0, np.int64)
    previous: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
    for block in blocks:
        if previous is not None:
            done = int(previous[0][-1]) + 1 - first
            yield SeriesScores(*previous, first, _mean(total[:done], count[:done]))
            total, count, first = total[done:], count[done:], first + done
        scores = score(block.values)
        window = block.values.shape[-1]
        begins = block.starts - first
        span = int(begins[-1]) + window
        total, count = np.pad(total, (0, span - len(total))), np.pad(count, (0, span - len(count)))
        total += _spread(begins, scores, window, span)
        count += np.rint(_spread(begins, np.ones(len(begins)), window, span)).astype(np.int64)
        previous = block.starts, scores
    if previous is not None:
        yield SeriesScores(*previous, first, _mean(total, count))


def join_scores(pieces: Iterable[SeriesScores]) -> SeriesScores:
    """The pieces of a stream as one."""
    parts = list(pieces)
    return SeriesScores(
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.windows for part in parts]),
        parts[0].first_step,
        np.concatenate([part.steps for part in parts]),
    )


def _pieces(chunks: Iterable[ArrayLike]) -> Iterator[Floats]:
    """The chunks as floats (rows, channels), large ones cut so that no step of the work is large."""
    for chunk in chunks:
        raw = np.asarray(chunk)
        rows_at_once = max(1, BLOCK_VALUES // max(1, raw[:1].size))
        for begin in range(0, len(raw), rows_at_once):
            yield as_recording(raw[begin : begin + rows_at_once])


def _spread(begins: NDArray[np.int64], values: NDArray[np.float64], window: int, span: int) -> NDArray[np.float64]:
    """The sum of `values` over the windows that cover each of `span` steps, (span,)."""
    changes = np.zeros(span + 1)
    np.add.at(changes, begins, values)
    np.add.at(changes, begins + window, -values)
    return np.cumsum(changes)[:span]


def _mean(total: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _check_stride(window: int, stride: int | None) -> int:
    for name, value in (("window", window), ("stride", stride)):
        if not (value is None and name == "stride") and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise InputError(f"{name} is {value!r}: a whole number is expected, got {type(value).__name__}")
    step = window if stride is None else stride
    if window < 1 or step < 1:
        raise InputError(f"window and stride are at least 1, got window {window} and stride {step}")
    return step


def _check_finite(rows: Floats, before: int) -> None:
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        place = before + int(np.argmin(finite))
        raise InputError(f"the series has NaN or infinite values, first at time step {place}; fill or cut them")


def _too_short(length: int, channels: int, window: int) -> str:
    turned = "; are rows and columns exchanged?" if channels >= window else ""
    return f"the series has {length} time steps, a window takes {window}{turned}"
