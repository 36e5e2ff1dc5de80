"""Tasks whose examples are embedded once, for learners that look at an example only through its embedding.

An evaluation draws the same images again and again, for every task, adaptation set and K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fewone.calibration import Adapting
from fewone.episodes import InputScaling, Pool, RowPool, Store, Task, TaskSplits

BATCH = 256
BLOCK = 32
"""So many pictures at a time are handed to a fixed function."""


@runtime_checkable
class EmbedsFirst(Protocol):
    """A learner that is an embedding and whatever comes after it."""

    @property
    def embeds_alone(self) -> bool:
        """Whether an example's embedding depends on that example alone, not on the support."""
        ...

    def embed(self, inputs: Tensor) -> Tensor:
        """inputs (T, n, *shape) -> (T, n, D)."""
        ...

    def after_embedding(self) -> Adapting:
        """The learner for inputs that are embedded already."""
        ...


@dataclass(frozen=True)
class EmbeddedOnce:
    """What is to be evaluated: a learner, and tasks and a preparation that fit it."""

    learner: Adapting
    tasks: tuple[Task, ...]
    preparation: InputScaling


@dataclass(frozen=True)
class EmbeddedPool:
    """The rows of another pool in a store of embeddings."""

    pool: Pool
    store: Store

    def __len__(self) -> int:
        return len(self.pool)

    def rows(self) -> Tensor:
        return self.pool.rows()

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        return self.pool.draw(count, generator)


def embed_once(learner: Adapting, tasks: Sequence[Task], preparation: InputScaling) -> EmbeddedOnce:
    """The same scores for less: embedded tasks where that is possible, otherwise everything as it was given.

    It is not where inputs are standardised or normed by the support: then an example has an embedding for each support.
    """
    stores = {id(task.normal.store): task.normal.store for task in tasks}
    if preparation.standardize or len(stores) != 1 or not isinstance(learner, EmbedsFirst) or not learner.embeds_alone:
        return EmbeddedOnce(learner, tuple(tasks), preparation)
    (store,) = stores.values()
    rows = _find_rows(tasks)
    values: Tensor | None = None
    with torch.no_grad():
        for part in torch.split(rows, BATCH):
            latent = learner.embed(preparation(store.values[part]).unsqueeze(0))[0]
            if values is None:
                # Rows of other splits stay untouched, so they take no memory.
                values = torch.empty(len(store.values), *latent.shape[1:], dtype=latent.dtype)
            values[part] = latent
    if values is None:
        return EmbeddedOnce(learner, tuple(tasks), preparation)
    embedded = replace(store, values=values)
    moved = tuple(
        replace(task, normal=_move(task.normal, embedded), anomalous=_move(task.anomalous, embedded)) for task in tasks
    )
    return EmbeddedOnce(learner.after_embedding(), moved, InputScaling())


def embed_splits(splits: TaskSplits, embed: Callable[[Tensor], Tensor]) -> TaskSplits:
    """The same splits with what a fixed function gives, (n, *shape) as stored -> (n, D), in the place of each example.

    Every example of a task is looked at once, however often it is drawn.
    """
    sharing: dict[int, list[Task]] = {}
    for task in (*splits.train, *splits.validation, *splits.test):
        sharing.setdefault(id(task.normal.store), []).append(task)
    stores: dict[int, Store] = {}
    for key, tasks in sharing.items():
        store, rows = tasks[0].normal.store, _find_rows(tasks)
        with torch.no_grad():
            found = torch.cat([embed(store.values[part]) for part in torch.split(rows, BLOCK)])
        values = torch.zeros(len(store.values), *found.shape[1:], dtype=found.dtype)
        values[rows] = found
        stores[key] = replace(store, values=values)

    def move(tasks: Sequence[Task]) -> tuple[Task, ...]:
        return tuple(
            replace(
                task,
                normal=_move(task.normal, stores[id(task.normal.store)]),
                anomalous=_move(task.anomalous, stores[id(task.normal.store)]),
            )
            for task in tasks
        )

    return replace(splits, train=move(splits.train), validation=move(splits.validation), test=move(splits.test))


def count_examples(tasks: Sequence[Task]) -> int:
    """How many examples the tasks have, each counted once however many tasks share it."""
    stores: dict[int, list[Task]] = {}
    for task in tasks:
        stores.setdefault(id(task.normal.store), []).append(task)
    return sum(len(_find_rows(sharing)) for sharing in stores.values())


def _find_rows(tasks: Sequence[Task]) -> Tensor:
    """The rows, in ascending order, that tasks of one store have among their normals or anomalies."""
    used = torch.zeros(len(tasks[0].normal.store.values), dtype=torch.bool)
    for task in tasks:
        used[task.normal.rows()] = True
        used[task.anomalous.rows()] = True
    return used.nonzero().squeeze(1)


def _move(pool: Pool, store: Store) -> Pool:
    return RowPool(store, pool.index) if isinstance(pool, RowPool) else EmbeddedPool(pool, store)
