"""Cells of a time column -> seconds: ISO, 01.03.2024 06:00:00, 03/04/2024 with its order said, numbers since 1970."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["iso", "dotted", "slashed", "number"]
Order = Literal["day-first", "month-first"]

_HOUR = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp][Mm])?"
CLOCK = re.compile(_HOUR)
CLOCK_WITHIN = re.compile(r"\d:\d\d")
ISO = re.compile(rf"\d{{4}}([-/.])\d{{2}}\1\d{{2}}([ T]{_HOUR}( ?Z|[+-]\d{{2}}:?\d{{2}})?)?")
DOTTED = re.compile(rf"\d{{1,2}}\.\d{{1,2}}\.\d{{4}}([ T]{_HOUR})?")
SLASHED = re.compile(rf"\d{{1,2}}/\d{{1,2}}/\d{{4}}([ T]{_HOUR})?")
READ_TIMES = (
    "2024-03-01 06:00:00, 01.03.2024 06:00:00, 3/1/2024 6:00:00 AM, day and time of day in two columns, and numbers of"
    " seconds, or of s, ms, µs, ns since 1970"
)

EPOCH_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
EPOCH_FROM, EPOCH_TO = 9.4e8, 4.1e9
"""Seconds since 1970 of the years 2000 to 2100: numbers that grow within them are times."""
TIME_WORDS = re.compile(r"(date|datum|time|timestamp|zeit|zeitstempel|datetime|epoch|uhrzeit)\b", re.IGNORECASE)
"""A column of numbers that grow is the time if its name begins so."""
_UNIT = re.compile(r"[\[(_ /](s|ms|us|µs|ns|sec|seconds|milliseconds)[\])]?$", re.IGNORECASE)


def find_kind(cells: Sequence[str]) -> Kind | None:
    """What all of these cells are; None: no stamps."""
    kinds: tuple[tuple[Kind, re.Pattern[str]], ...] = (("iso", ISO), ("dotted", DOTTED), ("slashed", SLASHED))
    for kind, pattern in kinds:
        if cells and all(pattern.fullmatch(cell) for cell in cells):
            return kind
    return None


def find_order(cells: Sequence[str]) -> Order | None:
    """How 03/04/2024 is meant, if any of the cells shows it by a day beyond 12."""
    parts = [cell.split("/")[:2] for cell in cells]
    if any(int(first) > 12 for first, _ in parts):
        return "day-first"
    return "month-first" if any(int(second) > 12 for _, second in parts) else None


def find_epoch_unit(values: NDArray[np.float64]) -> str | None:
    """The unit in which these numbers are times since 1970; None: they are not."""
    if len(values) < 2 or not np.isfinite(values).all() or (np.diff(values) < 0).any() or values[0] == values[-1]:
        return None
    return next(
        (u for u, s in EPOCH_UNITS.items() if (values * s > EPOCH_FROM).all() and (values * s < EPOCH_TO).all()), None
    )


def find_named_unit(name: str, values: NDArray[np.float64]) -> str | None:
    """The unit of a column of growing numbers that is called time; None: it is not."""
    grows = len(values) > 1 and bool(
        np.isfinite(values).all() and (np.diff(values) >= 0).all() and values[0] != values[-1]
    )
    if not grows or not TIME_WORDS.match(name.strip()):
        return None
    unit = _UNIT.search(name.strip())
    word = unit.group(1).lower() if unit else "s"
    return {"us": "µs", "sec": "s", "seconds": "s", "milliseconds": "ms"}.get(word, word)


def parse_stamps(cells: Sequence[str], kind: Kind, order: Order | None) -> NDArray[np.float64]:
    """Seconds since 1970 of cells of one kind, NaN where a cell is no such stamp."""
    try:
        return _parse_alike(cells, kind, order)
    except ValueError:
        return np.array([_parse_one(cell, kind, order) for cell in cells])


def _parse_alike(cells: Sequence[str], kind: Kind, order: Order | None) -> NDArray[np.float64]:
    """The fast way: all cells at once, where numpy understands them."""
    texts = np.array(cells)
    if any(cell[-1:] in "Mm" for cell in cells):
        raise ValueError("morning and afternoon")
    if texts.dtype.kind != "U" or not len(texts):
        raise ValueError("no cells")
    width = texts.dtype.itemsize // 4
    letters = texts.view("U1").reshape(len(texts), width)
    if kind != "iso":
        mark = "." if kind == "dotted" else "/"
        if not ((letters[:, 2] == mark) & (letters[:, 5] == mark)).all():
            raise ValueError("days and months of one and of two digits")
        day, month = ([3, 4], [0, 1]) if order == "month-first" else ([0, 1], [3, 4])
        shuffle = [6, 7, 8, 9, 2, *month, 2, *day, *range(10, width)]
        letters = letters[:, shuffle].copy()
        letters[:, [4, 7]] = "-"
    elif (letters[:, 10:] == "Z").any() or (letters[:, 11:] == "+").any() or (letters[:, 11:] == "-").any():
        raise ValueError("zones")
    else:
        letters = letters.copy()
        letters[:, [4, 7]] = "-"
    if width > 10:
        letters[:, 10] = "T"
    letters[letters == ","] = "."
    stamps = np.ascontiguousarray(letters).view(f"U{width}").ravel().astype("datetime64[us]")
    return stamps.astype(np.int64) / 1e6


def _parse_one(cell: str, kind: Kind, order: Order | None) -> float:
    try:
        cell = _to_24_hours(cell)
        if kind == "iso":
            cell = cell[:10].replace("/", "-").replace(".", "-") + cell[10:]
            stamp = datetime.fromisoformat(cell.replace(",", ".").replace(" Z", "Z"))
            return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
        date, _, clock = cell.replace("T", " ").partition(" ")
        first, second, year = (int(part) for part in re.split(r"[./]", date))
        day, month = (second, first) if order == "month-first" else (first, second)
        hours, minutes, seconds = (*clock.replace(",", ".").split(":"), "0", "0")[:3] if clock else ("0", "0", "0")
        whole = datetime(year, month, day, int(hours), int(minutes), tzinfo=UTC)
        return whole.timestamp() + float(seconds)
    except ValueError:
        return float("nan")


def _to_24_hours(cell: str) -> str:
    """3/1/2024 1:05 PM -> 3/1/2024 13:05."""
    if cell[-1:] not in "Mm":
        return cell
    date, _, clock = cell[:-2].strip().replace("T", " ").rpartition(" ")
    hour, _, rest = clock.partition(":")
    if not 1 <= int(hour) <= 12:
        raise ValueError("no hour of a clock with 12")
    return f"{date} {int(hour) % 12 + 12 * (cell[-2] in 'Pp'):02d}:{rest}"
