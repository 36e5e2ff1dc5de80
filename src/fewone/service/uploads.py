"""What clients send -> things to fit and to score. Enters: JSON or files, not to be trusted. Leaves: arrays in limits.

Sizes are read from the files' heads before anything is decoded; nothing is unpickled; names are shown, never opened.
"""

from __future__ import annotations

import io
import json
import tempfile
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewone.datasets.example_files import read_file
from fewone.errors import FewoneError, InputError
from fewone.extras import needed_for
from fewone.service.errors import ServiceError
from fewone.service.judging import Thing, cut
from fewone.service.settings import Limits

Array = NDArray[Any]

PICTURES = (".png", ".jpg", ".jpeg")
SUFFIXES = (".csv", ".tsv", ".npy", ".parquet", ".wav", *PICTURES)
OPTIONS_ELSEWHERE = " (options are the command line's; what is sent here must need none)"
WHOLE_WINDOW = 4096
"""Recordings of one length up to this are taken whole by a model of any length."""


@dataclass(frozen=True)
class Upload:
    """A file as it came: the name is a label and nothing else."""

    name: str
    content: bytes


def clean_label(name: str, largest: int = 200) -> str:
    """A client's file or source name without folders and control characters."""
    last = PurePosixPath(name.replace("\\", "/")).name
    printable = "".join(letter if letter.isprintable() else "_" for letter in last)
    return printable[:largest].strip() or "unnamed"


