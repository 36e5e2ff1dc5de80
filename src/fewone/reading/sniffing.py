"""The first lines of a text file -> how it is to be read. What has two readings is refused with both."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np

from fewone.errors import FewoneError
from fewone.reading.options import ReadOptions
from fewone.reading.recording import list_names
from fewone.reading.time_stamps import (
    CLOCK,
    CLOCK_WITHIN,
    READ_TIMES,
    TIME_WORDS,
    Kind,
    Order,
    find_epoch_unit,
    find_kind,
    find_named_unit,
    find_order,
)

SAMPLE = 200
"""So many lines with something in them are looked at."""
COMMENT = "#"
SHEET_ERRORS = (
    "#n/a",
    "#nv",
    "#name?",
    "#div/0!",
    "#null!",
    "#value!",
    "#wert!",
    "#ref!",
    "#bezug!",
    "#num!",
    "#zahl!",
)
MISSING = frozenset(
    ("", "nan", "na", "n/a", "null", "none", "-", "--", "?", "bad", "bad input", "no data", "missing", *SHEET_ERRORS)
)
"""What historians and spreadsheets write where there is no value."""

_EXPONENT = r"([eE][+-]?\d+)?"
_POINT = re.compile(rf"[+-]?(\d+\.?\d*|\.\d+){_EXPONENT}|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA = re.compile(rf"[+-]?(\d+,?\d*|,\d+){_EXPONENT}|[+-]?inf(inity)?", re.IGNORECASE)
_COMMA_GROUPS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?")
_POINT_GROUPS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_THREE_BEHIND = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
_MARRED = re.compile(r"[^\w\s]?\d(?!/)")
"""A cell that begins so is a number that is marred, not the name of a unit."""
_WHOLE = re.compile(r"[+-]?\d+")
_SHEET_ERROR = re.compile(f"({'|'.join(map(re.escape, SHEET_ERRORS))})(?=$|[\\s;,|])", re.IGNORECASE)
_DIGITS_BEHIND = re.compile(r"-0|0\d+")
_NAMED_SEPARATOR = re.compile(r"sep=(.)", re.IGNORECASE)
LONG_STAMP = 9
"""Digits of a whole number that may be seconds since 1970."""
_WORDS = {";": "; separated", ",": ", separated", "\t": "tab separated", " ": "space separated", "": "one column"}


@dataclass(frozen=True)
class TimeColumn:
    """Which column tells the time, and how: stamps of a kind, or numbers in a unit. clock: the column with the time of
    day, where the other holds days.
    """

    column: int
    kind: Kind
    order: Order | None = None
    unit: str = "s"
    clock: int | None = None


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
            parts.append(describe_time(self.time))
        parts.append(
            f"channels {list_names(self.channels)}" if len(self.columns) > 1 else f"channel {self.channels[0]}"
        )
        said = "read as: " + ", ".join(parts)
        return f"{said}; left out: {', '.join(self.left_out)}" if self.left_out else said


def describe_time(time: TimeColumn) -> str:
    kinds = {"iso": "ISO", "dotted": "day.month.year", "slashed": str(time.order), "number": time.unit}
    columns = f"column {time.column + 1}" if time.clock is None else f"columns {time.column + 1} and {time.clock + 1}"
    return f"time in {columns} ({kinds[time.kind]})"


def is_comment(text: str) -> bool:
    """Whether a line is a remark; #N/A and its like are values that are missing."""
    return text.startswith(COMMENT) and not _SHEET_ERROR.match(text)


def sniff(path: Path, lines: Sequence[tuple[int, str]], options: ReadOptions, group: str | None = None) -> Layout:
    """lines: the first of the file, (number from 1, text), empty ones left out."""
    comments = [text for _, text in lines if is_comment(text)]
    body = [(number, text) for number, text in lines if not is_comment(text)]
    if body and (named := _NAMED_SEPARATOR.fullmatch(body[0][1].strip())):
        body, options = body[1:], replace(options, separator=options.separator or named.group(1))
    if not body:
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    texts = [text for _, text in body]
    separator, decimal = find_separator(path, body, options)
    split_decimals = separator == "," and decimal == ","
    rows = [split(text, separator, split_decimals) for text in texts]
    decimal, thousands = find_decimal(path, rows, separator, decimal)
    headed = options.header if options.header is not None else find_header(path, rows, body[0][0])
    names = tuple(cell.strip() for cell in rows[0]) if headed else ()
    head = int(headed) + int(headed and are_units(rows[1:]))
    data, numbers = rows[head:], [number for number, _ in body][head:]
    if not data:
        raise FewoneError(f"{path}: is empty below its line of names; take it out or fill it")
    width = len(names) or len(data[0])
    for number, row in zip([number for number, _ in body], rows, strict=True):
        if len(row) != width:
            refuse_ragged(path, number, len(row), body[0][0], width, texts, separator)
    names = names or _names_from_comment(comments, separator, width) or tuple(f"column {n + 1}" for n in range(width))
    layout = _choose_columns(path, names, headed, data, numbers, options, separator, decimal, thousands, group)
    if head < 2:
        return layout
    return replace(layout, left_out=(f"units in line {body[1][0]}", *layout.left_out))


