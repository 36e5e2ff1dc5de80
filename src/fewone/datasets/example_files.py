"""One file of a user -> arrays: series as `fewone.reading` reads them, .png and .jpg images, .npz examples by label.

Nothing is ever unpickled. Every refusal is one line: the file, the place in it, the reason, the remedy.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewone.errors import FewoneError
from fewone.reading import RECORDINGS, ReadOptions, Recording, find_suffix, read_with
from fewone.reading.array_files import refuse

Array = NDArray[np.generic]

IMAGES = (".png", ".jpg", ".jpeg")
SUFFIXES = (*RECORDINGS, *IMAGES)


@dataclass(frozen=True)
class Piece:
    """One whole example as read: a series (channels, length) float32 or an image (channels, height, width) uint8.

    group: the value of the grouping column, where there is one.
    """

    values: Array
    group: str | None = None


def read_file(path: Path, column: str | None = None, options: ReadOptions | None = None) -> list[Piece]:
    """The example in one file; with a grouping column, one example for each run of rows that share its value.

    A value that is missing is an error: a history to learn from has no gaps, or is filled by order.
    """
    if path.suffix.lower() in IMAGES:
        return [Piece(_read_image(path))]
    if find_suffix(path) not in RECORDINGS:
        raise FewoneError(f"{path}: this kind of file is not read; use {', '.join(SUFFIXES)}, or take it out")
    recording = read_with(path, options or ReadOptions(), column)
    if recording.groups is None:
        return [Piece(_check_series(path, recording))]
    runs = groupby(range(len(recording)), key=recording.groups.__getitem__)
    return [Piece(_check_series(path, recording, list(rows)), value) for value, rows in runs]


def read_archive(path: Path) -> dict[str, Array]:
    """The arrays of TASK.npz: normal and, if there, anomalous, (n, length), (n, channels, length) or images."""
    try:
        # The file is opened here because numpy leaves it open when the archive is broken.
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                raise ValueError("it does not begin as an archive does")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise refuse(path, error, "numpy.savez") from None
    unknown = sorted(set(arrays) - {"normal", "anomalous"})
    if "normal" not in arrays or unknown:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise FewoneError(f"{path}: holds {found}; it must hold the arrays 'normal' and 'anomalous' and no other")
    return {name: _check_examples(path, name, array) for name, array in arrays.items()}


def _check_examples(path: Path, name: str, array: Array) -> Array:
    if array.ndim not in (2, 3, 4) or not _is_real(array):
        raise FewoneError(
            f"{path}: {name} has shape {array.shape} and type {array.dtype}; numbers of shape (n, length),"
            f" (n, channels, length) or (n, channels, height, width) are read"
        )
    if not len(array):
        raise FewoneError(f"{path}: holds no {name} example; fill the array or leave it out")
    if 0 in array.shape[1:]:
        raise FewoneError(f"{path}: {name} has shape {array.shape}, its examples are empty; store at least one value")
    _check_finite(path, array, f"{name}, example")
    examples = array[:, None, :] if array.ndim == 2 else array
    return examples if examples.dtype == np.uint8 and examples.ndim == 4 else examples.astype(np.float32)


def _check_series(path: Path, recording: Recording, rows: list[int] | None = None) -> Array:
    """(length, channels) -> (channels, length) float32, of all rows or of some."""
    _check_finite(path, recording.values, "row")
    found = recording.inspect()
    if found.gaps:
        raise FewoneError(f"{path}: {found}; fix it, or say how in reading.toml: resample, fill and largest_gap")
    values = recording.values if rows is None else recording.values[rows]
    return np.ascontiguousarray(values.T, dtype=np.float32)


def _is_real(array: Array) -> bool:
    return array.dtype.kind in "fiub"


def _check_finite(path: Path, array: Array, place: str) -> None:
    # Values beyond single precision would turn into infinity on the way into the store.
    finite = np.isfinite(array) & (np.abs(array) <= np.finfo(np.float32).max) if array.dtype.kind == "f" else None
    if finite is not None and not finite.all():
        where = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        raise FewoneError(
            f"{path}: {place} {where[0] + 1} holds {array[where]}, not a finite number of single precision;"
            f" fix or remove it"
        )


def _read_image(path: Path) -> Array:
    """A grey image as (1, height, width), any other as red, green, blue (3, height, width), uint8."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L")
            pixels = np.asarray(image.convert("L" if grey else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise FewoneError(f"{path}: broken or cut off ({error}); save the image again") from None
    return np.ascontiguousarray(pixels[None] if grey else pixels.transpose(2, 0, 1))
