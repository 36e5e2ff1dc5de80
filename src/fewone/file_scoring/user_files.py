"""Files of someone who writes no Python -> examples for a model. Enters: a file or a folder, and the model's shape.

A file of as many columns as the model has channels is a recording, cut into windows; a table with one example per row
has as many columns as an example has values; a picture is one example. A window that spans a gap or lacks a value is
no example: it is left out, and its place is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewone.datasets.example_files import SUFFIXES, read_file
from fewone.errors import FewoneError
from fewone.picture_files import PICTURES, Decoded, decode, takes_any_picture
from fewone.reading import Findings, Inspector, ReadOptions, Recording, is_recording, stream_recording
from fewone.zoo import advise

Progress = Callable[[float], None]

NOWHERE: NDArray[np.int64] = np.zeros(0, np.int64)
RATE_SLACK = 0.05
"""Sampling rates that differ by no more are the same: stamps are rounded and clocks drift."""
LARGEST_WHOLE = 4096
"""Recordings of one length up to this are examples as they are, for a model of any length."""
SHORTEST_PERIOD = 8
GOLDEN = 0.381966
"""The golden section of a period: steps of it fall into ever other places, the most evenly of all."""
USUAL_WINDOW = 128
"""Of recordings in which nothing repeats, for a model of any length."""
LEAST_ROW = 16
"""For a model of any length, a file of so many columns or more is a table with one window per row, not a recording."""


@dataclass(frozen=True)
class FileExamples:
    """The examples of one file: values (n, *shape), places (n,) the first time step or the row of each, from 0.

    recording: they are windows of one recording, and one decision over all of them counts. not_judged: the places of
    windows or rows that were left out because values are missing. said: how the file was read. findings: what is
    missing.
    """

    file: Path
    values: NDArray[Any]
    places: NDArray[np.int64]
    recording: bool
    not_judged: NDArray[np.int64] = field(default_factory=NOWHERE.copy)
    said: str = ""
    findings: Findings = field(default_factory=Findings)


def list_files(path: Path) -> list[Path]:
    """The file itself, or every file of the folder that can be read, by name; hidden files are passed over."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FewoneError(f"{path}: no such file or folder")
    files = sorted(file for file in path.iterdir() if can_be_read(file) and file.is_file())
    if not files:
        raise FewoneError(f"{path}: holds no file that can be read; put {', '.join(SUFFIXES)} there")
    return files


def can_be_read(file: Path) -> bool:
    """By its name; hidden files are passed over."""
    return not file.name.startswith(".") and (is_recording(file) or file.suffix.lower() in PICTURES)


def read_examples(
    file: Path,
    shape: tuple[int, ...],
    stride: int | None = None,
    options: ReadOptions | None = None,
    tail: bool = False,
    sampling_rate: float | None = None,
) -> FileExamples:
    """The examples of a file for a model of inputs of this shape; anything else is refused, never resized.

    tail: a last window ends where the recording ends, so that all of it is judged. sampling_rate: what the model takes;
    a file whose times tell another one is refused.
    """
    blocks = list(stream_examples(file, shape, stride, options, tail, sampling_rate))
    last = blocks[-1]
    return FileExamples(
        file,
        np.concatenate([block.values for block in blocks]),
        np.concatenate([block.places for block in blocks]),
        last.recording,
        np.concatenate([block.not_judged for block in blocks]),
        last.said,
        last.findings,
    )


def stream_examples(
    file: Path,
    shape: tuple[int, ...],
    stride: int | None = None,
    options: ReadOptions | None = None,
    tail: bool = False,
    sampling_rate: float | None = None,
    progress: Progress | None = None,
) -> Iterator[FileExamples]:
    """The same block by block: memory does not grow with the file. The findings are those up to each block."""
    if takes_any_picture(shape):
        yield _look_at_picture(file)
        return
    if file.suffix.lower() in PICTURES:
        (picture,) = read_file(file)
        yield _take_picture(file, picture.values.astype(np.float32), shape)
        return
    if len(shape) != 2:
        raise FewoneError(f"{file}: a series, but the model takes pictures of shape {shape}; {advise((1, 1))}")
    channels, length = shape
    said, pieces = stream_recording(file, options or ReadOptions(), progress)
    inspector, rows = Inspector(), 0
    cutter: Cutter | None = None
    for piece in pieces:
        with np.errstate(over="ignore"):  # what single precision cannot hold counts as missing
            values = piece.values.astype(np.float32)
        columns = values.shape[1]
        missing, jumps = inspector.add(Recording(values, piece.channels, piece.times, passed=piece.passed))
        if columns == channels:
            _check_rate(file, inspector.findings, sampling_rate)
            cutter = cutter or Cutter(channels, length, length if stride is None else stride)
            block = cutter.add(values, missing, jumps)
            yield FileExamples(file, *block[:2], True, block[2], said, inspector.findings)
        elif columns == channels * length:
            table = values.reshape(len(values), *shape)
            places = rows + np.arange(len(values))
            yield FileExamples(
                file, table[~missing], places[~missing], False, places[missing], said, inspector.findings
            )
        rows += len(values)
    if columns not in (channels, channels * length) or (columns == channels and rows < length):
        raise FewoneError(
            f"{file}: {rows} rows of {columns} columns ({said}); expected a recording of {channels} columns (channels)"
            f" and at least {length} rows (time steps), or a table of {channels * length} columns with one example per"
            f" row; {advise((columns, rows) if columns > 1 else (rows,))}"
        )
    if cutter is not None and tail:
        block = cutter.end()
        yield FileExamples(file, *block[:2], True, block[2], said, inspector.findings)


