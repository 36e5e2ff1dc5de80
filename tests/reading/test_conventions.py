"""Tables in every mixture of conventions: read as they were meant, or refused; never as other numbers."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import fewone
from fewone.errors import FewoneError

SEEDS = range(400)
START = datetime(2024, 3, 21, 6, tzinfo=UTC)
STAMPS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%m/%d/%Y %I:%M:%S %p")


@dataclass(frozen=True)
class Meant:
    """What was written: values (rows, channels) with NaN where nothing was, and seconds since 1970."""

    content: bytes
    name: str
    values: np.ndarray
    times: np.ndarray | None


def spell(value: float, digits: int, decimal: str, thousands: str) -> str:
    """A number as a spreadsheet of some country prints it."""
    text = f"{value:,.{digits}f}" if thousands else f"{value:.{digits}f}"
    return text.translate(str.maketrans({",": thousands, ".": decimal}))


def make_table(seed: int) -> Meant:
    """A table of random size in a random mixture of conventions."""
    random = np.random.default_rng(seed)

    def toss(share: float = 0.5) -> bool:
        return bool(random.random() < share)

    separator = str(random.choice([";", ",", "\t"]))
    decimal = str(random.choice([".", ","]))
    rows, channels = int(random.integers(3, 30)), int(random.integers(1, 5))
    # Between commas 5,12,3 may be three whole numbers: nobody can see that 12,3 is one.
    digits = random.integers(int(separator == decimal), 5, channels)
    grouped = toss(0.2) and separator != "," and digits.max() > 0
    thousands = ("," if decimal == "." else ".") if grouped else ""
    values = np.stack([np.round(random.normal(0, 10.0 ** random.integers(0, 5), rows), d) for d in digits], axis=1)
    header, words, quoted = toss(0.7), toss(0.2), separator == "," and decimal == "," and toss()
    kind = str(random.choice(STAMPS)) if toss() else ""
    missing = str(random.choice(["", "-", "n/a", "NaN", "#NAME?", "#NV"])) if toss(0.3) else None
    lines = []
    if header:
        names = [f"Größe {number}" for number in range(channels)]
        lines.append([*(["Zeit"] if kind else []), *names, *(["Lage"] if words else [])])
        if toss(0.2):
            lines.append([*([""] if kind else []), *(["1/min"] * channels), *([""] if words else [])])
    for number, row in enumerate(values):
        cells = [spell(value, d, decimal, thousands) for value, d in zip(row, digits, strict=True)]
        if missing is not None and toss(0.1) and channels > 1:
            values[number, place := int(random.integers(channels))] = np.nan
            cells[place] = missing
        cells = [f'"{cell}"' for cell in cells] if quoted else cells
        stamp = [(START + timedelta(seconds=20 * number)).strftime(kind)] if kind else []
        lines.append([*stamp, *cells, *(["ok"] if words else [])])
    ends = separator if toss(0.1) else ""
    texts = [separator.join(line) + ends for line in lines]
    if toss(0.2):
        texts = ["# written by a logger", *texts]
    text = str(random.choice(["\n", "\r\n"])).join([*texts, ""])
    encoding = str(random.choice(["utf-8", "utf-8-sig", "utf-16"]))
    content = text.encode(encoding)
    packed = toss(0.1)
    times = START.timestamp() + 20.0 * np.arange(rows) if kind else None
    return Meant(gzip.compress(content) if packed else content, "a.csv.gz" if packed else "a.csv", values, times)


def read_as_meant(path: Path, meant: Meant) -> bool:
    """Whether the file was read; False: it was refused in one line."""
    path.write_bytes(meant.content)
    try:
        found = fewone.read_recording(path)
    except FewoneError as error:
        assert "\n" not in str(error)
        assert str(path) in str(error)
        return False
    np.testing.assert_allclose(found.values, meant.values, rtol=1e-12)
    if meant.times is None:
        assert found.times is None
    else:
        np.testing.assert_allclose(found.times, meant.times)
    return True


def test_a_table_is_read_as_it_was_meant_or_refused(tmp_path: Path) -> None:
    read = []
    for seed in SEEDS:
        meant = make_table(seed)
        read.append(read_as_meant(tmp_path / meant.name, meant))
    assert np.mean(read) > 0.75


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_holds_for_the_fast_and_the_slow_way(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meant = next(one for one in map(make_table, range(1000 * (seed + 1), 2000 * (seed + 1))) if one.times is not None)
    fast = read_as_meant(tmp_path / meant.name, meant)
    monkeypatch.setattr("fewone.reading.text_files._read_fast", lambda layout, texts: None)
    assert read_as_meant(tmp_path / meant.name, meant) == fast
