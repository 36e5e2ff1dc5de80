"""Target and observed false-alarm rates: what a user of a detector gets on tasks that nobody has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fewone.calibration import Calibrated
from fewone.episodes import ANOMALOUS, NORMAL, EvaluationProtocol, Task
from fewone.errors import FewoneError
from fewone.evaluation.protocol import ScoredEpisode, decide_by_run, score_episodes
from fewone.results import Level
from fewone.sampling import EpisodeSampler, count_normals

RATES = (0.1, 0.05, 0.01)
"""The rates that are asked for."""


@dataclass(frozen=True)
class UnitAlarms:
    """Shares of false alarms and of missed anomalies per unit, means over its episodes, where `rate` was asked for."""

    level: Level
    rate: float
    units: tuple[str, ...]
    false_alarms: tuple[float, ...]
    misses: tuple[float, ...]


def measure_alarms(
    learner: Calibrated,
    tasks: Sequence[Task],
    plan: EvaluationProtocol,
    sampler: EpisodeSampler,
    seed: int,
    rates: Sequence[float] = RATES,
) -> tuple[UnitAlarms, ...]:
    """Every rate, per example and, where there are recordings, per run against the threshold for so many windows.

    Supports and queries are those of an evaluation with the same seed; the thresholds are those of the
    calibration: for a run that of the mean over its windows, one half of what a detector's verdict on a recording
    asks (its worst window is the other).
    """
    if not tasks:
        raise FewoneError("there is no task to count false alarms on; choose another split or dataset")
    return find_alarms(learner, list(score_episodes(learner, tasks, plan, sampler, seed)), sampler, rates)


def find_alarms(
    learner: Calibrated, scored: Sequence[ScoredEpisode], sampler: EpisodeSampler, rates: Sequence[float] = RATES
) -> tuple[UnitAlarms, ...]:
    """The same of episodes that this learner has scored already; sampler: the one that drew them."""
    normals = count_normals(sampler.support_size, sampler.normal_share)
    levels: list[tuple[Level, Sequence[ScoredEpisode]]] = [("example", scored)]
    if all(episode.recordings is not None for episode in scored):
        levels.append(("run", decide_by_run(scored)))
    return tuple(
        _count(episodes, level, rate, _find_thresholds(learner, normals, rate, episodes))
        for level, episodes in levels
        for rate in rates
    )


def _find_thresholds(
    learner: Calibrated, normals: int, rate: float, episodes: Sequence[ScoredEpisode]
) -> dict[int, float]:
    """The threshold for the mean of each number of examples that occurs."""
    sizes = torch.unique(torch.cat([episode.sizes for episode in episodes])).tolist()
    return {size: learner.calibration.threshold(normals, rate, size) for size in sizes}


def _count(episodes: Sequence[ScoredEpisode], level: Level, rate: float, thresholds: dict[int, float]) -> UnitAlarms:
    false_alarms: dict[str, list[float]] = {}
    misses: dict[str, list[float]] = {}
    for episode in episodes:
        limits = torch.tensor([thresholds[size] for size in episode.sizes.tolist()], dtype=torch.float64)
        alarm = (episode.logits.double() > limits).double()
        counted = episode.weights > 0
        normal, anomalous = (counted & (episode.labels == label) for label in (NORMAL, ANOMALOUS))
        false_alarms.setdefault(episode.unit, []).append(_mean(alarm[normal]))
        misses.setdefault(episode.unit, []).append(1.0 - _mean(alarm[anomalous]))
    return UnitAlarms(level, rate, tuple(false_alarms), _average(false_alarms), _average(misses))


def _mean(values: Tensor) -> float:
    return float(values.mean())


def _average(units: dict[str, list[float]]) -> tuple[float, ...]:
    return tuple(sum(values) / len(values) for values in units.values())
