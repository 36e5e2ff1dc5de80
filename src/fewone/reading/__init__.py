"""Files as users have them -> recordings. Enters: a file and what is said of it. Leaves: numbers, names, times.

Found by looking and told; what has two readings is refused with both; gaps stay gaps until they are filled by order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from fewone.errors import FewoneError, InputError
from fewone.reading.options import ReadOptions
from fewone.reading.recording import Findings, Inspector, Recording
from fewone.reading.regular import make_regular, regular

TEXT = (".csv", ".tsv")
LOOSE_TEXT = (".txt", ".dat")
"""Read as text where a file is named by itself; in a folder they may be anything."""
TABLES = (".parquet", ".feather", ".xlsx")
ARRAYS = (".npy", ".npz", ".wav", ".h5", ".hdf5", ".mat")
RECORDINGS = (*TEXT, *(f"{suffix}.gz" for suffix in TEXT), *TABLES, *ARRAYS)
"""Endings of the files that are read as recordings."""


def find_suffix(path: Path) -> str:
    """ ".csv" of hour.csv, ".csv.gz" of hour.csv.gz."""
    suffix = path.suffix.lower()
    return f"{Path(path.stem).suffix.lower()}.gz" if suffix == ".gz" else suffix


def _is_text(suffix: str) -> bool:
    return suffix.removesuffix(".gz") in (*TEXT, *LOOSE_TEXT)


def is_recording(path: Path) -> bool:
    """Whether a file of this name is read as a recording."""
    return find_suffix(path) in RECORDINGS


def read_recording(
    path: str | Path,
    *,
    columns: str | Sequence[str | int] = (),
    time: str | int | None = None,
    decimal: Literal[".", ","] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    date_order: Literal["day-first", "month-first"] | None = None,
    dataset: str | None = None,
) -> Recording:
    """A table or array of any common kind as a recording; `said` tells how it was read, `inspect()` what is missing.

    Parameters
    ----------
    path
        A .csv, .tsv, .txt, .npy, .npz, .mat, .h5, .parquet, .feather, .xlsx or .wav file.
    columns
        The channels, by name or number from 1; all columns of numbers but the time if nothing is said.
    time
        The time column, by name or number from 1; "none": there is none.
    decimal, separator, header, encoding, date_order
        What a text file is like, where looking at it would not do.
    dataset
        Which array of an .h5, .mat or .npz file, or which sheet of an .xlsx file.

    Returns
    -------
    Numbers (rows, channels), names of the channels, times where there are any.

    Raises
    ------
    FewoneError
        The file cannot be read, or two readings fit: the message has both.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "hour.csv")
    ...     _ = file.write_text("time;torque\\n01.03.2024 06:00:00;1,5\\n01.03.2024 06:00:01;\\n")
    ...     recording = read_recording(file)
    >>> recording.said
    'read as: ; separated, decimal comma, time in column 1 (day.month.year), channel torque'
    >>> str(recording.inspect())
    '1 of 2 rows lack a value'
    """
    if decimal not in (None, ".", ","):
        raise InputError(f"decimal: {decimal!r} is no decimal sign; say '.' or ','")
    if date_order not in (None, "day-first", "month-first"):
        raise InputError(f"date_order: {date_order!r} is not known; say day-first or month-first")
    chosen = tuple(map(str, (columns,) if isinstance(columns, (str, int)) else columns))
    named = None if time is None else str(time)
    return read_with(Path(path), ReadOptions(chosen, named, decimal, separator, header, encoding, date_order, dataset))


def read_with(path: Path, options: ReadOptions, group: str | None = None) -> Recording:
    """The whole file, as the options say. group: a column whose text is kept beside the numbers."""
    return make_regular(_read(path, options, group), options)


def _read(path: Path, options: ReadOptions, group: str | None) -> Recording:
    suffix = find_suffix(path)
    if suffix not in RECORDINGS and not _is_text(suffix):
        raise FewoneError(f"{path}: this kind of file is not read; use {', '.join(RECORDINGS)}, or take it out")
    if not path.exists():
        raise FewoneError(f"{path}: no such file")
    if suffix in TABLES:
        from fewone.reading import table_files

        reader = table_files.read_sheet if suffix == ".xlsx" else table_files.read_arrow
        return reader(path, options, group)
    if suffix in ARRAYS:
        from fewone.reading import array_files

        if group is not None:
            raise FewoneError(f"{path}: no column {group!r} to group by; arrays have no names")
        readers = {
            ".npy": array_files.read_npy,
            ".npz": array_files.read_npz,
            ".wav": array_files.read_wav,
            ".mat": array_files.read_mat,
        }
        recording = readers.get(suffix, array_files.read_hdf5)(path, options)
        return array_files.pick_columns(path, recording, options)
    from fewone.reading.text_files import read_whole

    return read_whole(path, options, group)


def stream_recording(
    path: Path, options: ReadOptions, progress: Callable[[float], None] | None = None
) -> tuple[str, Iterator[Recording]]:
    """How the file is read, and its pieces in order: text comes in blocks, anything else is one piece."""
    if _is_text(find_suffix(path)) and not options.regularizes and options.largest_gap is None:
        from fewone.reading.text_files import read_text

        layout, pieces = read_text(path, options, None, progress)
        return layout.describe(), pieces
    whole = read_with(path, options)
    return whole.said, iter([whole])


__all__ = [
    "ARRAYS",
    "RECORDINGS",
    "TABLES",
    "TEXT",
    "Findings",
    "Inspector",
    "ReadOptions",
    "Recording",
    "find_suffix",
    "is_recording",
    "read_recording",
    "read_with",
    "regular",
    "stream_recording",
]