def read_at(file: Path, shape: tuple[int, ...], place: int, options: ReadOptions | None = None) -> NDArray[Any]:
    """One example again: the row of a table, the window of a recording that begins at a time step, or the picture."""
    if file.suffix.lower() in PICTURES:
        picture: NDArray[Any] = read_examples(file, shape).values[0]
        return picture
    channels, length = shape
    rows, begin, end = 0, place, place + length
    kept: list[NDArray[Any]] = []
    for piece in stream_recording(file, options or ReadOptions())[1]:
        values = piece.values.astype(np.float32)
        if values.shape[1] != channels:
            begin, end = place, place + 1
        kept.append(values[max(0, begin - rows) : max(0, end - rows)])
        rows += len(values)
        if rows >= end:
            break
    found: NDArray[Any] = np.concatenate(kept)
    return found.T if found.shape[1] == channels else found.reshape(shape)


def check_stride(stride: int | None) -> None:
    """Before any file is read: what is wrong with the option is no fault of a file."""
    if stride is not None and stride < 1:
        raise FewoneError(f"--stride {stride}: at least 1 time step is needed")


class Cutter:
    """Cuts a recording that comes in pieces into windows, one every `stride`, and leaves out those with a gap."""

    def __init__(self, channels: int, window: int, stride: int) -> None:
        if window < 1 or stride < 1:
            raise FewoneError(f"window and stride are at least 1, got window {window} and stride {stride}")
        self._window, self._stride = window, stride
        self._values = np.empty((0, channels), np.float32)
        self._faults = np.empty((2, 0), bool)
        self._length = self._upcoming = 0

    def add(
        self, values: NDArray[Any], missing: NDArray[np.bool_], jumps: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """Windows (m, channels, window) without a fault, their places, and the places of those with one."""
        self._values = np.concatenate([self._values, values])
        self._faults = np.concatenate([self._faults, np.stack([missing, jumps])], axis=1)
        self._length += len(values)
        count = max(0, (self._length - self._window - self._upcoming) // self._stride + 1)
        found = self._cut(self._upcoming + self._stride * np.arange(count))
        self._upcoming += self._stride * count
        # The last window of all may start before the next regular one: `window` rows are kept for it.
        held = max(0, min(self._upcoming, self._length - self._window) - (self._length - len(self._values)))
        self._values, self._faults = self._values[held:].copy(), self._faults[:, held:].copy()
        return found

    def end(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """The window that ends where the recording ends, if no other does."""
        covered = self._upcoming - self._stride + self._window >= self._length
        return self._cut(NOWHERE if covered else np.array([self._length - self._window]))

    def _cut(self, places: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        if not len(places):
            return np.empty((0, self._values.shape[1], self._window), np.float32), NOWHERE, NOWHERE
        starts = places - (self._length - len(self._values))
        missing, jumps = np.cumsum(np.pad(self._faults, ((0, 0), (1, 0))), axis=1)
        ends = starts + self._window
        # A jump before the first row of a window lies outside of it.
        faulty = (missing[ends] > missing[starts]) | (jumps[ends] > jumps[starts + 1])
        view = np.lib.stride_tricks.sliding_window_view(self._values, self._window, axis=0)
        return view[starts[~faulty]], places[~faulty], places[faulty]


def choose_shape(
    shape: tuple[int, ...], files: list[Path], window: int | None, options: ReadOptions
) -> tuple[int, ...]:
    """The shape of one example: the model's, and where that is open the files' channels and the window.

    Without a window: a file of LEAST_ROW columns or more is a table with one window per row (a window makes it a
    recording of so many channels); recordings are taken as they are, if all have one length, else cut into
    windows of two periods and a part of the first of them.
    """
    if window is not None and window < 1:
        raise FewoneError(f"--window {window}: at least 1 time step is needed")
    if len(shape) != 2 or any(not is_recording(file) for file in files):
        return shape
    if shape[1] and window is not None and window != shape[1]:
        raise FewoneError(f"--window {window}: the model takes windows of {shape[1]} time steps; leave it out")
    if all(shape):
        return shape
    lengths, first = set(), None
    for file in files:
        try:
            pieces = [piece.values for piece in stream_recording(file, options)[1]]
        except FewoneError:
            if len(files) == 1:
                raise
            continue  # whoever reads the examples tells of it
        lengths.add(sum(map(len, pieces)))
        first = np.concatenate(pieces) if first is None else first
        if window is not None or len(lengths) > 1:
            break
    if first is None:
        raise FewoneError(f"{files[0].parent}: none of {len(files)} files can be read; look at {files[0].name} first")
    if window is None and not shape[0] and first.shape[1] >= LEAST_ROW:
        return 1, first.shape[1]
    if window is None and len(lengths) == 1 and len(files) > 1 and max(lengths) <= LARGEST_WHOLE:
        window = max(lengths)
    return shape[0] or first.shape[1], shape[1] or window or choose_window(first)


def choose_window(values: NDArray[Any]) -> int:
    """More than two periods of a recording (length, channels), out of step with them; or the usual window.

    Windows of whole periods would all begin at one phase, and a recording that begins at another one would look
    anomalous. Of a length of 2 + GOLDEN periods, without a common divisor, they begin at phases that are spread evenly.
    """
    period = find_period(values)
    if period is None:
        return min(USUAL_WINDOW, len(values))
    lengths = (length for length in range(2 * period + 1, 3 * period) if gcd(length, period) == 1)
    length = min(lengths, key=lambda length: abs(length - (2.0 + GOLDEN) * period))
    return min(length, LARGEST_WHOLE, len(values))


def find_stride_out_of_step(values: NDArray[Any], stride: int) -> tuple[int, int] | None:
    """Where windows of a recording (length, channels), one every stride, leave out half of all phases of what repeats:
    its period, and a shorter stride that does not."""
    period = find_period(values)
    count = len(values) // stride
    if period is None or count < 2:
        return None
    phases = np.sort(np.arange(count) * stride / period % 1.0)
    if np.diff(phases, append=phases[0] + 1.0).max() <= 0.5:
        return None
    shorter = stride - stride % period + round(GOLDEN * period)
    return period, max(1, shorter if shorter <= stride else shorter - period)


def find_period(values: NDArray[Any]) -> int | None:
    """The lag at which a recording (length, channels) is most like itself; None: it repeats nothing, or too fast."""
    rows = values[np.isfinite(values).all(axis=1)][: 1 << 16].astype(np.float64)
    rows = rows - rows.mean(axis=0)
    spread = rows.std(axis=0)
    rows = rows[:, spread > 0] / spread[spread > 0]
    if rows.shape[1] == 0 or len(rows) < 4 * SHORTEST_PERIOD:
        return None
    spectrum = np.abs(np.fft.rfft(rows, 2 * len(rows), axis=0)) ** 2
    likeness = np.fft.irfft(spectrum.mean(axis=1))[: len(rows) // 2]
    likeness = likeness / likeness[0] * len(rows) / (len(rows) - np.arange(len(likeness)))
    below = np.flatnonzero(likeness < 0.0)
    highest = likeness[below[0] :].max() if len(below) else 0.0
    if highest < 0.3:
        return None
    # The first of the peaks that are as good as the highest: multiples of a period repeat as well.
    rest = likeness[below[0] :]
    peaks = np.flatnonzero((rest[1:-1] >= rest[:-2]) & (rest[1:-1] >= rest[2:]) & (rest[1:-1] > 0.8 * highest)) + 1
    lag = int(below[0] + (peaks[0] if len(peaks) else rest.argmax()))
    return lag if lag >= SHORTEST_PERIOD else None


def _check_rate(file: Path, findings: Findings, wanted: float | None) -> None:
    found = findings.sampling_rate
    if wanted is not None and found is not None and abs(found / wanted - 1.0) > RATE_SLACK:
        raise FewoneError(
            f"{file}: its times tell {found:.5g} Hz, the detector takes {wanted:.5g} Hz; say --resample {wanted:g}Hz,"
            f" or --time none if that column is no time"
        )


def _take_picture(file: Path, values: NDArray[np.floating], shape: tuple[int, ...]) -> FileExamples:
    if values.shape != shape:
        channels, height, width = values.shape
        raise FewoneError(
            f"{file}: a picture of {height}x{width} pixels with {channels} channels, the model takes {shape}"
            f" (channels, height, width); {advise(values.shape)}"
        )
    return FileExamples(file, values[None], np.zeros(1, np.int64), recording=False)


def _look_at_picture(file: Path) -> FileExamples:
    """For a model of pictures of every size: planes of one size, of the type that the file has."""
    if file.suffix.lower() not in PICTURES:
        raise FewoneError(f"{file}: not a picture, and the model takes pictures; put {', '.join(PICTURES)} there")
    return take_decoded(decode(file))


def take_decoded(picture: Decoded) -> FileExamples:
    """A picture that was decoded elsewhere; what cannot be read is refused with the reason."""
    if picture.planes is None:
        raise FewoneError(picture.fault or f"{picture.file}: cannot be read")
    return FileExamples(picture.file, picture.planes[None], np.zeros(1, np.int64), recording=False)
