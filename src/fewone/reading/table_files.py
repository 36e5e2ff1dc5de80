"""Tables with types, .parquet .feather .xlsx -> a recording; needs the extra `tables`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.reading.options import ReadOptions
from fewone.reading.recording import Recording, list_names
from fewone.reading.sniffing import (
    SAMPLE,
    TimeColumn,
    are_units,
    ask_order,
    describe_time,
    find_column,
    find_decimal,
    find_header,
    parse_number,
    refuse_asked_time,
    refuse_unread_time,
)
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
    rows = range(1, table.num_rows + 1)
    names = [str(name) for name in table.column_names]
    return build(path, names, columns, rows, options, group, path.suffix[1:].lower())


def read_sheet(path: Path, options: ReadOptions, group: str | None = None) -> Recording:
    """.xlsx: one sheet, whose first row names the columns or does not."""
    with needed_for(f"{path}: reading .xlsx"):
        import openpyxl
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        try:
            sheet = _choose_sheet(path, book.sheetnames, options)
            rows = list(book[sheet].iter_rows(values_only=True))
        finally:
            book.close()
    except FewoneError:
        raise
    except Exception as error:  # openpyxl lets through whatever zip, XML and its own checks raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FewoneError(f"{path}: broken or cut off ({reason}); save the sheet again") from None
    return _read_rows(path, rows, options, group, f"sheet {sheet}")


def _read_rows(
    path: Path, rows: Sequence[Sequence[object]], options: ReadOptions, group: str | None, kind: str
) -> Recording:
    """The rows of a sheet, as lines of a text file are read: of one column an empty row is a missing value, of several
    it is passed over and counted; names may stand at the top, and units below them."""
    full = [number for number, row in enumerate(rows) if any(cell is not None for cell in row)]
    if not full:
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    width = max(place + 1 for number in full for place, cell in enumerate(rows[number]) if cell is not None)
    kept = list(range(full[0], full[-1] + 1)) if width == 1 else full
    table = [[*rows[number], *(None,) * width][:width] for number in kept]
    texts = [["" if cell is None else _as_stamp(cell) for cell in row] for row in table[:SAMPLE]]
    headed = find_header(path, texts, kept[0] + 1) if options.header is None else options.header
    head = int(headed) + int(headed and are_units(texts[1:]))
    names = [text if headed and text else f"column {number + 1}" for number, text in enumerate(texts[0])]
    columns = [np.array(column, dtype=object) for column in zip(*table[head:], strict=True)]
    left_out = [f"units in row {kept[1] + 1}"] if head == 2 else []
    numbers = [number + 1 for number in kept[head:]]
    recording = build(path, names, columns, numbers, options, group, kind, left_out)
    return replace(recording, passed=full[-1] + 1 - full[0] - len(kept))


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
    rows: Sequence[int],
    options: ReadOptions,
    group: str | None,
    kind: str,
    passed_over: Sequence[str] = (),
) -> Recording:
    """Columns of any type -> channels, times and groups; text columns are left out and said. rows: their numbers in
    the file."""
    if not columns or not len(columns[0]):
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    signs = _find_signs(path, columns, options)
    plain = [_as_numbers(path, names[place], rows, column, *signs) for place, column in enumerate(columns)]
    grouping = None if group is None else find_column(path, names, group, "group by")
    asked = [find_column(path, names, name, "read") for name in options.columns]
    found = _find_time(path, names, columns, plain, options, {*asked, grouping})
    time, times = found if found is not None else (None, None)
    chosen, left_out = list(asked), list(passed_over)
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
    said = f"read as: {kind}" + ("" if time is None else f", {describe_time(time)}")
    said += f", {'channel' if len(channels) == 1 else 'channels'} {list_names(channels)}"
    said += f"; left out: {', '.join(left_out)}" if left_out else ""
    values = np.stack(numbers, axis=1)
    groups = None if grouping is None else tuple(str(cell) for cell in columns[grouping])
    if times is not None:
        check_times(path, times, rows)
    return Recording(values, channels, times, groups, said)


def check_times(path: Path, times: np.ndarray[Any, Any], rows: Sequence[int]) -> None:
    """Every row has a time, and none runs backwards."""
    if not np.isfinite(times).all():
        place = int(np.argmin(np.isfinite(times)))
        raise FewoneError(f"{path}: row {rows[place]} has no time; fix it, or say --time none")
    if (np.diff(times) < 0).any():
        place = int(np.argmax(np.diff(times) < 0)) + 1
        raise FewoneError(
            f"{path}: time runs backwards at row {rows[place]} (the end of summer time?); sort the rows, or say --time"
            f" none"
        )


def _find_signs(path: Path, columns: Sequence[np.ndarray[Any, Any]], options: ReadOptions) -> tuple[str, str]:
    """The decimal sign and that between thousands, in numbers that were written as text."""
    words = [[cell for cell in column if isinstance(cell, str)] for column in columns if column.dtype.kind == "O"]
    return find_decimal(path, [column[:SAMPLE] for column in words], ",", options.decimal)


def _as_numbers(
    path: Path, name: str, rows: Sequence[int], column: np.ndarray[Any, Any], decimal: str, thousands: str
) -> np.ndarray[Any, Any] | None:
    """float64 with NaN where nothing stands; None: text or times. Words among numbers are refused."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    if column.dtype.kind != "O":
        return None
    found = [_as_number(cell, decimal, thousands) for cell in column]
    if not any(value is not None and value == value for value in found):
        return None
    if None in found:
        place = found.index(None)
        raise FewoneError(
            f"{path}: row {rows[place]} of column {name!r} is {column[place]!r}, not a number; fix it or take it out"
        )
    return np.array(found, np.float64)


def _as_number(cell: object, decimal: str, thousands: str) -> float | None:
    if cell is None:
        return float("nan")
    if isinstance(cell, str):
        return parse_number(cell.strip(), decimal, thousands)
    return float(cell) if isinstance(cell, (int, float, Decimal)) else None


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
            seconds = column.astype("datetime64[us]").astype(np.int64) / 1e6
            return TimeColumn(number, "iso"), np.where(np.isnat(column), np.nan, seconds)
        if numbers is not None:
            unit = find_epoch_unit(numbers) or find_named_unit(names[number], numbers)
            if unit is not None or asked is not None:
                return TimeColumn(number, "number", unit=unit or "s"), numbers * EPOCH_UNITS[unit or "s"]
            continue
        cells = [_as_stamp(cell) for cell in column]
        kind = find_kind([cell for cell in cells[:SAMPLE] if cell])
        if kind is not None:
            order = options.date_order or ask_order(path, cells[:SAMPLE]) if kind == "slashed" else None
            return TimeColumn(number, kind, order), parse_stamps(cells, kind, order)
        if asked is not None:
            refuse_asked_time(path, names[number], cells[0])
        refuse_unread_time(path, number, names[number], cells[:SAMPLE])
    return None


def _as_stamp(cell: object) -> str:
    if cell is None:
        return ""
    return cell.isoformat(" ") if isinstance(cell, datetime) else str(cell).strip()
