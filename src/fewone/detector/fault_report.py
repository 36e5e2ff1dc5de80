"""A fitted detector -> which faults it would find, from which strength on: faults are injected into its own normals.

The normals are split into folds; each fold is judged by a detector that was fitted on the others, untouched (its false
alarms) and with every fault of every strength (what it finds). Nothing that is judged was fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fewone.detector.picture_faults import PICTURE_FAULTS, inject_into_pictures
from fewone.errors import InputError
from fewone.faults import FAULTS, inject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = NDArray[Any]
Judge = Callable[[Values], NDArray[np.bool_]]
"""Examples (n, *shape) -> which are called anomalous, (n,)."""

Data = Literal["table", "series", "pictures", "runs"]

STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
FOLDS = 5
TRIALS = 20
"""With fewer normals each of them gets several faults of a kind, of different places and signs, to about so many."""

FOUND = 0.8
"""A fault is found from a strength on where at least this share of the examples is called anomalous from there on."""


@dataclass(frozen=True)
class FaultReport:
    """What would be found.

    Attributes
    ----------
    faults
        The names of the faults.
    strengths
        Ascending; 1 is a fault that is plain to see beside the series' own deviation.
    found
        (faults, strengths) the share of normals with that fault that is called anomalous.
    false_alarms
        The share of the same normals, untouched, that is called anomalous.
    examples
        How many normals were judged.
    held_out
        Whether each was judged by a detector that had not seen it (not so with a single normal).
    """

    faults: tuple[str, ...]
    strengths: tuple[float, ...]
    found: NDArray[np.float64]
    false_alarms: float
    examples: int
    held_out: bool

    @property
    def found_from(self) -> dict[str, float | None]:
        """The strength from which on each fault is found; None: not at any that was tried."""
        return {fault: self._find_from(shares) for fault, shares in zip(self.faults, self.found, strict=True)}

    @property
    def blind(self) -> tuple[str, ...]:
        """The faults that are not found at any strength that was tried."""
        return tuple(fault for fault, strength in self.found_from.items() if strength is None)

    def __str__(self) -> str:
        lines = ["fault       found from   share found at strength " + "".join(f"{one:>7g}" for one in self.strengths)]
        for fault, shares in zip(self.faults, self.found, strict=True):
            strength = self._find_from(shares)
            word = "not found" if strength is None else f"{strength:g}"
            lines.append(f"{fault:<12}{word:<36} " + "".join(f"{share:>7.0%}" for share in shares))
        judged = "each judged by the others" if self.held_out else "WARNING: judged by itself, there is no other normal"
        lines.append(f"untouched: {self.false_alarms:.0%} of {self.examples} normals called anomalous, {judged}")
        lines.append(f"found from: the strength from which on at least {FOUND:.0%} are called anomalous")
        lines.append(f"blind to: {', '.join(self.blind) or 'none of these faults'}")
        return "\n".join(lines)

    def plot(self) -> Figure:
        """The share found of each fault over its strength."""
        from fewone.detector.drawing import draw_faults

        return draw_faults(self.faults, self.strengths, self.found, self.false_alarms)

    def _find_from(self, shares: NDArray[np.float64]) -> float | None:
        missed = np.flatnonzero(shares < FOUND)
        first = int(missed[-1]) + 1 if len(missed) else 0
        return self.strengths[first] if first < len(self.strengths) else None


def report_faults(
    normals: Values,
    data: Data,
    fit: Callable[[NDArray[np.int64]], Judge],
    faults: Sequence[str] | None,
    strengths: Sequence[float],
    seed: int,
) -> FaultReport:
    """normals (K, channels, *space), or runs (K, segments, channels, length); fit: rows of them -> a judge."""
    known, put = _choose_faults(data)
    names = tuple(known) if faults is None else tuple(faults)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"no fault is called {unknown[0]!r}; there are {', '.join(known)}")
    steps = tuple(sorted(float(strength) for strength in strengths))
    if not names or not steps or steps[0] <= 0:
        raise InputError("at least one fault and one strength above 0 are needed")
    count = len(normals)
    parts = [rows for rows in np.array_split(np.arange(count), min(FOLDS, count)) if len(rows)]
    draws = max(1, round(TRIALS / count))
    found, alarms = np.zeros((len(names), len(steps))), 0
    for rows in parts:
        rest = np.setdiff1d(np.arange(count), rows)
        judge = fit(rest if len(rest) else rows)
        alarms += int(judge(normals[rows]).sum())
        copies = np.repeat(normals[rows], draws, axis=0)
        faulty = [put(copies, name, strength, seed + int(rows[0])) for name in names for strength in steps]
        called = judge(np.concatenate(faulty)).reshape(len(names), len(steps), len(copies))
        found += called.mean(axis=-1) * len(rows)
    return FaultReport(names, steps, found / count, alarms / count, count, count > 1)


def _choose_faults(data: Data) -> tuple[Sequence[str], Callable[[Values, str, float, int], Values]]:
    if data == "table":
        raise InputError("faults are injected into series and pictures; this detector takes plain tables")
    if data == "pictures":
        return list(PICTURE_FAULTS), inject_into_pictures
    return list(FAULTS), _inject_into_runs if data == "runs" else inject


def _inject_into_runs(runs: Values, fault: str, strength: float, seed: int) -> Values:
    """A fault anywhere in the operation: runs (n, segments, channels, length)."""
    count, segments, channels, length = runs.shape
    whole = runs.transpose(0, 2, 1, 3).reshape(count, channels, segments * length)
    faulty = inject(whole, fault, strength, seed).reshape(count, channels, segments, length)
    return faulty.transpose(0, 2, 1, 3)
