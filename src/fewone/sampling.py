"""Task -> Episode: how many examples, how many of them normal. The one one-class switch is `normal_share`.

Knows no learner and no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fewone.episodes import (
    ClassBatch,
    Episodes,
    EvaluationPlan,
    Examples,
    Moments,
    Pool,
    Preparation,
    RowPool,
    Task,
    generator_for,
)
from fewone.errors import FewoneError


def count_normals(support_size: int, normal_share: float) -> int:
    """How many of K support examples are normal: the share rounded to whole examples (0.9 of 10 is 9)."""
    return round(support_size * normal_share)


@dataclass(frozen=True)
class _Rows:
    """One episode as rows of the store, before any value is read."""

    support: Tensor
    support_labels: Tensor
    query: Tensor
    query_labels: Tensor


@dataclass(frozen=True)
class EpisodeSampler:
    """Draws episodes: a support of K examples, `normal_share` of them normal, and a class-balanced query of Q.

    standardize_by: a training task is standardised with all its normals (as the paper does) or, as a new task must
    be, with the normals of its support alone; it matters only where the dataset asks for standardisation.
    smallest_query: where a task has too few anomalies for Q, the largest balanced query down to this size is drawn.
    """

    support_size: int
    query_size: int
    normal_share: float = 1.0
    preparation: Preparation = Preparation()
    standardize_by: Literal["task", "support"] = "task"
    smallest_query: int | None = None

    def __post_init__(self) -> None:
        if self.support_size < 1:
            raise FewoneError(f"support_size (K) is {self.support_size}: at least 1 is needed")
        if self.query_size < 2 or self.query_size % 2:
            raise FewoneError(f"query_size (Q) is {self.query_size}: an even number of at least 2, half of each class")
        if not 0.5 <= self.normal_share <= 1.0:
            raise FewoneError(f"normal_share is {self.normal_share}: allowed are 0.5 (balanced) to 1 (one-class)")

    def draw(self, tasks: Sequence[Task], count: int, generator: torch.Generator) -> Episodes:
        """A training batch: `count` tasks, none twice before all were drawn, one episode each."""
        order = torch.cat([torch.randperm(len(tasks), generator=generator) for _ in range(-(-count // len(tasks)))])[
            :count
        ]
        chosen = [tasks[int(position)] for position in order]
        rows = [self._draw_training_rows(task, generator) for task in chosen]
        return self._fill(chosen, rows, self.standardize_by)

    def draw_evaluation(self, tasks: Sequence[Task], plan: EvaluationPlan, number: int, seed: int) -> Episodes:
        """Adaptation set `number` of each task and its test queries: fixed by the seed, whatever the batching.

        Tasks of one cluster draw the same positions, so aligned pools get the same recordings as support.
        """
        rows = [
            self._draw_evaluation_rows(task, plan, generator_for(seed, "evaluate", task.unit, number)) for task in tasks
        ]
        return self._fill(tasks, rows, "support")

    def _draw_training_rows(self, task: Task, generator: torch.Generator) -> _Rows:
        normals = count_normals(self.support_size, self.normal_share)
        anomalies = self.support_size - normals
        half = self.query_size // 2
        if self.smallest_query is not None:
            available = len(task.anomalous) if not task.halves or anomalies == 0 else len(task.anomalous) // 2
            half = max(self.smallest_query // 2, min(half, available - (0 if task.halves else anomalies)))
            half = min(half, self.query_size // 2)
        return _draw_rows(task, normals, anomalies, half, half, generator, move_anomalies=anomalies == 0)

    def _draw_evaluation_rows(self, task: Task, plan: EvaluationPlan, generator: torch.Generator) -> _Rows:
        normals = count_normals(self.support_size, self.normal_share)
        anomalies = self.support_size - normals
        return _draw_rows(task, normals, anomalies, plan.normals, plan.anomalies, generator, move_anomalies=False)

    def _fill(self, tasks: Sequence[Task], rows: Sequence[_Rows], standardize_by: str) -> Episodes:
        """Read the rows' values straight into two preallocated tensors, pad ragged queries with weight 0."""
        values = tasks[0].normal.store.values
        longest = max(len(episode.query) for episode in rows)
        count, shape = len(tasks), values.shape[1:]
        support = torch.empty((count, self.support_size, *shape))
        query = torch.empty((count, longest, *shape))
        support_labels = torch.empty((count, self.support_size))
        query_labels, weights = torch.zeros((count, longest)), torch.zeros((count, longest))
        support_rows = torch.empty((count, self.support_size), dtype=torch.int64)
        query_rows = torch.empty((count, longest), dtype=torch.int64)
        for position, (task, episode) in enumerate(zip(tasks, rows, strict=True)):
            number = len(episode.query)
            support_rows[position] = episode.support
            query_rows[position, :number] = episode.query
            query_rows[position, number:] = episode.query[-1]
            support_labels[position] = episode.support_labels
            query_labels[position, :number] = episode.query_labels
            weights[position, :number] = 1.0 / number
            values = task.normal.store.values
            support[position] = self.preparation(values[support_rows[position]])
            query[position] = self.preparation(values[query_rows[position]])
            if self.preparation.standardize:
                normals = support[position][episode.support_labels == 0]
                moments = task.moments if standardize_by == "task" else Moments.of(normals, space=len(shape) - 1)
                support[position] = moments.apply(support[position])
                query[position] = moments.apply(query[position])
        return Episodes(
            tuple(tasks),
            Examples.of(support, support_labels),
            Examples(query, query_labels, weights),
            support_rows,
            query_rows,
        )


