"""Files of numbers, .npy .npz .wav .h5 .mat -> a recording. Nothing is unpickled; of several arrays one is named."""

from __future__ import annotations

import wave
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.reading.options import ReadOptions
from fewone.reading.recording import Recording, list_names
from fewone.reading.time_stamps import EPOCH_UNITS, find_epoch_unit

Array = NDArray[Any]


def read_npy(path: Path, options: ReadOptions) -> Recording:
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise refuse(path, error, "numpy.save") from None
    return as_series(path, array, "read as: an array")


def read_npz(path: Path, options: ReadOptions) -> Recording:
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                raise ValueError("it does not begin as an archive does")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                name = choose(path, archive.files, options)
                array = np.asarray(archive[name])
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise refuse(path, error, "numpy.savez") from None
    return as_series(path, array, f"read as: the array {name}")


def read_wav(path: Path, options: ReadOptions) -> Recording:
    """Sound, whole numbers of 1 to 4 bytes, as shares of full scale from -1 to 1; times from 0."""
    try:
        with wave.open(str(path)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    except (OSError, EOFError, wave.Error) as error:
        reason = str(error) or "it ends too early"
        raise FewoneError(f"{path}: not a .wav file of plain samples ({reason}); save it as 16 bit PCM") from None
    if width == 1:
        samples = raw.astype(np.float64) - 128.0
    else:
        # The samples' own bytes at the top of four: 24 bits have no type of their own.
        bytes_of = raw[: len(raw) // width * width].reshape(-1, width)
        filled = np.zeros((len(bytes_of), 4), np.uint8)
        filled[:, 4 - width :] = bytes_of
        samples = filled.view("<i4")[:, 0] / 2.0 ** (8 * (4 - width))
    values = (samples / 2.0 ** (8 * width - 1))[: len(samples) // channels * channels].reshape(-1, channels)
    if not len(values):
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    names = tuple(f"channel {number + 1}" for number in range(channels))
    said = f"read as: sound, {8 * width} bit, {rate} Hz, {channels} channels"
    return Recording(values, names, np.arange(len(values)) / rate, said=said)


def read_hdf5(path: Path, options: ReadOptions) -> Recording:
    with needed_for(f"{path}: reading {path.suffix[1:]}"):
        import h5py  # only on need: it takes a tenth of a second

    arrays: dict[str, tuple[int, ...]] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub" and item.ndim in (1, 2) and item.size:
            arrays[name] = item.shape

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
            name = choose(path, arrays, options)
            array = np.asarray(file[name])
    except (OSError, RuntimeError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FewoneError(f"{path}: broken or cut off ({reason}); write it again") from None
    return as_series(path, array, f"read as: the dataset {name}")


def read_mat(path: Path, options: ReadOptions) -> Recording:
    """MATLAB: version 7.3 is HDF5, with the axes turned; earlier ones are read by scipy."""
    with path.open("rb") as file:
        head = file.read(128)
    if b"MATLAB 7.3" in head:
        turned = read_hdf5(path, options)
        return as_series(path, turned.values.T, turned.said.replace("dataset", "array") + ", turned as MATLAB has it")
    from scipy.io import loadmat, whosmat

    try:
        found = {name: shape for name, shape, kind in whosmat(path) if kind not in ("char", "cell", "struct", "object")}
        name = choose(path, found, options)
        array = np.asarray(loadmat(path, variable_names=[name])[name])
    except FewoneError:
        raise
    except Exception as error:  # scipy lets through whatever its readers of old formats raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FewoneError(f"{path}: broken or cut off ({reason}); write it again") from None
    flat = array.ravel() if array.ndim == 2 and 1 in array.shape else array
    return as_series(path, flat, f"read as: the array {name}")


def choose(path: Path, names: Mapping[str, object] | list[str], options: ReadOptions) -> str:
    """The array that is asked for, or the only one there is."""
    found = list(names)
    if options.dataset is None and len(found) == 1:
        return found[0]
    listed = (
        ", ".join(f"{name} {names[name]}" if isinstance(names, Mapping) else name for name in found[:12])
        or "no array of numbers"
    )
    if options.dataset is None:
        raise FewoneError(
            f"{path}: holds {listed}; say which one with --dataset" if found else f"{path}: holds {listed}"
        )
    if options.dataset.strip("/") not in found:
        raise FewoneError(f"{path}: no array {options.dataset!r}; it holds {listed}")
    return options.dataset.strip("/")


def as_series(path: Path, rows: Array, said: str) -> Recording:
    """(length,) or (length, channels) numbers -> a recording."""
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "fiub":
        raise FewoneError(
            f"{path}: has shape {rows.shape} and type {rows.dtype}; a series is numbers of shape (length,) or"
            f" (length, channels); many examples in one file go into TASK.npz"
        )
    if not rows.size:
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    table = rows[:, None] if rows.ndim == 1 else rows
    values = table if table.dtype.kind == "f" else table.astype(np.float64)
    names = tuple(f"column {number + 1}" for number in range(table.shape[1]))
    many = "1 channel" if len(names) == 1 else f"{len(names)} columns"
    return Recording(values, names, said=f"{said} of {len(values)} rows, {many}")


def pick_columns(path: Path, recording: Recording, options: ReadOptions) -> Recording:
    """Only the columns asked for, and the time by number or name."""
    from fewone.reading.sniffing import find_column

    names = recording.channels
    time = None if options.time in (None, "none") else find_column(path, names, str(options.time), "tell the time")
    chosen = [find_column(path, names, name, "read") for name in options.columns]
    if time is None and not chosen:
        return recording
    places = chosen or [number for number in range(len(names)) if number != time]
    if not places:
        raise FewoneError(f"{path}: holds nothing but its time; name the channels with --columns")
    times, unit = recording.times, ""
    if time is not None:
        from fewone.reading.table_files import check_times

        times = recording.values[:, time].astype(np.float64)
        unit = find_epoch_unit(times) or "s"
        times = times * EPOCH_UNITS[unit]
        check_times(path, times, range(1, len(times) + 1))
    channels = tuple(names[number] for number in places)
    said = f"{recording.said}; channels {list_names(channels)}"
    said += "" if time is None else f", time in {names[time]} ({unit})"
    return Recording(recording.values[:, places], channels, times, recording.groups, said)


def refuse(path: Path, error: Exception, writer: str) -> FewoneError:
    if isinstance(error, FewoneError):
        return error
    if "pickle" in str(error):
        return FewoneError(f"{path}: holds pickled objects, which are never loaded; write plain numbers with {writer}")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return FewoneError(f"{path}: broken or cut off ({reason}); write it again with {writer}")
