"""A learner evaluated on tasks as the paper does: fixed adaptation sets, fixed queries, one decision per query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fewone.calibration import Calibrated
from fewone.episodes import Episodes, EvaluationProtocol, Examples, Task
from fewone.errors import FewoneError
from fewone.evaluation.metrics import METRICS, Metrics, measure
from fewone.learners import Scorer
from fewone.results.statistics import Results, UnitScores
from fewone.sampling import EpisodeSampler


class Adapting(Protocol):
    """All that evaluation asks of a learner, a baseline or a calibrated learner."""

    def adapt(self, support: Examples) -> Scorer: ...


@dataclass(frozen=True)
class ScoredEpisode:
    """One episode after scoring: logits, labels, weights and recordings (n,) of its queries; number: of the draw.

    sizes (n,) int64: how many examples each logit is the mean of.
    """

    unit: str
    number: int
    logits: Tensor
    labels: Tensor
    weights: Tensor
    recordings: Tensor | None
    sizes: Tensor


def evaluate(
    learner: Adapting,
    tasks: Sequence[Task],
    plan: EvaluationProtocol,
    sampler: EpisodeSampler,
    seed: int,
    batch_tasks: int = 8,
    batch_examples: int = 1024,
) -> Results:
    """Every adaptation set of every task: adapt, score the queries, measure.

    batch_tasks tasks are adapted at once and about batch_examples queries scored at once: speed and memory, not the
    result, depend on them.
    """
    _require_tasks(tasks)
    started, started_cpu = time.perf_counter(), time.process_time()
    scored = list(score_episodes(learner, tasks, plan, sampler, seed, batch_tasks, batch_examples))
    return _summarize(scored, time.perf_counter() - started, time.process_time() - started_cpu)


@dataclass(frozen=True)
class ScoredTwice:
    """The same episodes with the learner's own scores and with calibrated ones, and what the scoring cost."""

    own: tuple[ScoredEpisode, ...]
    calibrated: tuple[ScoredEpisode, ...]
    seconds: float
    cpu_seconds: float

    def summarize(self) -> tuple[Results, Results]:
        """At the learner's own threshold, and calibrated: each with the whole cost."""
        first, second = (_summarize(part, self.seconds, self.cpu_seconds) for part in (self.own, self.calibrated))
        return first, second


def score_twice(
    learner: Calibrated, tasks: Sequence[Task], plan: EvaluationProtocol, sampler: EpisodeSampler, seed: int
) -> ScoredTwice:
    """Every adaptation set of every task, scored once."""
    _require_tasks(tasks)
    started, started_cpu = time.perf_counter(), time.process_time()
    own: list[ScoredEpisode] = []
    calibrated: list[ScoredEpisode] = []
    with evaluation_mode(learner):
        for number, episodes in _draw(tasks, plan, sampler, seed):
            scorer = learner.adapt(episodes.support)
            logits = score_queries(scorer.scorer, episodes.query.inputs)
            own += _separate(episodes, logits, number)
            calibrated += _separate(episodes, scorer.calibrate(logits), number)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    return ScoredTwice(tuple(own), tuple(calibrated), seconds, cpu_seconds)


def _require_tasks(tasks: Sequence[Task]) -> None:
    if not tasks:
        raise FewoneError("there is no task to evaluate on; choose another split or dataset")


def _summarize(scored: Sequence[ScoredEpisode], seconds: float, cpu_seconds: float) -> Results:
    examples, runs = _average(scored), None
    if all(episode.recordings is not None for episode in scored):
        runs = _average(decide_by_run(scored))
    return Results(examples, runs, seconds, cpu_seconds)


def _draw(
    tasks: Sequence[Task], plan: EvaluationProtocol, sampler: EpisodeSampler, seed: int, batch_tasks: int = 8
) -> Iterator[tuple[int, Episodes]]:
    """Every adaptation set of every task, batch_tasks of them at once, with the set's number."""
    for number in range(plan.supports_per_task):
        for start in range(0, len(tasks), batch_tasks):
            yield number, sampler.draw_evaluation(tasks[start : start + batch_tasks], plan, number, seed)


def score_episodes(
    learner: Adapting,
    tasks: Sequence[Task],
    plan: EvaluationProtocol,
    sampler: EpisodeSampler,
    seed: int,
    batch_tasks: int = 8,
    batch_examples: int = 1024,
) -> Iterator[ScoredEpisode]:
    """The scored episodes, batch by batch: only logits and labels stay in memory."""
    with evaluation_mode(learner):
        for number, episodes in _draw(tasks, plan, sampler, seed, batch_tasks):
            logits = score_queries(learner.adapt(episodes.support), episodes.query.inputs, batch_examples)
            yield from _separate(episodes, logits, number)