def _draw_rows(
    task: Task,
    normals: int,
    anomalies: int,
    query_normals: int | None,
    query_anomalies: int | None,
    generator: torch.Generator,
    move_anomalies: bool,
) -> _Rows:
    """Support and query rows of one episode, disjoint; a query size of None takes all that remain.

    move_anomalies: the adaptation half's anomalies join the judging half, so that one-class and class-balanced
    training see the same data.
    """
    support_normal, judged_normal = _split(task, "normal", task.normal, normals, query_normals, generator, move=False)
    support_anomalous, judged_anomalous = _split(
        task, "anomalous", task.anomalous, anomalies, query_anomalies, generator, move_anomalies
    )
    return _Rows(
        torch.cat([support_normal, support_anomalous]),
        _labels(len(support_normal), len(support_anomalous)),
        torch.cat([judged_normal, judged_anomalous]),
        _labels(len(judged_normal), len(judged_anomalous)),
    )


def _labels(normals: int, anomalies: int) -> Tensor:
    return torch.cat([torch.zeros(normals), torch.ones(anomalies)])


def _split(
    task: Task, label: str, pool: Pool, support: int, query: int | None, generator: torch.Generator, move: bool
) -> tuple[Tensor, Tensor]:
    """`support` and `query` different rows of a pool, on different sides of its halves or recordings if it has them."""
    if task.halves and isinstance(pool, RowPool) and not move:
        adaptation, judging = pool.halves()
        _require(task, label, support, len(adaptation), "in the adaptation half")
        wanted = len(judging) if query is None else query
        _require(task, label, wanted, len(judging), "in the judging half")
        return adaptation.draw(support, generator), judging.draw(wanted, generator)
    wanted = len(pool) - support if query is None else query
    _require(
        task, label, support + max(wanted, 1), len(pool), f"for {support} in the support and {wanted} in the query"
    )
    if isinstance(pool, RowPool) and pool.store.recording is not None and support:
        return _split_by_recording(task, label, pool, support, query, generator)
    rows = pool.draw(support + wanted, generator)
    return rows[:support], rows[support:]


def _split_by_recording(
    task: Task, label: str, pool: RowPool, support: int, query: int | None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """As `_split`, but the support takes whole recordings, as few as hold K examples; the query takes the others."""
    assert pool.store.recording is not None
    shuffled = pool.draw(len(pool), generator)
    recording = pool.store.recording[shuffled]
    taken: list[int] = []
    held = 0
    for number in dict.fromkeys(recording.tolist()):
        if held >= support:
            break
        taken.append(number)
        held += int((recording == number).sum())
    inside = torch.isin(recording, torch.tensor(taken, dtype=recording.dtype))
    rest = shuffled[~inside]
    wanted = len(rest) if query is None else query
    _require(task, label, max(wanted, 1), len(rest), f"outside the {len(taken)} recordings of the support")
    return shuffled[inside][:support], rest[:wanted]


def _require(task: Task, label: str, wanted: int, available: int, where: str) -> None:
    if wanted > available:
        raise FewoneError(
            f"task {task.name}: {wanted} {label} examples wanted {where}, {available} available;"
            f" ask for fewer or add examples"
        )


@dataclass(frozen=True)
class ClassSampler:
    """Draws batches of classes: M normals of each of C tasks, where another task's normals are anomalies."""

    classes: int
    examples: int
    preparation: Preparation = Preparation()

    def draw(self, tasks: Sequence[Task], generator: torch.Generator) -> ClassBatch:
        """C tasks at random, M normals of each: inputs (C, M, *shape)."""
        chosen = torch.randperm(len(tasks), generator=generator)[: self.classes]
        rows = []
        for position in chosen.tolist():
            pool = tasks[position].normal
            _require(tasks[position], "normal", self.examples, len(pool), "for a batch of classes")
            rows.append(pool.draw(self.examples, generator))
        values = tasks[0].normal.store.values[torch.stack(rows)]
        return ClassBatch(self.preparation(values), chosen)
