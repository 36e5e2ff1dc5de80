"""The first lines of a text file -> how it is to be read. What has two readings is refused with both."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from fewone.errors import FewoneError
from fewone.reading.options import ReadOptions
from fewone.reading.recording import list_names
from fewone.reading.time_stamps import EPOCH_UNITS, Kind, Order, find_epoch_unit, find_kind, find_named_unit, find_order

SAMPLE = 200
"""So many lines with something in them are looked at."""
COMMENT = "#"
MISSING = frozenset(
    ("", "nan", "na", "n/a", "#n/a", "#nv", "null", "none", "-", "--", "?", "bad", "bad input", "no data", "missing")
)
"""What historians and spreadsheets write where there is no value."""

_EXPONENT = r"([eE][+-]?\d+)?"
_POINT = re.compile(rf"[+-]?(\d+\.?\d*|\.\d+){_EXPONENT}|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA = re.compile(rf"[+-]?(\d+,?\d*|,\d+){_EXPONENT}|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA_GROUPS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?")
_POINT_GROUPS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_WORDS = {";": "; separated", ",": ", separated", "\t": "tab separated", " ": "space separated", "": "one column"}


@dataclass(frozen=True)
class TimeColumn:
    """Which column tells the time, and how: stamps of a kind, or numbers in a unit."""

    column: int
    kind: Kind
    order: Order | None = None
    unit: str = "s"


@dataclass(frozen=True)
class Layout:
    """How a text file is read. columns: the channels' places from 0; width: of every row; skip: lines before the data.

    thousands: what groups digits, "" for nothing. split_decimals: the comma separates and is the decimal sign, so two
    cells are one number.
    """

    separator: str
    decimal: str
    thousands: str
    width: int
    skip: int
    names: tuple[str, ...]
    columns: tuple[int, ...]
    time: TimeColumn | None
    left_out: tuple[str, ...]
    group: int | None = None
    split_decimals: bool = False

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(self.names[column] for column in self.columns)

    def describe(self) -> str:
        parts = [_WORDS.get(self.separator, f"{self.separator!r} separated")]
        if self.decimal == ",":
            parts.append("decimal comma")
        if self.thousands:
            parts.append(f"{self.thousands!r} between thousands")
        if self.time is not None:
            parts.append(f"time in column {self.time.column + 1} ({describe_time(self.time)})")
        parts.append(
            f"channels {list_names(self.channels)}" if len(self.columns) > 1 else f"channel {self.channels[0]}"
        )
        said = "read as: " + ", ".join(parts)
        return f"{said}; left out: {', '.join(self.left_out)}" if self.left_out else said


def describe_time(time: TimeColumn) -> str:
    if time.kind == "number":
        return time.unit
    return {"iso": "ISO", "dotted": "day.month.year", "slashed": f"{time.order or 'slashes'}"}[time.kind]


def sniff(path: Path, lines: Sequence[tuple[int, str]], options: ReadOptions, group: str | None = None) -> Layout:
    """lines: the first of the file, (number from 1, text), empty ones left out."""
    comments = [text for _, text in lines if text.startswith(COMMENT)]
    body = [(number, text) for number, text in lines if not text.startswith(COMMENT)]
    if not body:
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    texts = [text for _, text in body]
    separator, decimal = find_separator(path, body, options)
    split_decimals = separator == "," and decimal == ","
    rows = [split(text, separator, split_decimals) for text in texts]
    decimal, thousands = find_decimal(path, rows, separator, decimal)
    headed = options.header if options.header is not None else is_header(rows)
    names = tuple(cell.strip() for cell in rows[0]) if headed else ()
    data = rows[1:] if headed else rows
    numbers = [number for number, _ in body][int(headed) :]
    if not data:
        raise FewoneError(f"{path}: is empty below its line of names; take it out or fill it")
    width = len(names) or len(data[0])
    for number, row in zip(numbers, data, strict=True):
        if len(row) != width:
            refuse_ragged(path, number, len(row), body[0][0], width, texts)
    names = names or _names_from_comment(comments, separator, width) or tuple(f"column {n + 1}" for n in range(width))
    return _choose_columns(path, names, headed, data, numbers, options, separator, decimal, thousands, group)


def refuse_ragged(path: Path, line: int, found: int, first: int, wanted: int, texts: Sequence[str]) -> NoReturn:
    comma = all(text.count(",") <= 1 for text in texts) and any("," in text for text in texts)
    other = "; if the comma is a decimal comma, say --decimal ," if comma else "; give all the same"
    raise FewoneError(f"{path}: line {line} has {found} columns, line {first} has {wanted}{other}")


def split(text: str, separator: str, split_decimals: bool = False) -> list[str]:
    """The cells of a line, without quotes and blanks around them."""
    if separator == "":
        return [text.strip().strip('"')]
    if separator == " ":
        return text.split()
    cells = [cell.strip() for cell in next(csv.reader([text], delimiter=separator), [])]
    if split_decimals and len(cells) % 2 == 0 and all(cell.lstrip("+-").isdigit() for cell in cells):
        return [f"{whole},{rest}" for whole, rest in zip(cells[::2], cells[1::2], strict=True)]
    return cells


def find_separator(path: Path, body: Sequence[tuple[int, str]], options: ReadOptions) -> tuple[str, str | None]:
    """The separator ("" for one column, " " for blanks) and, where that shows it, the decimal sign."""
    texts = [text for _, text in body]
    if options.separator is not None:
        named = {"tab": "\t", "\\t": "\t", "space": " ", "none": ""}.get(options.separator, options.separator)
        if len(named) > 1:
            raise FewoneError(f"separator {options.separator!r} is not one sign; say , ; tab or space")
        return named, options.decimal
    for candidate in (";", "\t"):
        if sum(candidate in text for text in texts) > len(texts) / 2:
            return candidate, options.decimal
    if _is_blank_separated(texts):
        return " ", options.decimal
    if not any("," in text for text in texts):
        return "", options.decimal
    if options.decimal == ".":
        return ",", "."
    return _read_commas(path, texts, options.decimal)


def _is_blank_separated(texts: Sequence[str]) -> bool:
    """Numbers with blanks between them; a line of names may come first."""
    data = texts[1:] if len(texts) > 1 else texts
    cells = [text.split() for text in data]
    return all(len(row) > 1 and all(_is_number(cell) or cell.lower() in MISSING for cell in row) for row in cells)


def _read_commas(path: Path, texts: Sequence[str], decimal: str | None) -> tuple[str, str | None]:
    """Only commas: they separate, or they are decimal commas, or both. Asked where the file does not show it."""
    rows = [split(text, ",") for text in texts]
    quoted = any('"' in text for text in texts)
    headed = is_header(rows)
    data = rows[1:] if headed and len(rows) > 1 else rows
    pairs = not quoted and all(len(row) % 2 == 0 and all(map(_is_pair, row[::2], row[1::2])) for row in data)
    single = all(len(row) <= 2 for row in data) and any(len(row) == 2 for row in data)
    if headed and len(rows[0]) == 1 and single:
        return "", ","
    if decimal == ",":
        if single and all(len(row) == 1 or _is_pair(*row) for row in data):
            return "", ","
        return ",", ","
    if headed and pairs and len(data[0]) == 2 * len(rows[0]):
        return ",", ","
    if headed:
        return ",", "."
    if not pairs or _are_whole(data):
        return ",", None if quoted else "."
    count = len(data[0])
    raise FewoneError(
        f"{path}: {texts[int(headed)][:40]!r} has two readings: {count} columns of whole numbers (say --decimal .),"
        f" or {count // 2} with decimal commas (say --decimal ,)"
    )


def _is_pair(whole: str, rest: str) -> bool:
    """Whether two cells may be the two sides of a decimal comma."""
    return whole.lstrip("+-").isdigit() and rest.isdigit()


def _are_whole(data: Sequence[Sequence[str]]) -> bool:
    """Whether what would be digits behind a comma is not: of several lengths, as numbers that are cut short have, but
    ending in 0, as those never do."""
    behind = [cell for row in data for cell in row[1::2]]
    lengths = {len(cell) for cell in behind}
    return len(lengths) > 1 and any(len(cell) > 1 and cell.endswith("0") for cell in behind)


def find_decimal(path: Path, rows: Sequence[Sequence[str]], separator: str, decimal: str | None) -> tuple[str, str]:
    """The decimal sign and what stands between thousands ("" for nothing)."""
    cells = [cell for row in rows for cell in row]
    commas = [cell for cell in cells if "," in cell and _COMMA.fullmatch(cell)]
    points = [cell for cell in cells if "." in cell and _POINT.fullmatch(cell)]
    both = [cell for cell in cells if "," in cell and "." in cell]
    if decimal == "," or (decimal is None and any(_COMMA_GROUPS.fullmatch(cell) for cell in both)):
        return ",", "." if any(_COMMA_GROUPS.fullmatch(cell) for cell in (*both, *points)) else ""
    if decimal == "." or (decimal is None and any(_POINT_GROUPS.fullmatch(cell) for cell in both)):
        return ".", "," if any(_POINT_GROUPS.fullmatch(cell) for cell in (*both, *commas)) else ""
    if commas and points:
        raise FewoneError(
            f"{path}: {commas[0]!r} and {points[0]!r} stand in one file: either sign may be the decimal one; say"
            f" --decimal , or --decimal ."
        )
    if not commas:
        return ".", ""
    if separator != ";" and all(_POINT_GROUPS.fullmatch(cell) for cell in commas):
        cell = commas[0]
        raise FewoneError(
            f"{path}: {cell!r} has two readings: {cell.replace(',', '')} (say --decimal .) or {cell.replace(',', '.')}"
            f" (say --decimal ,)"
        )
    return ",", ""


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: no cell is a number or a time; or 0, 1, 2, ... behind an empty cell."""
    first = list(rows[0])
    if len(first) > 1 and first[0] == "" and first[1:] == [str(number) for number in range(len(first) - 1)]:
        return True
    told = [cell for cell in first if cell.lower() not in MISSING]
    return bool(told) and not any(_is_number(cell) or find_kind([cell]) for cell in told)


