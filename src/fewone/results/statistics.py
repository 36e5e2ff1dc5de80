"""Values per unit and what can honestly be said of them: means, intervals over units, paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from fewone.errors import FewoneError


@dataclass(frozen=True)
class Interval:
    """A mean over independent units and its 95 % interval; no bounds where there is one unit."""

    mean: float
    low: float | None
    high: float | None
    units: int


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % t interval of one value per unit (never of pooled examples, which are not independent)."""
    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return Interval(mean, None, None, count)
    half = _t_quantile(count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def cut_to_shares(found: Interval) -> Interval:
    """The interval of a rate or an accuracy, cut at 0 and 1: the mean lies within, so what is cut off covers nothing.

    The one rule wherever both ends are shown; counts of false alarms near 0 take `bootstrap`, which stays within.
    """
    if found.low is None or found.high is None:
        return found
    return Interval(found.mean, max(0.0, found.low), min(1.0, found.high), found.units)


FEW_UNITS = 5


def warn_of_few(units: int) -> str:
    """What a table over so few independent tasks is worth, in one line; empty where there are enough."""
    if units >= FEW_UNITS:
        return ""
    return f"{units} test task{'s' if units > 1 else ''} say little: another draw of tasks may give other figures"


@cache
def _t_quantile(freedom: int) -> float:
    """Of Student's t at 97.5 %: scipy takes longer for it than the mean of a thousand values does."""
    from scipy import stats  # only on need: it takes a third of a second to import

    return float(stats.t.ppf(0.975, freedom))


def bootstrap(values: Sequence[float], draws: int = 10_000) -> Interval:
    """Mean and 95 % percentile interval over resampled units: for shares near 0, where Student's t would go below."""
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return Interval(mean, None, None, count)
    low, high = np.quantile(_resample(count, draws) @ np.asarray(values, dtype=np.float64), [0.025, 0.975])
    return Interval(mean, float(low), float(high), count)


@lru_cache(maxsize=16)
def _resample(count: int, draws: int) -> NDArray[np.float64]:
    """How much each unit weighs in each draw: (draws, count), rows that sum to 1.

    The same units always give the same interval: the draws are a means, not a measurement.
    """
    drawn = np.random.default_rng(0).integers(0, count, (draws, count))
    places = drawn + count * np.arange(draws)[:, None]
    return np.bincount(places.ravel(), minlength=draws * count).reshape(draws, count) / count


@dataclass(frozen=True)
class UnitScores:
    """One value of each metric per unit (a task, or a cluster of dependent tasks): the mean over its episodes."""

    units: tuple[str, ...]
    episodes: int
    accuracy: tuple[float, ...]
    auroc: tuple[float, ...]
    pr_auc: tuple[float, ...]
    f1: tuple[float, ...]
    false_alarms: tuple[float, ...]
    misses: tuple[float, ...]
    loss: tuple[float, ...]

    def summarize(self) -> Summary:
        """Mean and interval of each metric over the units."""
        return Summary(*(interval(getattr(self, field.name)) for field in fields(Summary)))


@dataclass(frozen=True)
class Summary:
    """Mean and 95 % interval over units of each metric (or of a difference of two runs in each metric)."""

    accuracy: Interval
    auroc: Interval
    pr_auc: Interval
    f1: Interval
    false_alarms: Interval
    misses: Interval
    loss: Interval


@dataclass(frozen=True)
class Results:
    """An evaluation: per example (a segment, where recordings are cut) and, where there are recordings, per run."""

    examples: UnitScores
    runs: UnitScores | None
    seconds: float
    cpu_seconds: float


def compare(first: UnitScores, second: UnitScores) -> Summary:
    """First minus second, paired unit by unit on the same episodes, with the interval of that difference."""
    _require_same_episodes([first, second])
    place = {unit: number for number, unit in enumerate(second.units)}
    order = [place[unit] for unit in first.units]

    def differ(name: str) -> Interval:
        ours, theirs = np.asarray(getattr(first, name)), np.asarray(getattr(second, name))[order]
        return interval((ours - theirs).tolist())

    return Summary(*(differ(field.name) for field in fields(Summary)))


def average_seeds(runs: Sequence[UnitScores]) -> UnitScores:
    """Several seeds on the same episodes as one: each unit's mean over the seeds; its interval is then over units."""
    _require_same_episodes(runs)
    first = runs[0]
    if len(runs) == 1:
        return first

    def mean(name: str) -> tuple[float, ...]:
        tables = [dict(zip(run.units, getattr(run, name), strict=True)) for run in runs]
        values = np.array([[table[unit] for unit in first.units] for table in tables])
        return tuple(values.mean(axis=0).tolist())

    return UnitScores(first.units, first.episodes, *(mean(field.name) for field in fields(Summary)))


def join_units(parts: Mapping[str, UnitScores]) -> UnitScores:
    """The units of several datasets as those of one, each named after its dataset too."""
    units = tuple(f"{name}: {unit}" for name, part in parts.items() for unit in part.units)
    values = (tuple(v for part in parts.values() for v in getattr(part, field.name)) for field in fields(Summary))
    return UnitScores(units, sum(part.episodes for part in parts.values()), *values)


def summarize_over_seeds(runs: Sequence[UnitScores]) -> Summary:
    """Mean and t interval of each metric over seeds: how much another training would differ on the same tasks."""
    _require_same_episodes(runs)
    return Summary(*(interval([float(np.mean(getattr(run, field.name))) for run in runs]) for field in fields(Summary)))


def _require_same_episodes(runs: Sequence[UnitScores]) -> None:
    for run in runs[1:]:
        if set(run.units) != set(runs[0].units) or run.episodes != runs[0].episodes:
            raise FewoneError(
                f"runs can be paired on the same episodes only: one has {len(runs[0].units)} units in"
                f" {runs[0].episodes} episodes, the other {len(run.units)} in {run.episodes}, or their names differ"
            )
