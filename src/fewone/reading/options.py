"""What a user may say about a file where sniffing would have to guess: the same names on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ReadOptions:
    """How files are read. What is not said is found by looking, and told; what is ambiguous is refused."""

    columns: tuple[str, ...] = ()
    """The channels: column names, or numbers from 1 (default: every column of numbers but the time)."""
    time: str | None = None
    """The time column, by name or number from 1; "none": there is none."""
    decimal: Literal[".", ","] | None = None
    """The decimal sign."""
    separator: str | None = None
    """What stands between columns: , ; tab or space."""
    header: bool | None = None
    """Whether the first line names the columns."""
    encoding: str | None = None
    """Of text, where it is not UTF-8: cp1252 for many spreadsheets."""
    date_order: Literal["day-first", "month-first"] | None = None
    """How 03/04/2024 is meant."""
    dataset: str | None = None
    """Which array of an .h5, .mat or .npz file, or which sheet of an .xlsx file."""
    resample: str | None = None
    """Put the rows on even time steps, such as 100Hz or 10ms; needs a time column."""
    fill: Literal["linear", "previous"] | None = None
    """How missing values are filled, in gaps up to --largest-gap (default: they are not)."""
    largest_gap: str | None = None
    """Gaps up to this are filled: 0.5s, 200ms, or a number of rows."""

    @property
    def regularizes(self) -> bool:
        return self.resample is not None or self.fill is not None
