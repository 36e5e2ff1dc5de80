"""Tables with types, .parquet .feather .xlsx -> a recording; needs the extra `tables`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.reading.options import ReadOptions
from fewone.reading.recording import Recording, list_names
from fewone.reading.sniffing import MISSING, TimeColumn, describe_time, find_column
from fewone.reading.time_stamps import EPOCH_UNITS, find_epoch_unit, find_kind, find_named_unit, parse_stamps


def read_arrow(path: Path, options: ReadOptions, group: str | None = None) -> Recording:
    """.parquet and .feather: the columns have names and types of their own."""
    with needed_for(f"{path}: reading {path.suffix[1:]}"):
        import pyarrow
        from pyarrow import feather, parquet
    try:
        table = parquet.read_table(path) if path.suffix.lower() == ".parquet" else feather.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise FewoneError(f"{path}: broken or cut off ({reason}); write it again") from None
    columns = [table.column(number).to_numpy() for number in range(table.num_columns)]
    return build(path, [str(name) for name in table.column_names], columns, options, group, path.suffix[1:].lower())


def read_sheet(path: Path, options: ReadOptions, group: str | None = None) -> Recording:
    """.xlsx: one sheet, whose first row names the columns or does not."""
    with needed_for(f"{path}: reading .xlsx"):
        import openpyxl
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        try:
            sheet = _choose_sheet(path, book.sheetnames, options)
            rows = [row for row in book[sheet].iter_rows(values_only=True) if any(cell is not None for cell in row)]
        finally:
            book.close()
    except FewoneError:
        raise
    except Exception as error:  # openpyxl lets through whatever zip, XML and its own checks raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FewoneError(f"{path}: broken or cut off ({reason}); save the sheet again") from None
    if not rows:
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    headed = all(cell is None or isinstance(cell, str) for cell in rows[0]) and len(rows) > 1
    headed = headed if options.header is None else options.header
    width = max(map(len, rows))
    names = [str(cell) if headed and cell is not None else f"column {n + 1}" for n, cell in enumerate(rows[0])]
    names += [f"column {number + 1}" for number in range(len(names), width)]
    filled = [(*row, *(None,) * (width - len(row))) for row in rows[int(headed) :]]
    columns = [np.array(column, dtype=object) for column in zip(*filled, strict=True)]
    return build(path, names, columns, options, group, f"sheet {sheet}")


def _choose_sheet(path: Path, sheets: Sequence[str], options: ReadOptions) -> str:
    if options.dataset is None and len(sheets) == 1:
        return sheets[0]
    if options.dataset in sheets:
        return str(options.dataset)
    raise FewoneError(f"{path}: holds the sheets {', '.join(sheets)}; say which one with --dataset")


def build(
    path: Path,
    names: Sequence[str],
    columns: Sequence[np.ndarray[Any, Any]],
    options: ReadOptions,
    group: str | None,
    kind: str,
) -> Recording:
    """Columns of any type -> channels, times and groups; text columns are left out and said."""
    if not columns or not len(columns[0]):
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    plain = [_as_numbers(column) for column in columns]
    grouping = None if group is None else find_column(path, names, group, "group by")
    asked = [find_column(path, names, name, "read") for name in options.columns]
    found = _find_time(path, names, columns, plain, options, {*asked, grouping})
    time, times = found if found is not None else (None, None)
    chosen, left_out = list(asked), []
    for number, name in enumerate(names if not asked else ()):
        if number == grouping or (time is not None and number == time.column):
            continue
        if plain[number] is None:
            left_out.append(f"text column {name}")
        else:
            chosen.append(number)
    numbers = []
    for number in chosen:
        if (found_numbers := plain[number]) is None:
            raise FewoneError(f"{path}: column {names[number]!r} holds {columns[number][0]!r}, not a number")
        numbers.append(found_numbers)
    if not chosen:
        raise FewoneError(f"{path}: holds no column of numbers; name the channels with --columns")
    channels = tuple(names[number] for number in chosen)
    said = f"read as: {kind}" + ("" if time is None else f", time in column {time.column + 1} ({describe_time(time)})")
    said += f", channels {list_names(channels)}" + (f"; left out: {', '.join(left_out)}" if left_out else "")
    values = np.stack(numbers, axis=1)
    groups = None if grouping is None else tuple(str(cell) for cell in columns[grouping])
    if times is not None and (np.diff(times) < 0).any():
        raise FewoneError(f"{path}: time runs backwards at row {int(np.argmax(np.diff(times) < 0)) + 2}; sort the rows")
    return Recording(values, channels, times, groups, said)


def _as_numbers(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """float64 with NaN where nothing stands; None: text or times."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    if column.dtype.kind != "O":
        return None
    empty = [cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING) for cell in column]
    if all(empty) or not all(
        blank or isinstance(cell, (int, float)) for blank, cell in zip(empty, column, strict=True)
    ):
        return None
    return np.array([np.nan if blank else float(cell) for blank, cell in zip(empty, column, strict=True)])


def _find_time(
    path: Path,
    names: Sequence[str],
    columns: Sequence[np.ndarray[Any, Any]],
    plain: Sequence[np.ndarray[Any, Any] | None],
    options: ReadOptions,
    taken: set[int | None],
) -> tuple[TimeColumn, np.ndarray[Any, Any]] | None:
    if options.time == "none":
        return None
    asked = None if options.time is None else find_column(path, names, options.time, "tell the time")
    for number in range(len(names)) if asked is None else (asked,):
        column, numbers = columns[number], plain[number]
        if number in taken and asked is None:
            continue
        if column.dtype.kind == "M":
            return TimeColumn(number, "iso"), column.astype("datetime64[us]").astype(np.int64) / 1e6
        if numbers is not None:
            unit = find_epoch_unit(numbers) or find_named_unit(names[number], numbers)
            if unit is not None or asked is not None:
                return TimeColumn(number, "number", unit=unit or "s"), numbers * EPOCH_UNITS[unit or "s"]
            continue
        cells = [_as_stamp(cell) for cell in column]
        kind = find_kind(cells[:200])
        if kind is not None:
            order = options.date_order if kind == "slashed" else None
            seconds = parse_stamps(cells, kind, order)
            if np.isfinite(seconds).all():
                return TimeColumn(number, kind, order), seconds
    return None


def _as_stamp(cell: object) -> str:
    return cell.isoformat(" ") if isinstance(cell, datetime) else str(cell)
