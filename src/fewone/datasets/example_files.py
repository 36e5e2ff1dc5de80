"""One file of a user -> arrays: .npy, .csv and .parquet hold series, .png and .jpg images, .npz examples by label.

Nothing is ever unpickled. Every refusal is one line: the file, the place in it, the reason, the remedy.
"""

from __future__ import annotations

import csv
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewone.errors import FewoneError

Array = NDArray[np.generic]

IMAGES = (".png", ".jpg", ".jpeg")
SERIES = (".npy", ".csv", ".parquet")
SUFFIXES = (*SERIES, *IMAGES)


@dataclass(frozen=True)
class Piece:
    """One whole example as read: a series (channels, length) float32 or an image (channels, height, width) uint8.

    group: the value of the grouping column, where there is one.
    """

    values: Array
    group: str | None = None


def read_file(path: Path, column: str | None = None) -> list[Piece]:
    """The example in one file; with a grouping column, one example for each run of rows that share its value."""
    suffix = path.suffix.lower()
    if suffix in IMAGES:
        return [Piece(_read_image(path))]
    if suffix == ".npy":
        return [Piece(_check_series(path, _read_npy(path)))]
    if suffix not in SERIES:
        raise FewoneError(f"{path}: this kind of file is not read; use {', '.join(SUFFIXES)}, or take it out")
    table = _read_csv(path) if suffix == ".csv" else _read_parquet(path)
    if column is None:
        numbers = _to_numbers(path, table.text, table.lines) if table.numbers is None else table.numbers
        return [Piece(_check_series(path, numbers))]
    if column not in table.names:
        raise FewoneError(f"{path}: no column {column!r} to group by; the first line must name the columns")
    return list(_split_by_column(path, table, table.names.index(column)))


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
        raise _refuse(path, error, "numpy.savez") from None
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


def _read_npy(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _refuse(path, error, "numpy.save") from None


def _refuse(path: Path, error: Exception, writer: str) -> FewoneError:
    if "pickle" in str(error):
        return FewoneError(f"{path}: holds pickled objects, which are never loaded; write plain numbers with {writer}")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return FewoneError(f"{path}: broken or cut off ({reason}); write it again with {writer}")


def _check_series(path: Path, rows: Array) -> Array:
    """(length,) or (length, channels) numbers -> (channels, length) float32."""
    if rows.ndim not in (1, 2) or not _is_real(rows):
        raise FewoneError(
            f"{path}: has shape {rows.shape} and type {rows.dtype}; a series is numbers of shape (length,) or"
            f" (length, channels); many examples in one file go into TASK.npz"
        )
    if not rows.size:
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    _check_finite(path, rows, "row")
    return np.ascontiguousarray(np.atleast_2d(rows.T), dtype=np.float32)


def _is_real(array: Array) -> bool:
    return array.dtype.kind in "fiub"


def _check_finite(path: Path, array: Array, place: str) -> None:
    # Values beyond single precision would turn into infinity on the way into the store.
    finite = np.isfinite(array) & (np.abs(array) <= np.finfo(np.float32).max) if array.dtype.kind == "f" else None
    if finite is not None and not finite.all():
        where = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        raise FewoneError(
            f"{path}: {place} {where[0] + 1} holds {array[where]}, not a finite number of single precision;"
            f" mend or remove it"
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


@dataclass(frozen=True)
class Table:
    """Cells below column names (none without a header line): numbers (rows, columns), or text where some are none.

    lines: the line of the file that each row of text stands in.
    """

    names: list[str]
    numbers: Array | None
    text: list[list[str]]
    lines: list[int]


def _read_csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            separator = max(",;\t", key=first.count)
            head = next(csv.reader([first], delimiter=separator), [])
            names = head if head and not any(map(_is_number, head)) else []
            numbers = _load_numbers(path, separator, bool(names))
            if numbers is not None and len(names) in (0, numbers.shape[1]):
                return Table(names, numbers, [], [])
            file.seek(0)
            reader = csv.reader(file, delimiter=separator)
            rows = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise FewoneError(f"{path}: is not text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (OSError, csv.Error) as error:
        raise FewoneError(f"{path}: cannot be read ({error}); write the file again") from None
    for line, row in rows:
        if len(row) != len(rows[0][1]):
            wanted = len(rows[0][1])
            raise FewoneError(f"{path}: line {line} has {len(row)} columns, line 1 has {wanted}; give all the same")
    body = rows[1:] if names else rows
    return Table(names, None, [row for _, row in body], [line for line, _ in body])


def _load_numbers(path: Path, separator: str, header: bool) -> Array | None:
    """The fast way, which knows numbers only; None where it meets anything else."""
    with warnings.catch_warnings():
        # An empty file is reported as such later, with its name.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return np.loadtxt(
                path,
                delimiter=separator,
                skiprows=int(header),
                comments=None,
                quotechar='"',
                ndmin=2,
                encoding="utf-8-sig",
            )
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise
            return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FewoneError(f"{path}: reading parquet needs pyarrow; pip install 'fewone[tables]'") from None
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise FewoneError(f"{path}: broken or cut off ({reason}); write it again") from None
    columns = [table.column(number).to_numpy() for number in range(table.num_columns)]
    if all(column.dtype.kind in "fiub" for column in columns):
        return Table(table.column_names, np.stack(columns, axis=1), [], [])
    text = [[str(cell) for cell in row] for row in zip(*columns, strict=True)]
    return Table(table.column_names, None, text, list(range(1, len(text) + 1)))


def _to_numbers(path: Path, text: list[list[str]], lines: list[int]) -> Array:
    """Text -> (rows, columns) float64, or an error that names the first cell that is no number."""
    for line, row in zip(lines, text, strict=True):
        for column, cell in enumerate(row, start=1):
            if not _is_number(cell):
                raise FewoneError(
                    f"{path}: line {line}, column {column} is {cell!r}, not a number; mend it or take it out"
                )
    return np.array(text, dtype=np.float64)


def _split_by_column(path: Path, table: Table, column: int) -> Iterator[Piece]:
    """One piece for each run of rows with the same value in the column, without that column."""
    if table.numbers is not None:
        values, others = table.numbers[:, column].tolist(), np.delete(table.numbers, column, axis=1)
    else:
        values = [row[column] for row in table.text]
        others = _to_numbers(path, [row[:column] + row[column + 1 :] for row in table.text], table.lines)
    for value, rows in groupby(range(len(values)), key=values.__getitem__):
        yield Piece(_check_series(path, others[list(rows)]), str(value))
