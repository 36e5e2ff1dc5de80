"""Files of someone who writes no Python -> examples for a model. Enters: a file or a folder, and the model's shape.

A file of as many columns as the model has channels is a recording, cut into windows; a table with one example per row
has as many columns as an example has values; a picture is one example.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewone.datasets.example_files import SUFFIXES, read_file
from fewone.detector.pictures import takes_any_picture
from fewone.detector.recordings import windows
from fewone.errors import FewoneError
from fewone.picture_files import PICTURES, decode
from fewone.zoo import advise


@dataclass(frozen=True)
class FileExamples:
    """The examples of one file: values (n, *shape), places (n,) the first time step or the row of each, from 0.

    recording: they are windows of one recording, and one decision over all of them counts.
    """

    file: Path
    values: NDArray[Any]
    places: NDArray[np.int64]
    recording: bool


def list_files(path: Path) -> list[Path]:
    """The file itself, or every file of the folder that can be read, by name; hidden files are passed over."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FewoneError(f"{path}: no such file or folder")
    files = sorted(file for file in path.iterdir() if file.is_file() and file.suffix.lower() in SUFFIXES)
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise FewoneError(f"{path}: holds no file that can be read; put {', '.join(SUFFIXES)} there")
    return files


def read_examples(file: Path, shape: tuple[int, ...], stride: int | None = None) -> FileExamples:
    """The examples of a file for a model of inputs of this shape; anything else is refused, never resized."""
    if takes_any_picture(shape):
        return _look_at_picture(file)
    (piece,) = read_file(file)
    values = piece.values.astype(np.float32)
    if values.ndim == 3:
        return _read_picture(file, values, shape)
    if len(shape) != 2:
        raise FewoneError(f"{file}: a series, but the model takes pictures of shape {shape}; {advise(values.shape)}")
    channels, length = shape
    columns, rows = values.shape
    if columns == channels and rows >= length:
        step = length if stride is None else stride
        cut = windows(values.T, length, step)
        return FileExamples(file, cut, step * np.arange(len(cut)), recording=True)
    if columns == channels * length:
        return FileExamples(file, values.T.reshape(rows, *shape), np.arange(rows), recording=False)
    raise FewoneError(
        f"{file}: {rows} rows of {columns} columns; expected a recording of {channels} columns (channels) and at least"
        f" {length} rows (time steps), or a table of {channels * length} columns with one example per row;"
        f" {advise((columns, rows) if columns > 1 else (rows,))}"
    )


def _read_picture(file: Path, values: NDArray[np.floating], shape: tuple[int, ...]) -> FileExamples:
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
    found = decode(file)
    if found.planes is None:
        raise FewoneError(found.fault or f"{file}: cannot be read")
    return FileExamples(file, found.planes[None], np.zeros(1, np.int64), recording=False)
