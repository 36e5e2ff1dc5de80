"""A recording as read: numbers, their names and times, and what is wrong with them. Missing numbers stay missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

LONGEST_STEP = 1.5
"""A step of time this many times longer than the usual one is a gap."""
UNEVEN = 0.2
"""A step that differs by more than this share from the usual one is uneven."""
SMALLEST_STEP = 1e-3
"""Stamps are rarely written finer: steps that differ by at most this many seconds differ by rounding."""
LARGEST_LIST = 6


@dataclass(frozen=True)
class Recording:
    """What a file holds, row by row.

    Attributes
    ----------
    values
        (length, channels), NaN where a value is missing.
    channels
        Their names.
    times
        (length,) in seconds, or None where nothing tells the time.
    groups
        (length,) what stands in the grouping column, or None.
    said
        How the file was read, in one line.
    passed
        Empty lines of a file of several columns, which are no rows.
    """

    values: Floats
    channels: tuple[str, ...]
    times: NDArray[np.float64] | None = None
    groups: tuple[str, ...] | None = None
    said: str = ""
    passed: int = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def sampling_rate(self) -> float | None:
        """In Hz, by the usual step of time; None without times."""
        step = None if self.times is None else find_step(self.times)
        return None if step is None else 1.0 / step

    def inspect(self) -> Findings:
        """What is missing or uneven."""
        inspector = Inspector()
        inspector.add(self)
        return inspector.findings


@dataclass(frozen=True)
class Findings:
    """What is missing in a recording, counted.

    missing_rows: with a missing value. gaps: places where time jumps; longest_gap in seconds. uneven: steps of time of
    another length that are no gaps. empty_lines: of the file that were passed over.
    """

    rows: int = 0
    missing_rows: int = 0
    gaps: int = 0
    longest_gap: float = 0.0
    uneven: int = 0
    sampling_rate: float | None = None
    empty_lines: int = 0

    @property
    def whole(self) -> bool:
        return not (self.missing_rows or self.gaps or self.uneven or self.empty_lines)

    def __str__(self) -> str:
        parts = []
        if self.missing_rows:
            parts.append(f"{self.missing_rows} of {self.rows} rows lack a value")
        if self.gaps:
            word = "gap" if self.gaps == 1 else "gaps"
            parts.append(f"{self.gaps} {word} in time, the longest {format_seconds(self.longest_gap)}")
        if self.uneven:
            parts.append(f"{self.uneven} uneven steps of time")
        if self.empty_lines:
            parts.append(f"{self.empty_lines} empty lines passed over")
        return ", ".join(parts) or "nothing missing"


@dataclass
class Inspector:
    """Findings of a recording that comes in pieces; `breaks` are kept for who cuts windows."""

    findings: Findings = field(default_factory=Findings)
    _step: float | None = None
    _last: float | None = None

    def add(self, piece: Recording) -> NDArray[np.bool_]:
        """Count a further piece. Returns (2, rows): where a value is missing, and where time jumps before a row."""
        missing = ~np.isfinite(piece.values).all(axis=1)
        jumps, uneven, longest = np.zeros(len(piece), bool), 0, self.findings.longest_gap
        if piece.times is not None and len(piece):
            self._step = self._step or find_step(piece.times)
            before = piece.times[:1] if self._last is None else np.array([self._last])
            steps = np.diff(piece.times, prepend=before)
            if self._last is None:
                steps[0] = self._step or 0.0
            if self._step is not None:
                slack = max(UNEVEN * self._step, min(SMALLEST_STEP, 0.5 * self._step))
                jumps = steps > LONGEST_STEP * self._step + min(SMALLEST_STEP, 0.5 * self._step)
                uneven = int((~jumps & (np.abs(steps - self._step) > slack)).sum())
                longest = max(longest, float(steps[jumps].max(initial=0.0)))
            self._last = float(piece.times[-1])
        found = self.findings
        self.findings = Findings(
            found.rows + len(piece),
            found.missing_rows + int(missing.sum()),
            found.gaps + int(jumps.sum()),
            longest,
            found.uneven + uneven,
            None if self._step is None else 1.0 / self._step,
            found.empty_lines + piece.passed,
        )
        return np.stack([missing, jumps])


def find_step(times: NDArray[np.float64]) -> float | None:
    """The usual step: the median, or the mean where stamps are coarser than the rows."""
    if len(times) < 2:
        return None
    steps = np.diff(times)
    usual = float(np.median(steps))
    if usual <= 0.0:
        usual = float(times[-1] - times[0]) / (len(times) - 1)
    # Stamps in milliseconds of 3 Hz alternate between 333 and 334: the mean of what is near the median is finer.
    near = steps[np.abs(steps - usual) <= UNEVEN * usual]
    fine = float(near.mean()) if len(near) else usual
    return fine if fine > 0.0 else None


def format_seconds(seconds: float) -> str:
    """0.25 -> "250 ms", 7265 -> "2.02 h"."""
    for limit, unit, size in ((1e-3, "µs", 1e-6), (1.0, "ms", 1e-3), (120.0, "s", 1.0), (7200.0, "min", 60.0)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:.3g} days"


def list_names(names: tuple[str, ...]) -> str:
    """All of a few names; of many the first."""
    if len(names) <= LARGEST_LIST:
        return ", ".join(names)
    return f"{', '.join(names[:3])}, ... ({len(names)})"
