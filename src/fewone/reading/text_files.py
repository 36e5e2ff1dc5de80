"""Text files, packed or not -> pieces of a recording, a block of lines at a time: memory stays flat."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fewone.errors import FewoneError
from fewone.reading.options import ReadOptions
from fewone.reading.recording import Recording
from fewone.reading.sniffing import (
    SAMPLE,
    Layout,
    is_comment,
    parse_number,
    refuse_ragged,
    refuse_time,
    sniff,
    split,
)
from fewone.reading.time_stamps import EPOCH_UNITS, parse_stamps

BLOCK_BYTES = 1 << 16
"""So much text is taken at once: as lines and cells it takes many times its own size."""
TOGETHER = 4
"""So many blocks make one piece, by then numbers: whoever scores is faster with more at once."""

Progress = Callable[[float], None]


@dataclass
class Count:
    """Lines so far, and the empty ones among them that were passed over."""

    lines: int = 0
    passed: int = 0
    pending: int = 0


def read_text(
    path: Path, options: ReadOptions, group: str | None = None, progress: Progress | None = None
) -> tuple[Layout, Iterator[Recording]]:
    """How the file is read, and its pieces; the generator holds the file open until it is used up or closed."""
    layout = look(path, options, group)
    blocks = _read_blocks(path, layout, options, progress)
    return layout, _take_together(blocks)


def look(path: Path, options: ReadOptions, group: str | None = None) -> Layout:
    """The layout by the first lines."""
    with _open(path, options) as (file, _):
        lines = []
        for number, text in enumerate(file, start=1):
            if text.strip():
                lines.append((number, text.rstrip("\r\n")))
            if len(lines) >= SAMPLE:
                break
    return sniff(path, lines, options, group)


@contextmanager
def _open(path: Path, options: ReadOptions) -> Iterator[tuple[io.TextIOWrapper, IO[bytes]]]:
    """The text, and the file below it, whose place tells the progress."""
    try:
        with path.open("rb") as raw:
            head = raw.read(4)
            raw.seek(0)
            packed = gzip.GzipFile(fileobj=raw) if head[:2] == b"\x1f\x8b" else None
            if packed is not None:
                head = packed.read(4)
                packed.seek(0)
            wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
            encoding = options.encoding or ("utf-16" if wide else "utf-8-sig")
            with io.TextIOWrapper(packed or raw, encoding=encoding) as text:
                yield text, raw
    except LookupError:
        raise FewoneError(f"encoding {options.encoding!r} is not known; cp1252 and utf-16 are common") from None
    except UnicodeDecodeError as error:
        raise FewoneError(
            f"{path}: is not text in UTF-8 (byte {error.start}); save it as UTF-8, or say --encoding, such as cp1252"
        ) from None
    except UnicodeError as error:
        raise FewoneError(f"{path}: cannot be read ({error}); save it as UTF-8") from None
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FewoneError(f"{path}: cannot be read ({reason}); write the file again") from None


def _read_blocks(path: Path, layout: Layout, options: ReadOptions, progress: Progress | None) -> Iterator[Recording]:
    size = max(1, path.stat().st_size)
    count, last = Count(), -np.inf
    with _open(path, options) as (file, raw):
        for _ in range(layout.skip):
            file.readline()
        count.lines = layout.skip
        while block := file.readlines(BLOCK_BYTES):
            piece = _read_block(path, layout, block, count)
            if piece is not None:
                last = _check_order(path, piece, last, count.lines)
                yield piece
            if progress is not None:
                progress(raw.tell() / size)


def _read_block(path: Path, layout: Layout, block: list[str], count: Count) -> Recording | None:
    """One block of lines; empty ones are missing values in a file of one column, else they are passed over."""
    first, passed = count.lines + 1, count.passed
    count.lines += len(block)
    numbered = [(first + place, text.rstrip("\r\n")) for place, text in enumerate(block)]
    lines: list[tuple[int, str]] = []
    for number, text in numbered:
        if is_comment(text):
            continue
        if text.strip():
            # Empty lines at the very end are no values, so they wait for a line that is not.
            if layout.width == 1:
                lines += [(number, "")] * count.pending
            count.passed += count.pending if layout.width > 1 else 0
            count.pending = 0
            lines.append((number, text))
        else:
            count.pending += 1
    if not lines:
        return None
    texts = [text for _, text in lines]
    numbers = _read_fast(layout, texts)
    cells: list[list[str]] | None = None
    if numbers is None or layout.group is not None:
        cells = [split(text, layout.separator, layout.split_decimals) if text else [""] for text in texts]
        _check_widths(path, layout, lines, cells)
        numbers = _read_slowly(path, layout, lines, cells)
    times = _read_times(path, layout, lines, cells)
    groups = None if layout.group is None or cells is None else tuple(row[layout.group] for row in cells)
    return Recording(numbers, layout.channels, times, groups, passed=count.passed - passed)


def _read_fast(layout: Layout, texts: list[str]) -> NDArray[np.float64] | None:
    """numpy's reader, which knows plain numbers only; None where it meets anything else."""
    separator = layout.separator
    if layout.split_decimals or layout.thousands:
        return None
    if separator not in ("", " ") and any(text.count(separator) != layout.width - 1 for text in texts):
        return None
    joined, columns = "\n".join(texts), layout.columns
    if layout.width == 1:
        joined = "\n".join(text or "nan" for text in texts)
    if layout.decimal == ",":
        if "." in joined and len(columns) < layout.width and separator not in ("", " ") and '"' not in joined:
            # Points may stand in stamps and words, but not in numbers.
            rows = (text.split(separator) for text in texts)
            joined = "\n".join(separator.join([cells[column].strip() or "nan" for column in columns]) for cells in rows)
            columns = tuple(range(len(columns)))
        if "." in joined:
            return None
        joined = joined.replace(",", ".")
    if separator not in ("", " "):
        joined = _fill_cells(joined, separator)
    try:
        return np.loadtxt(
            joined.split("\n"),
            delimiter=None if separator in ("", " ") else separator,
            usecols=columns,
            comments=None,
            quotechar='"',
            ndmin=2,
        )
    except ValueError:
        return None