def parse_json(body: bytes) -> dict[str, Any]:
    """One JSON object, however deep it pretends to be."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ServiceError(400, f"body: not JSON ({reason}); send one JSON object") from error
    if not isinstance(found, dict):
        raise ServiceError(400, f"body: one JSON object is expected, got {type(found).__name__}")
    return found


def as_numbers(nested: object, name: str, limits: Limits) -> Array:
    """Nested lists as an array of finite float32 numbers."""
    if not isinstance(nested, list) or not nested:
        raise ServiceError(
            422, f"{name}: a list of numbers or of lists of numbers is expected, and it may not be empty"
        )
    try:
        array = np.asarray(nested)
    except ValueError as error:
        raise ServiceError(
            422, f"{name}: all rows must have one length; send recordings of different lengths apart"
        ) from error
    if array.dtype.kind not in "fiub" or array.size == 0:
        raise ServiceError(
            422, f"{name}: numbers are expected, got values of type {array.dtype} in shape {array.shape}"
        )
    return _check_values(array, name, limits)


def read_upload(upload: Upload, limits: Limits) -> Array:
    """The values of a file: a series (length, channels) or a picture (channels, height, width)."""
    label = clean_label(upload.name)
    suffix = PurePosixPath(label).suffix.lower()
    if suffix not in SUFFIXES:
        raise ServiceError(415, f"{label}: this kind of file is not read; send {', '.join(SUFFIXES)}")
    _check_head(label, suffix, upload.content, limits)
    with tempfile.TemporaryDirectory(prefix="fewone-upload-") as folder:
        path = Path(folder) / f"upload{suffix}"
        path.write_bytes(upload.content)
        try:
            (piece,) = read_file(path)
        except FewoneError as error:
            told = str(error).replace(str(path), label)
            raise ServiceError(422, told + OPTIONS_ELSEWHERE if " --" in told else told) from error
        except (MemoryError, RecursionError, ValueError, OSError, EOFError) as error:
            raise ServiceError(422, f"{label}: broken or cut off; write the file again") from error
    values: Array = piece.values
    return _check_values(values if values.ndim == 3 else values.T, label, limits)


def as_thing(source: str, values: Array, shape: tuple[int, ...]) -> Thing:
    """What a file holds, for a detector of examples of this shape: a picture, a recording, or a table of examples."""
    if values.ndim == 3 or len(shape) == 3:
        if values.ndim != len(shape):
            kinds = ("a picture", "pictures") if values.ndim == 3 else ("a series", "series")
            wanted = "pictures" if len(shape) == 3 else "series"
            raise InputError(f"{source}: {kinds[0]}, but the detector takes {wanted}; send {wanted}")
        return Thing(source, "picture", values[None])
    channels, length = shape
    rows, columns = values.shape
    if columns == channels and rows >= length:
        return Thing(source, "recording", values)
    if columns == channels * length:
        return Thing(source, "example", values.reshape(rows, channels, length))
    raise InputError(
        f"{source}: {rows} rows of {columns} columns; expected a recording of {channels} columns (channels) and"
        f" at least {length} rows (time steps), or a table of {channels * length} columns with one example per row"
    )


def choose_shape(shape: tuple[int, ...], series: Sequence[Array], window: int | None) -> tuple[int, ...]:
    """The shape of one example where the model takes any: channels as they came, the window as asked or whole."""
    if len(shape) != 2 or not series or all(shape):
        return shape
    first = series[0]
    if first.ndim != 2:
        return shape
    lengths = sorted({len(values) for values in series})
    if window is None and len(lengths) == 1 and lengths[0] <= WHOLE_WINDOW:
        window = lengths[0]
    if window is None and shape[1] == 0:
        raise InputError(
            f"the recordings have {lengths[0]} to {lengths[-1]} time steps and the model takes windows of any length;"
            f" say how long a window is: window=128"
        )
    return shape[0] or first.shape[1], shape[1] or int(window or 0)


def cut_normals(thing: Thing, shape: tuple[int, ...], stride: int | None) -> tuple[Array, NDArray[np.int64]]:
    """The examples of a thing and where each begins; a recording is cut into windows, one after the other."""
    if thing.kind != "recording":
        return thing.values, np.arange(len(thing.values))
    step = shape[-1] if stride is None else stride
    found = cut(thing.values, shape[-1], step)
    return found, step * np.arange(len(found))


def _check_values(array: Array, name: str, limits: Limits) -> Array:
    if array.size > limits.values:
        raise ServiceError(413, f"{name}: {array.size} values, at most {limits.values} are taken at once; send less")
    floats = array.astype(np.float32)
    if not np.isfinite(floats).all():
        raise ServiceError(422, f"{name}: holds NaN, infinity or numbers beyond single precision; fix or remove them")
    return floats


def _check_head(label: str, suffix: str, content: bytes, limits: Limits) -> None:
    """Refuse by the file's own head what would be too large once decoded."""
    size = 0
    try:
        if suffix == ".npy":
            size = _npy_size(content)
        elif suffix == ".wav":
            with wave.open(io.BytesIO(content)) as sound:
                size = sound.getnframes() * sound.getnchannels()
        elif suffix == ".parquet":
            with needed_for(f"{label}: reading it"):
                from pyarrow.parquet import ParquetFile

            head = ParquetFile(io.BytesIO(content)).metadata
            size = head.num_rows * head.num_columns
        elif suffix in PICTURES:
            from PIL import Image

            with Image.open(io.BytesIO(content)) as image:
                if image.width * image.height > limits.pixels:
                    raise ServiceError(
                        413, f"{label}: {image.width}x{image.height} pixels, at most {limits.pixels} are taken"
                    )
    except ServiceError:
        raise
    except FewoneError as error:
        raise ServiceError(415, str(error)) from error
    except Exception as error:  # each library has its own kinds; whatever they say, the file is broken
        if "DecompressionBomb" in type(error).__name__:
            raise ServiceError(413, f"{label}: too many pixels, at most {limits.pixels} are taken") from error
        raise ServiceError(422, f"{label}: broken or not a {suffix} file; write it again") from error
    if size > limits.values:
        raise ServiceError(413, f"{label}: {size} values once decoded, at most {limits.values} are taken; send less")


def _npy_size(content: bytes) -> int:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, _ = reader(file)
    size = 1
    for axis in shape:
        size *= axis
    return size