def _is_number(cell: str) -> bool:
    return any(pattern.fullmatch(cell) for pattern in (_POINT, _COMMA, _COMMA_GROUPS, _POINT_GROUPS))


def parse_number(cell: str, decimal: str, thousands: str) -> float | None:
    """A number, NaN where it is missing, None where the cell is neither."""
    if cell.lower() in MISSING:
        return float("nan")
    plain = cell.replace(thousands, "") if thousands else cell
    if decimal == ",":
        plain = plain.replace(",", ".") if "." not in plain else "no number"
    return float(plain) if _POINT.fullmatch(plain) else None


def _names_from_comment(comments: Sequence[str], separator: str, width: int) -> tuple[str, ...]:
    """numpy's savetxt writes names behind a #."""
    if not comments:
        return ()
    cells = split(comments[-1].lstrip(f"{COMMENT} "), separator)
    return tuple(cells) if len(cells) == width and width > 1 and not any(map(_is_number, cells)) else ()


def _choose_columns(
    path: Path,
    names: tuple[str, ...],
    headed: bool,
    data: Sequence[Sequence[str]],
    numbers: Sequence[int],
    options: ReadOptions,
    separator: str,
    decimal: str,
    thousands: str,
    group: str | None,
) -> Layout:
    """Which columns are channels, which is the time, which are left out."""
    parsed = [[parse_number(row[column], decimal, thousands) for row in data] for column in range(len(names))]
    grouping = None if group is None else find_column(path, names, group, "group by")
    asked = [find_column(path, names, name, "read") for name in options.columns]
    time = _find_time(path, names, data, parsed, numbers, options, {*asked, grouping})
    left_out: list[str] = []
    columns = asked
    for column, name in enumerate(names if not asked else ()):
        values = [value for value in parsed[column] if value is None or value == value]
        if column == grouping or (time is not None and column == time.column):
            continue
        if headed and name.lower() in ("", "index", "unnamed: 0") and _counts(values):
            left_out.append(f"row numbers in column {column + 1}")
        elif all(cell[column].lower() in MISSING for cell in data) and len(names) > 1 and _blank(data, column):
            left_out.append(f"empty column {name or column + 1}")
        elif all(value is None for value in values) and values and (_other_numbers(parsed, column)):
            left_out.append(f"text column {name}")
        else:
            columns.append(column)
    for column in columns:
        for number, row, value in zip(numbers, data, parsed[column], strict=True):
            if value is None:
                raise FewoneError(
                    f"{path}: line {number}, column {column + 1} is {row[column]!r}, not a number; fix it or take it"
                    f" out"
                )
    if not columns:
        raise FewoneError(f"{path}: holds no column of numbers beside its time; name the channels with --columns")
    return Layout(
        separator=separator,
        decimal=decimal,
        thousands=thousands,
        width=len(names),
        skip=numbers[0] - 1,
        names=names,
        columns=tuple(columns),
        time=time,
        left_out=tuple(left_out),
        group=grouping,
        split_decimals=separator == "," and decimal == ",",
    )