def refuse_ragged(
    path: Path, line: int, found: int, first: int, wanted: int, texts: Sequence[str], separator: str
) -> NoReturn:
    comma = separator == "," and all(text.count(",") <= 1 for text in texts)
    other = "give all the same, and put # before lines that are no rows"
    other = "if the comma is a decimal comma, say --decimal ," if comma else other
    raise FewoneError(f"{path}: line {line} has {found} columns, line {first} has {wanted}; {other}")


def split(text: str, separator: str, split_decimals: bool = False) -> list[str]:
    """The cells of a line, without quotes and blanks around them."""
    if separator == "":
        return [text.strip().strip('"')]
    if separator == " ":
        return text.split()
    cells = [cell.strip() for cell in next(csv.reader([text], delimiter=separator), [])]
    return _pair_up(cells) if split_decimals else cells


def _pair_up(cells: list[str]) -> list[str]:
    """The cells as they are, but every two whole numbers are one with a decimal comma; a stamp may come before them."""
    places = [place for place, cell in enumerate(cells) if _WHOLE.fullmatch(cell)]
    if len(places) % 2 and len(cells[places[0]]) >= LONG_STAMP:
        places = places[1:]
    pairs = list(zip(places[::2], places[1::2], strict=False))
    if len(places) % 2 or not all(rest == whole + 1 and _is_pair(cells[whole], cells[rest]) for whole, rest in pairs):
        return cells
    joined = {whole: f"{cells[whole]},{cells[rest]}" for whole, rest in pairs}
    behind = {rest for _, rest in pairs}
    return [joined.get(place, cell) for place, cell in enumerate(cells) if place not in behind]


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
    joined = [_pair_up(row) for row in data]
    pairs = not quoted and all(
        len(cells) < len(row) and not any(map(_WHOLE.fullmatch, cells[1:]))
        for row, cells in zip(data, joined, strict=True)
    )
    single = all(len(row) <= 2 for row in data) and any(len(row) == 2 for row in data)
    if headed and len(rows[0]) == 1 and single:
        return "", decimal
    if decimal == ",":
        if single and all(len(row) == 1 or _is_pair(*row) for row in data):
            return "", ","
        return ",", ","
    if headed and pairs and len(joined[0]) == len(rows[0]):
        return ",", ","
    if not pairs and not headed and not quoted:
        _refuse_odd_commas(path, data)
        _refuse_grouped_lines(path, texts)
    if headed or not pairs or _are_whole(joined):
        return ",", None if quoted else "."
    raise FewoneError(
        f"{path}: {texts[0][:40]!r} has two readings: {len(data[0])} columns of whole numbers (say --decimal .),"
        f" or {len(joined[0])} with decimal commas (say --decimal ,)"
    )


def _is_pair(whole: str, rest: str) -> bool:
    """Whether two cells may be the two sides of a decimal comma."""
    return whole.lstrip("+-").isdigit() and rest.isdigit()


def _are_whole(joined: Sequence[Sequence[str]]) -> bool:
    """Whether what would be digits behind a comma is not: in one column of several lengths, as numbers that are cut
    short have, but ending in 0, as those never do."""
    return any(
        len({len(cell) for cell in column}) > 1 and any(len(cell) > 1 and cell.endswith("0") for cell in column)
        for column in ([cell.partition(",")[2] for cell in column] for column in zip(*joined, strict=False))
    )


def _refuse_odd_commas(path: Path, data: Sequence[Sequence[str]]) -> None:
    """Whole numbers do not look like -0 and 05: some of the commas are decimal commas, and nobody can say which."""
    told = [cell for row in data for cell in row if cell.lower() not in MISSING and not find_kind([cell])]
    odd = next((cell for cell in told if _DIGITS_BEHIND.fullmatch(cell)), None)
    if odd is not None and sum(map(bool, map(_WHOLE.fullmatch, told))) > 0.5 * len(told):
        raise FewoneError(
            f"{path}: {odd!r} is no whole number: commas separate and seem to be decimal signs, too; save it with"
            f" another separator, or say --decimal . if they are none"
        )