def score_queries(scorer: Scorer, inputs: Tensor, batch_examples: int = 1024) -> Tensor:
    """Logits (T, n) of inputs (T, n, *shape), about batch_examples of them at once."""
    width = max(1, batch_examples // len(inputs))
    with torch.no_grad():
        parts = [scorer(inputs[:, start : start + width]) for start in range(0, inputs.shape[1], width)]
        return torch.cat(parts, dim=1)


@contextmanager
def evaluation_mode(learner: Adapting) -> Iterator[None]:
    """Layers that behave otherwise in training (running batch norm) are switched, and switched back."""
    training = isinstance(learner, nn.Module) and learner.training
    if training:
        learner.eval()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if training:
            learner.train()  # type: ignore[attr-defined]


def _separate(episodes: Episodes, logits: Tensor, number: int) -> Iterator[ScoredEpisode]:
    for position, task in enumerate(episodes.tasks):
        query = episodes.query[position]
        if not bool(torch.isfinite(logits[position][query.weights > 0]).all()):
            raise FewoneError(
                f"task {task.name}, adaptation set {number}: the scores are not finite numbers;"
                f" the training has diverged (lower its rates) or the data hold gaps"
            )
        recording = task.normal.store.recording
        recordings = None if recording is None else recording[episodes.query_rows[position]]
        sizes = torch.ones_like(query.labels, dtype=torch.int64)
        yield ScoredEpisode(task.unit, number, logits[position], query.labels, query.weights, recordings, sizes)


def _measure(scored: Sequence[ScoredEpisode], at_once: int = 256) -> list[Metrics]:
    """The metrics of the episodes, in their order, some hundred at once; the shorter ones are padded."""

    def pad(columns: Sequence[Tensor]) -> Tensor:
        return pad_sequence(list(columns), batch_first=True)

    found = []
    for start in range(0, len(scored), at_once):
        part = scored[start : start + at_once]
        columns = ([e.logits for e in part], [e.labels for e in part], [e.weights for e in part])
        found.append(measure(*map(pad, columns)))
    return found


def decide_by_run(scored: Sequence[ScoredEpisode]) -> list[ScoredEpisode]:
    """One logit per recording, adaptation set and unit: the mean over the recording's segments.

    The tasks of a unit share the support's recordings within a draw, so no run is scored by a learner that saw it.
    """
    groups: dict[tuple[str, int], list[ScoredEpisode]] = {}
    for episode in scored:
        groups.setdefault((episode.unit, episode.number), []).append(episode)
    return [_average_recordings(group) for group in groups.values()]


def _average_recordings(group: Sequence[ScoredEpisode]) -> ScoredEpisode:
    columns: list[list[Tensor]] = [[], [], []]
    for episode in group:
        assert episode.recordings is not None
        for column, values in zip(columns, (episode.logits, episode.labels, episode.recordings), strict=True):
            column.append(values[episode.weights > 0])
    logits, labels, recordings = (torch.cat(column) for column in columns)
    # A faulty copy of a normal is of its recording, so that both are never on two sides; to judge they are two runs.
    runs, inverse = torch.unique(2 * recordings + labels.to(recordings.dtype), return_inverse=True)
    empty = torch.zeros(len(runs), dtype=torch.float64)
    sizes = empty.index_add(0, inverse, torch.ones_like(logits, dtype=torch.float64))
    means = empty.index_add(0, inverse, logits.double()) / sizes
    # All segments of a run carry the run's label, so their mean is the label again.
    run_labels = empty.index_add(0, inverse, labels.double()) / sizes
    weights = torch.full_like(sizes, 1 / len(runs))
    return ScoredEpisode(group[0].unit, group[0].number, means, run_labels, weights, runs // 2, sizes.to(torch.int64))


def _average(scored: Sequence[ScoredEpisode]) -> UnitScores:
    """One value per unit: the mean over its episodes (its tasks and their adaptation sets)."""
    metrics = _measure(scored)
    units = tuple(dict.fromkeys(episode.unit for episode in scored))
    position = {unit: number for number, unit in enumerate(units)}
    index = torch.tensor([position[episode.unit] for episode in scored])
    counts = torch.zeros(len(units), dtype=torch.float64).index_add(
        0, index, torch.ones(len(scored), dtype=torch.float64)
    )

    def mean(name: str) -> tuple[float, ...]:
        values = torch.cat([getattr(metric, name) for metric in metrics])
        sums = torch.zeros(len(units), dtype=torch.float64).index_add(0, index, values)
        return tuple((sums / counts).tolist())

    columns = [mean(name) for name in METRICS]
    return UnitScores(units, len(scored), *columns)