def _blank(data: Sequence[Sequence[str]], column: int) -> bool:
    return all(row[column] == "" for row in data)


def _other_numbers(parsed: Sequence[Sequence[float | None]], column: int) -> bool:
    """Whether another column holds a number: a file of text alone is no table with text columns."""
    return any(
        value is not None and value == value
        for number, values in enumerate(parsed)
        for value in values
        if number != column
    )


def _counts(values: Sequence[float | None]) -> bool:
    return all(value == (values[0] or 0) + step for step, value in enumerate(values))


def find_column(path: Path, names: Sequence[str], name: str, purpose: str) -> int:
    """The place of a column from 0, by its name or by its number from 1."""
    if name in names:
        return list(names).index(name)
    if name.isdigit() and 1 <= int(name) <= len(names):
        return int(name) - 1
    raise FewoneError(
        f"{path}: no column {name!r} to {purpose}; the first line must name the columns, here"
        f" {list_names(tuple(names))} ({len(names)} columns)"
    )


def _find_time(
    path: Path,
    names: Sequence[str],
    data: Sequence[Sequence[str]],
    parsed: Sequence[Sequence[float | None]],
    numbers: Sequence[int],
    options: ReadOptions,
    taken: set[int | None],
) -> TimeColumn | None:
    if options.time == "none":
        return None
    asked = None if options.time is None else find_column(path, names, options.time, "tell the time")
    for column in range(len(names)) if asked is None else (asked,):
        if column in taken and asked is None:
            continue
        cells = [row[column] for row in data]
        kind = find_kind(cells)
        if kind is None and (first := find_kind(cells[:1])):
            place = next(place for place, cell in enumerate(cells) if find_kind([cell]) != first)
            refuse_time(path, numbers[place], column, cells[place])
        if kind == "slashed":
            return TimeColumn(column, kind, options.date_order or _ask_order(path, cells))
        if kind is not None:
            return TimeColumn(column, kind)
        if any(value is None for value in parsed[column]):
            continue
        values = np.array([value for value in parsed[column] if value is not None])
        unit = find_epoch_unit(values) or find_named_unit(names[column], values)
        if unit is not None:
            return TimeColumn(column, "number", unit=unit)
        if asked is not None:
            return TimeColumn(column, "number", unit="s")
    if asked is not None:
        raise FewoneError(
            f"{path}: column {options.time!r} is no time: {data[0][asked]!r}; read are 2024-03-01 06:00:00, 01.03.2024"
            f" 06:00:00, numbers of seconds, and {', '.join(EPOCH_UNITS)} since 1970"
        )
    return None


def refuse_time(path: Path, line: int, column: int, cell: str) -> NoReturn:
    raise FewoneError(
        f"{path}: line {line}, column {column + 1} is {cell!r}, not a time like the others; fix it, or say --time none"
    )


def _ask_order(path: Path, cells: Sequence[str]) -> Order:
    order = find_order(cells)
    if order is None:
        raise FewoneError(
            f"{path}: {cells[0]!r} has two readings: day/month (say --date-order day-first) or month/day (say"
            f" --date-order month-first)"
        )
    return order
