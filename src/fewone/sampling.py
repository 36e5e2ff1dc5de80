"""Task -> Episode: how many examples, how many of them normal. The one one-class switch is `normal_share`.

Knows no learner and no file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fewone.episodes import (
    ClassBatch,
    Episodes,
    EvaluationProtocol,
    Examples,
    InputScaling,
    Moments,
    Pool,
    RowPool,
    Task,
    generator_for,
)
from fewone.errors import FewoneError, InputError


def count_normals(support_size: int, normal_share: float) -> int:
    """How many of K support examples are normal: the share in whole examples, halves rounded up (0.9 of 10 is 9)."""
    return math.floor(support_size * normal_share + 0.5)


def describe_rounding(support_size: int, normal_share: float) -> str | None:
    """What to tell the user where the share gives no whole number of examples; None where it does."""
    wanted, normals = support_size * normal_share, count_normals(support_size, normal_share)
    if abs(wanted - normals) < 1e-9:
        return None
    return (
        f"normal_share {normal_share:g} of K={support_size} is {wanted:g} normals:"
        f" rounded to {normals} normal and {support_size - normals} anomalous"
    )


def check_shapes(tasks: Sequence[Task]) -> None:
    """Refuse tasks whose examples do not fit into one batch."""
    if not tasks:
        raise InputError("there is no task; give at least one")
    for task in tasks:
        if task.shape != tasks[0].shape:
            raise InputError(
                f"task {task.name}: its examples are {task.shape}, those of task {tasks[0].name} {tasks[0].shape}; one"
                f" learner takes examples of one shape"
            )


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

    Parameters
    ----------
    support_size, query_size
        K and Q; half of the query is normal, half anomalous.
    normal_share
        Of the support: 1 is one-class, 0.5 balanced.
    preparation
        How stored values become inputs, where `standardize` does not say it all.
    standardize_by
        A training task is standardised with all its normals (as the paper does) or, as a new task must be, with the
        normals of its support alone.
    smallest_query
        Where a task has too few anomalies for Q, the largest balanced query down to this size is drawn.
    standardize
        Inputs in units of the normals' mean and deviation per channel: a short word for
        `preparation=InputScaling(standardize=True)`.

    Attributes
    ----------
    scaling
        How inputs were prepared: give it to the detector, or it would score other inputs than were trained on.

    Examples
    --------
    >>> import numpy as np
    >>> from fewone import EpisodeSampler, Task
    >>> tasks = [Task.from_arrays(name, np.zeros((20, 3)), np.ones((9, 3))) for name in ("a", "b")]
    >>> sampler = EpisodeSampler(support_size=5, query_size=10, standardize=True)
    >>> for episodes in sampler.stream(tasks, meta_batch=2, steps=1, seed=0):
    ...     print(episodes.support.inputs.shape, episodes.query.inputs.shape)
    torch.Size([2, 5, 3]) torch.Size([2, 10, 3])
    """

    support_size: int
    query_size: int
    normal_share: float = 1.0
    preparation: InputScaling = InputScaling()
    standardize_by: Literal["task", "support"] = "task"
    smallest_query: int | None = None
    standardize: InitVar[bool | None] = None

    def __post_init__(self, standardize: bool | None) -> None:
        if self.support_size < 1:
            raise FewoneError(f"support_size (K) is {self.support_size}: at least 1 is needed")
        if self.query_size < 2 or self.query_size % 2:
            raise FewoneError(f"query_size (Q) is {self.query_size}: an even number of at least 2, half of each class")
        if not 0.5 <= self.normal_share <= 1.0:
            raise FewoneError(f"normal_share is {self.normal_share}: allowed are 0.5 (balanced) to 1 (one-class)")
        if standardize is not None:
            if self.preparation != InputScaling():
                raise FewoneError("standardize and preparation are both given: one of them says how inputs are made")
            object.__setattr__(self, "preparation", InputScaling(standardize=standardize))

    @property
    def scaling(self) -> InputScaling:
        """How stored values become inputs."""
        return self.preparation

    def stream(self, tasks: Sequence[Task], meta_batch: int, steps: int, seed: int = 0) -> Iterator[Episodes]:
        """`steps` training batches of `meta_batch` tasks: batch n is fixed by the seed and n alone.

        Parameters
        ----------
        tasks
            With normals and anomalies, all of one shape.
        meta_batch
            So many tasks make a batch.
        steps
            So many batches.
        seed
            Batch n depends on the seed and n alone.

        Returns
        -------
        Batches for `accumulate_gradient`.

        Raises
        ------
        InputError
            At once, where tasks have different shapes or a task has too few examples to train on.
        """
        self.check_training(tasks)
        return (self.draw(tasks, meta_batch, generator_for(seed, "train", number)) for number in range(1, steps + 1))

    def check_training(self, tasks: Sequence[Task]) -> None:
        """Refuse tasks of which an episode cannot be drawn: one line that names the first of them.

        Parameters
        ----------
        tasks
            Those of a training.

        Raises
        ------
        InputError
            Different shapes, one name twice, or too few examples for an episode.
        """
        check_shapes(tasks)
        names = [task.name for task in tasks]
        for task in tasks:
            if names.count(task.name) > 1:
                raise InputError(f"two tasks are called {task.name!r}: give each a name of its own")
            try:
                self._draw_training_rows(task, generator_for(0, "check"))
            except FewoneError as error:
                raise InputError(str(error)) from None

    def draw(self, tasks: Sequence[Task], count: int, generator: torch.Generator) -> Episodes:
        """A training batch: `count` tasks, none twice before all were drawn, one episode each.

        Parameters
        ----------
        tasks
            Those of a training.
        count
            So many tasks make the batch.
        generator
            The source of chance; `fewone.episodes.generator_for` makes one of keys.

        Returns
        -------
        One episode per chosen task, with a leading task axis.

        Raises
        ------
        FewoneError
            No tasks, or fewer than one is asked for.
        """
        if not tasks or count < 1:
            raise FewoneError(f"a batch of {count} tasks wanted of {len(tasks)}; ask for at least one, give more tasks")
        rounds = -(-count // len(tasks))
        order = torch.cat([torch.randperm(len(tasks), generator=generator) for _ in range(rounds)])[:count]
        chosen = [tasks[position] for position in order.tolist()]
        rows = [self._draw_training_rows(task, generator) for task in chosen]
        return replace(self._fill(chosen, rows, self.standardize_by), task_index=order)

    def draw_evaluation(self, tasks: Sequence[Task], plan: EvaluationProtocol, number: int, seed: int) -> Episodes:
        """Adaptation set `number` of each task and its test queries: fixed by the seed, whatever the batching.

        Tasks of one cluster draw the same positions, so aligned pools get the same recordings as support.

        Parameters
        ----------
        tasks
            Tasks to be evaluated on.
        plan
            How many supports and queries.
        number
            Of the adaptation set, from 0.
        seed
            Fixes the draw.

        Returns
        -------
        One episode per task.
        """
        rows = [
            self._draw_evaluation_rows(task, plan, generator_for(seed, "evaluate", task.unit, number)) for task in tasks
        ]
        return self._fill(tasks, rows, "support")

    def _draw_training_rows(self, task: Task, generator: torch.Generator) -> _Rows:
        half = self.query_size // 2
        anomalies = self._count_anomalies()
        sides = _draw_sides(task, self.support_size - anomalies, anomalies, half, half, generator, anomalies == 0)
        if self.smallest_query is not None:
            allowed = min(half, len(sides.query_normal), len(sides.query_anomalous))
            half = max(allowed, -(-self.smallest_query // 2))
        return sides.take(task, half, half)

    def _draw_evaluation_rows(self, task: Task, plan: EvaluationProtocol, generator: torch.Generator) -> _Rows:
        anomalies = self._count_anomalies()
        normals = self.support_size - anomalies
        sides = _draw_sides(task, normals, anomalies, plan.normals, plan.anomalies, generator, move_anomalies=False)
        return sides.take(task, plan.normals, plan.anomalies)

    def _count_anomalies(self) -> int:
        return self.support_size - count_normals(self.support_size, self.normal_share)

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
            # index_select, because plain indexing of byte images goes element by element: 50 times slower.
            support[position] = values.index_select(0, support_rows[position])
            query[position] = values.index_select(0, query_rows[position])
            self.preparation.apply_in_place(support[position])
            self.preparation.apply_in_place(query[position])
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


@dataclass(frozen=True)
class _Sides:
    """The support rows of an episode, and the rows that may be asked about beside it, in random order."""

    support_normal: Tensor
    support_anomalous: Tensor
    query_normal: Tensor
    query_anomalous: Tensor

    def take(self, task: Task, normals: int | None, anomalies: int | None) -> _Rows:
        """The episode with so many queries of each class (None: all there are, at least one)."""
        beside = f"for the query beside {len(self.support_normal) + len(self.support_anomalous)} in the support"
        _require(task, "normal", 1 if normals is None else normals, len(self.query_normal), beside)
        _require(task, "anomalous", 1 if anomalies is None else anomalies, len(self.query_anomalous), beside)
        query_normal, query_anomalous = self.query_normal[:normals], self.query_anomalous[:anomalies]
        return _Rows(
            torch.cat([self.support_normal, self.support_anomalous]),
            _labels(len(self.support_normal), len(self.support_anomalous)),
            torch.cat([query_normal, query_anomalous]),
            _labels(len(query_normal), len(query_anomalous)),
        )


def _draw_sides(
    task: Task,
    normals: int,
    anomalies: int,
    query_normals: int | None,
    query_anomalies: int | None,
    generator: torch.Generator,
    move_anomalies: bool,
) -> _Sides:
    """Support rows and the rows left for the query, disjoint; no recording stands on both sides.

    move_anomalies: the adaptation half's anomalies join the evaluation half, so that one-class and class-balanced
    training see the same data.
    """
    support_normal, query_normal = _split(task, "normal", task.normal, normals, query_normals, generator, False)
    support_anomalous, query_anomalous = _split(
        task, "anomalous", task.anomalous, anomalies, query_anomalies, generator, move_anomalies
    )
    recording = task.normal.store.recording
    if recording is not None:
        seen = recording[torch.cat([support_normal, support_anomalous])]
        query_normal = query_normal[~torch.isin(recording[query_normal], seen)]
        query_anomalous = query_anomalous[~torch.isin(recording[query_anomalous], seen)]
    return _Sides(support_normal, support_anomalous, query_normal, query_anomalous)


def _split(
    task: Task, label: str, pool: Pool, support: int, query: int | None, generator: torch.Generator, move: bool
) -> tuple[Tensor, Tensor]:
    """`support` rows of a pool, and rows for the query: at least `query` (None: all) where the pool has so many."""
    if isinstance(pool, RowPool) and task.fixed_split and not move:
        adaptation, evaluation = pool.split_in_half()
        _require(task, label, support, len(adaptation), "for the support in the adaptation half")
        shuffled = adaptation.draw(len(adaptation), generator)
        return _choose_support(shuffled, pool.store.recording, support), evaluation.draw(len(evaluation), generator)
    _require(task, label, support, len(pool), "for the support")
    # A pool that lists its rows shuffles them all in any case; one that draws row by row stops at what is asked.
    count = len(pool) if isinstance(pool, RowPool) or query is None else min(support + query, len(pool))
    rows = pool.draw(count, generator)
    chosen = _choose_support(rows, pool.store.recording, support)
    if pool.store.recording is None:
        return chosen, rows[support:]
    return chosen, rows[~torch.isin(rows, chosen)]


def _choose_support(rows: Tensor, recording: Tensor | None, support: int) -> Tensor:
    """The first `support` of shuffled rows; where there are recordings, from as few of them as hold that many."""
    if recording is None or support == 0:
        return rows[:support]
    number, first, counts = _in_order_of_appearance(recording[rows])
    wanted = int((counts.cumsum(0) < support).sum()) + 1
    return rows[first[number] < wanted][:support]


def _in_order_of_appearance(recordings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Recordings (n,) as numbers (n,), the place (m,) of each number's first appearance, the counts (m,) by place."""
    names, number, counts = torch.unique(recordings, return_inverse=True, return_counts=True)
    first = torch.full((len(names),), len(recordings)).scatter_reduce(0, number, torch.arange(len(number)), "amin")
    order = first.argsort()
    return number, order.argsort(), counts[order]


def _labels(normals: int, anomalies: int) -> Tensor:
    return torch.cat([torch.zeros(normals), torch.ones(anomalies)])


def _require(task: Task, label: str, wanted: int, available: int, where: str) -> None:
    if wanted > available:
        remedy = "ask for fewer or add examples"
        if label == "anomalous" and len(task.anomalous) == 0:
            remedy = (
                "training and evaluation need labelled anomalies: a task of normals only can serve a detector alone"
            )
        raise FewoneError(
            f"task {task.name}: {wanted} {label} examples wanted {where}, {available} available; {remedy}"
        )


@dataclass(frozen=True)
class ClassSampler:
    """Draws batches of classes: M normals of each of C tasks, where another task's normals are anomalies."""

    classes: int
    examples: int
    preparation: InputScaling = InputScaling()

    def draw(self, tasks: Sequence[Task], generator: torch.Generator) -> ClassBatch:
        """C tasks at random, M normals of each: inputs (C, M, *shape)."""
        if self.classes > len(tasks):
            raise FewoneError(
                f"a batch of {self.classes} classes wanted, {len(tasks)} training tasks available; ask for fewer"
            )
        chosen = torch.randperm(len(tasks), generator=generator)[: self.classes]
        rows = []
        for position in chosen.tolist():
            pool = tasks[position].normal
            _require(tasks[position], "normal", self.examples, len(pool), "for a batch of classes")
            rows.append(pool.draw(self.examples, generator))
        values = tasks[0].normal.store.values
        inputs = values.index_select(0, torch.cat(rows)).view(self.classes, self.examples, *values.shape[1:])
        return ClassBatch(self.preparation(inputs), chosen)