def _refuse_grouped_lines(path: Path, texts: Sequence[str]) -> None:
    """1,234.5 on every line is one number with a comma between thousands, or two."""
    lines = [text.strip() for text in texts]
    for groups, plain in ((_POINT_GROUPS, _POINT), (_COMMA_GROUPS, _COMMA)):
        one = next((line for line in lines if groups.fullmatch(line) and "," in line), None)
        if one is None or not all(groups.fullmatch(line) or plain.fullmatch(line) for line in lines):
            continue
        raise FewoneError(
            f"{path}: {one!r} has two readings: two numbers with a comma between (write them with ; instead), or one"
            f" (say --separator none)"
        )


def find_decimal(path: Path, rows: Sequence[Sequence[str]], separator: str, decimal: str | None) -> tuple[str, str]:
    """The decimal sign and what stands between thousands ("" for nothing)."""
    cells = [cell for row in rows for cell in row]
    commas = [cell for cell in cells if "," in cell and _COMMA.fullmatch(cell)]
    points = [cell for cell in cells if "." in cell and _POINT.fullmatch(cell)]
    # 1.234,5 and 1.234.567 show it.
    both = [cell for cell in cells if ("," in cell and "." in cell) or max(cell.count(","), cell.count(".")) > 1]
    if decimal == "," or (decimal is None and any(_COMMA_GROUPS.fullmatch(cell) for cell in both)):
        return ",", "." if any(_COMMA_GROUPS.fullmatch(cell) for cell in (*both, *points)) else ""
    if decimal == "." or (decimal is None and any(_POINT_GROUPS.fullmatch(cell) for cell in both)):
        return ".", "," if any(_POINT_GROUPS.fullmatch(cell) for cell in (*both, *commas)) else ""
    if commas and points:
        raise FewoneError(
            f"{path}: {commas[0]!r} and {points[0]!r} stand in one file: either sign may be the decimal one; say"
            f" --decimal , or --decimal ."
        )
    sign = "," if commas else "."
    if all(map(_THREE_BEHIND.fullmatch, commas or points)):
        _refuse_thousands(path, rows, sign, separator)
    return sign, ""


def _refuse_thousands(path: Path, rows: Sequence[Sequence[str]], sign: str, separator: str) -> None:
    """Every sign has three digits behind it, so 1,234 may be 1.234 or 1234. Decided where the separator tells what the
    sign is (a comma beside ; is the decimal one) and no whole numbers stand in the same column."""
    columns = [[cell for cell in column if _is_number(cell)] for column in zip(*rows, strict=False)]
    signed = [[cell for cell in column if sign in cell] for column in columns]
    found = [cell for column in signed for cell in column]
    mixed = any(0 < len(some) < len(column) for some, column in zip(signed, columns, strict=True))
    telling = separator == ";" if sign == "," else separator != ";"
    if not found or (telling and not mixed):
        return
    point, whole = found[0].replace(sign, "."), found[0].replace(sign, "")
    readings = (f"{point} (say --decimal {sign})", f"{whole} (say --decimal {'.' if sign == ',' else ','})")
    raise FewoneError(f"{path}: {found[0]!r} has two readings: {' or '.join(readings)}")


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: no cell is a number or a time; or 0, 1, 2, ... behind an empty cell."""
    first = list(rows[0]) if rows else []
    if len(first) > 1 and first[0] == "" and first[1:] == [str(number) for number in range(len(first) - 1)]:
        return True
    told = [cell for cell in first if cell.lower() not in MISSING]
    return bool(told) and not any(map(_is_told, told))


def find_header(path: Path, rows: Sequence[Sequence[str]], line: int = 1) -> bool:
    """Whether the first row names columns; asked where it holds words above numbers, and numbers."""
    if is_header(rows):
        return True
    column = find_named_column(rows)
    if column is not None:
        raise FewoneError(
            f"{path}: line {line}, column {column + 1} is {rows[0][column]!r} above numbers: if the line names the"
            f" columns, say --header True; else it is not a number: fix it or take it out"
        )
    return False


def find_named_column(rows: Sequence[Sequence[str]]) -> int | None:
    """The first column in which a word stands above nothing but numbers or stamps."""
    for place, (first, *rest) in enumerate(zip(*rows, strict=False)):
        told = [cell for cell in rest if cell.lower() not in MISSING]
        if told and first.lower() not in MISSING and not _is_told(first) and all(map(_is_told, told)):
            return place
    return None


def are_units(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the row below the names holds units, such as Nm and 1/min, above numbers."""
    return is_header(rows) and find_named_column(rows) is not None and not any(map(_MARRED.match, rows[0]))