def _fill_cells(text: str, separator: str) -> str:
    """Empty cells as nan, which numpy's reader takes."""
    double = separator * 2
    while double in text:
        text = text.replace(double, f"{separator}nan{separator}")
    text = text.replace(f"{separator}\n", f"{separator}nan\n").replace(f"\n{separator}", f"\nnan{separator}")
    text = f"nan{text}" if text.startswith(separator) else text
    return f"{text}nan" if text.endswith(separator) else text


def _check_widths(path: Path, layout: Layout, lines: Sequence[tuple[int, str]], cells: Sequence[Sequence[str]]) -> None:
    for (number, _), row in zip(lines, cells, strict=True):
        if len(row) != layout.width:
            texts = [text for _, text in lines[:SAMPLE]]
            refuse_ragged(path, number, len(row), layout.skip + 1, layout.width, texts, layout.separator)


def _read_slowly(
    path: Path, layout: Layout, lines: Sequence[tuple[int, str]], cells: Sequence[Sequence[str]]
) -> NDArray[np.float64]:
    """Cell by cell: whatever is called missing is NaN, and what else is no number is an error with its place."""
    values = np.empty((len(cells), len(layout.columns)))
    for place, ((number, _), row) in enumerate(zip(lines, cells, strict=True)):
        for channel, column in enumerate(layout.columns):
            value = parse_number(row[column], layout.decimal, layout.thousands)
            if value is None:
                raise FewoneError(
                    f"{path}: line {number}, column {column + 1} is {row[column]!r}, not a number; fix it or take it"
                    f" out"
                )
            values[place, channel] = value
    return values


def _read_times(
    path: Path, layout: Layout, lines: Sequence[tuple[int, str]], cells: list[list[str]] | None
) -> NDArray[np.float64] | None:
    time = layout.time
    if time is None:
        return None
    places = [time.column] if time.clock is None else [time.column, time.clock]
    if cells is None and layout.separator not in ("", " ") and not any('"' in text for _, text in lines):
        rows = (text.split(layout.separator, max(places) + 1) for _, text in lines)
    else:
        rows = (split(text, layout.separator, layout.split_decimals) if text else [""] for _, text in lines)
    stamps = [" ".join([row[place].strip() for place in places]) for row in rows]
    if time.kind == "number":
        plain = (parse_number(stamp, layout.decimal, layout.thousands) for stamp in stamps)
        seconds = np.array([np.nan if value is None else value for value in plain]) * EPOCH_UNITS[time.unit]
    else:
        seconds = parse_stamps(stamps, time.kind, time.order)
    if not np.isfinite(seconds).all():
        place = int(np.argmin(np.isfinite(seconds)))
        refuse_time(path, lines[place][0], time.column, stamps[place])
    return seconds


def _check_order(path: Path, piece: Recording, last: float, line: int) -> float:
    """Time may stand still, as coarse stamps do, but not run backwards."""
    if piece.times is None:
        return last
    steps = np.diff(piece.times, prepend=piece.times[0] if last == -np.inf else last)
    if (steps < 0).any():
        place = line - len(piece) + int(np.argmax(steps < 0)) + 1
        raise FewoneError(
            f"{path}: time runs backwards near line {place} (by {-steps.min():g} s; the end of summer time?); sort the"
            f" rows, or say --time none"
        )
    return float(piece.times[-1])


def read_whole(path: Path, options: ReadOptions, group: str | None = None) -> Recording:
    """The whole file as one recording."""
    layout, blocks = read_text(path, options, group)
    pieces = list(blocks)
    if not pieces:
        raise FewoneError(f"{path}: is empty; take it out or fill it")
    return replace(_join(pieces), said=layout.describe())


def _take_together(blocks: Iterator[Recording]) -> Iterator[Recording]:
    while pieces := list(islice(blocks, TOGETHER)):
        yield _join(pieces)


def _join(pieces: Sequence[Recording]) -> Recording:
    """Consecutive pieces of one file as one."""
    times = [piece.times for piece in pieces if piece.times is not None]
    groups = [piece.groups for piece in pieces if piece.groups is not None]
    return Recording(
        np.concatenate([piece.values for piece in pieces]),
        pieces[0].channels,
        np.concatenate(times) if times else None,
        tuple(chain.from_iterable(groups)) if groups else None,
        passed=sum(piece.passed for piece in pieces),
    )