def _is_told(cell: str) -> bool:
    """Whether a cell is a number or a stamp."""
    return _is_number(cell) or find_kind([cell]) is not None


def _is_number(cell: str) -> bool:
    return any(pattern.fullmatch(cell) for pattern in (_POINT, _COMMA, _COMMA_GROUPS, _POINT_GROUPS))


def parse_number(cell: str, decimal: str, thousands: str) -> float | None:
    """A number, NaN where it is missing, None where the cell is neither."""
    if cell.lower() in MISSING:
        return float("nan")
    plain = cell
    if thousands and thousands in cell:
        groups = _COMMA_GROUPS if decimal == "," else _POINT_GROUPS
        plain = cell.replace(thousands, "") if groups.fullmatch(cell) else "no number"
    if decimal == ",":
        plain = plain.replace(",", ".") if "." not in plain else "no number"
    return float(plain) if _POINT.fullmatch(plain) else None


def _names_from_comment(comments: Sequence[str], separator: str, width: int) -> tuple[str, ...]:
    """numpy's savetxt writes names behind a #."""
    for comment in reversed(comments):
        cells = split(comment.lstrip(f"{COMMENT} "), separator)
        if len(cells) == width and width > 1 and not any(map(_is_number, cells)):
            return tuple(cells)
    return ()


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
    if time is None and options.time is None:
        for column in set(range(len(names))) - {*asked, grouping}:
            refuse_unread_time(path, column, names[column], [row[column] for row in data])
    left_out: list[str] = []
    columns = asked
    for column, name in enumerate(names if not asked else ()):
        values = [value for value in parsed[column] if value is None or value == value]
        if column == grouping or (time is not None and column in (time.column, time.clock)):
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
    return bool(values) and all(value == (values[0] or 0) + step for step, value in enumerate(values))


def find_column(path: Path, names: Sequence[str], name: str, purpose: str) -> int:
    """The place of a column from 0, by its name or by its number from 1."""
    if list(names).count(name) > 1:
        places = ", ".join(str(place + 1) for place, one in enumerate(names) if one == name)
        raise FewoneError(f"{path}: columns {places} are all called {name!r}; {purpose} by number")
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
        if kind is not None:
            order = options.date_order or ask_order(path, cells) if kind == "slashed" else None
            clock = _find_clock(data, cells, {column, *taken})
            return TimeColumn(column, kind, order, clock=clock)
        if any(value is None for value in parsed[column]):
            continue
        values = np.array([value for value in parsed[column] if value is not None])
        unit = find_epoch_unit(values) or find_named_unit(names[column], values)
        if unit is not None:
            return TimeColumn(column, "number", unit=unit)
        if asked is not None:
            return TimeColumn(column, "number", unit="s")
    if asked is not None:
        refuse_asked_time(path, str(options.time), data[0][asked])
    return None


def _find_clock(data: Sequence[Sequence[str]], days: Sequence[str], taken: set[int | None]) -> int | None:
    """The column with the time of day, if the stamps are days alone."""
    if any(":" in day for day in days):
        return None
    free = (column for column in range(len(data[0])) if column not in taken)
    return next((column for column in free if all(CLOCK.fullmatch(row[column]) for row in data)), None)


def refuse_asked_time(path: Path, name: str, cell: str) -> NoReturn:
    raise FewoneError(f"{path}: column {name!r} is no time: {cell!r}; read are {READ_TIMES}")


def refuse_unread_time(path: Path, column: int, name: str, cells: Sequence[str]) -> None:
    """A column of text that looks like times: if it were left out, gaps would go unseen."""
    told = [cell for cell in cells if cell.lower() not in MISSING]
    if told and all(CLOCK_WITHIN.search(cell) or _is_dated(name, cell) for cell in told):
        raise FewoneError(
            f"{path}: column {column + 1} ({name}) looks like a time, {told[0]!r}, but read are {READ_TIMES}; rewrite"
            f" it, or say --time none"
        )


def _is_dated(name: str, cell: str) -> bool:
    """Digits that are no number, below a name such as Zeit."""
    return bool(TIME_WORDS.match(name)) and any(map(str.isdigit, cell)) and not _is_number(cell)


def refuse_time(path: Path, line: int, column: int, cell: str) -> NoReturn:
    raise FewoneError(
        f"{path}: line {line}, column {column + 1} is {cell!r}, not a time like the others; fix it, or say --time none"
    )


def ask_order(path: Path, cells: Sequence[str]) -> Order:
    order = find_order(cells)
    if order is None:
        raise FewoneError(
            f"{path}: {cells[0]!r} has two readings: day/month (say --date-order day-first) or month/day (say"
            f" --date-order month-first)"
        )
    return order
