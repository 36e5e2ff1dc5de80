"""The words that everything else speaks: examples, pools, tasks, batches of episodes.

Knows no file, no sampling rule, no network.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fewone.arrays import as_array
from fewone.errors import InputError

NORMAL, ANOMALOUS = 0, 1


@dataclass(frozen=True)
class Examples:
    """Labelled inputs of one task, or of many tasks with a leading task axis.

    inputs (..., n, *shape) float; labels (..., n) float, 0 normal and 1 anomalous;
    weights (..., n) float: what each example counts for in a loss, 0 for padding, each task sums to 1.

    >>> support = Examples.normals(torch.zeros(2, 5, 8))
    >>> len(support), support[0].inputs.shape
    (2, torch.Size([5, 8]))
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor

    @staticmethod
    def of(inputs: Tensor, labels: Tensor) -> Examples:
        """Examples that all count alike.

        >>> Examples.of(torch.zeros(3, 8), torch.tensor([0, 0, 1])).weights
        tensor([0.3333, 0.3333, 0.3333])
        """
        marks = check_labels(inputs, labels)
        return Examples(inputs, marks, torch.full_like(marks, 1.0 / marks.shape[-1]))

    @staticmethod
    def normals(inputs: Tensor) -> Examples:
        """A one-class set: inputs (T, n, *shape), all of them normal.

        >>> Examples.normals(torch.zeros(1, 5, 8)).labels
        tensor([[0., 0., 0., 0., 0.]])
        """
        return Examples.of(inputs, inputs.new_zeros(inputs.shape[:2]))

    def __getitem__(self, task: int | slice) -> Examples:
        """The examples of one task (or of a slice of tasks) of a batch."""
        return Examples(self.inputs[task], self.labels[task], self.weights[task])

    def __len__(self) -> int:
        """How many tasks a batch holds (or, without a task axis, how many examples)."""
        return len(self.labels)


def check_labels(inputs: Tensor, labels: Tensor) -> Tensor:
    """Labels (..., n) of inputs (..., n, *shape) as floats; anything but 0 (normal) and 1 (anomalous) is refused."""
    if labels.shape != inputs.shape[: labels.dim()] or labels.dim() == 0:
        raise InputError(
            f"labels: one for each example of inputs {tuple(inputs.shape)} is needed, got shape {tuple(labels.shape)}"
        )
    marks = labels if labels.is_floating_point() else labels.to(torch.get_default_dtype())
    strange = marks[(marks != NORMAL) & (marks != ANOMALOUS)]
    if len(strange):
        raise InputError(f"labels: 0 (normal) and 1 (anomalous) are expected, got {float(strange[0]):g}")
    return marks


@dataclass(frozen=True)
class Store:
    """Every example of a dataset, once: values (N, *shape) as read from disk (uint8 or float32).

    recording (N,) int64 says which examples belong to one recording, or is None where each stands alone.
    classes (N,) int64 says of which class each example is, where a dataset has classes: leaks are found by it.
    """

    values: Tensor
    recording: Tensor | None = None
    classes: Tensor | None = None


class Pool(Protocol):
    """A view of a store: the rows of one label of one task. Nothing is copied."""

    @property
    def store(self) -> Store: ...

    def __len__(self) -> int: ...

    def rows(self) -> Tensor:
        """All rows of the store in this pool, (n,) int64."""
        ...

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` different rows in random order, (count,) int64; count <= len(self)."""
        ...


@dataclass(frozen=True)
class RowPool:
    """A pool that lists its rows: index (n,) int64."""

    store: Store
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def rows(self) -> Tensor:
        return self.index

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        return self.index[torch.randperm(len(self.index), generator=generator)[:count]]

    def split_in_half(self) -> tuple[RowPool, RowPool]:
        """The adaptation half and the evaluation half, in the order of the index."""
        middle = len(self.index) // 2
        return RowPool(self.store, self.index[:middle]), RowPool(self.store, self.index[middle:])


@dataclass(frozen=True)
class InputScaling:
    """How stored values become network inputs: values * scale + shift, or, with standardize, (values - m) / s.

    m and s are mean and deviation of normals, per channel: of a support's, or of all of a training task's.

    >>> InputScaling(scale=1 / 255)(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """

    scale: float = 1.0
    shift: float = 0.0
    standardize: bool = False

    def __post_init__(self) -> None:
        if self.standardize and (self.scale, self.shift) != (1.0, 0.0):
            raise ValueError("standardisation makes scale and shift meaningless: leave them at 1 and 0")

    def __call__(self, values: Tensor) -> Tensor:
        """Stored values of any dtype -> float32 inputs (float64 stays float64)."""
        floats = values if values.dtype == torch.float64 else values.to(torch.float32)
        if self.scale == 1.0 and self.shift == 0.0:
            return floats
        return (floats * self.scale).add_(self.shift)

    def apply_in_place(self, inputs: Tensor) -> None:
        """The same for a float tensor that already holds stored values: no second one is made.

        Parameters
        ----------
        inputs
            Floats; they are changed.
        """
        if self.scale != 1.0:
            inputs.mul_(self.scale)
        if self.shift != 0.0:
            inputs.add_(self.shift)


@dataclass(frozen=True)
class Moments:
    """Mean and deviation per channel, shaped (..., 1, channels, 1, ...) to apply to (..., n, channels, ...)."""

    mean: Tensor
    deviation: Tensor

    @staticmethod
    def of(normals: Tensor, space: int = 1) -> Moments:
        """Moments over the examples and the last `space` axes of normals (..., n, channels, *space)."""
        axes = (normals.dim() - space - 2, *range(normals.dim() - space, normals.dim()))
        mean = normals.mean(dim=axes, keepdim=True)
        deviation = (normals - mean).square().mean(dim=axes, keepdim=True).sqrt()
        # A constant channel carries rounding noise instead of a deviation: dividing by it would blow the noise up.
        floor = 1e-6 * mean.abs() + torch.finfo(normals.dtype).tiny
        return Moments(mean, torch.where(deviation > floor, deviation, torch.ones_like(deviation)))

    def apply(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) / self.deviation


@dataclass(frozen=True)
class Task:
    """One thing to learn: what is normal here.

    name: of the task, in messages and results. normal, anomalous: where its examples are.
    fixed_split: the first half of each pool is for adaptation, the second for evaluation (the paper's D_tr and D_val);
    otherwise every episode splits the pool anew. cluster: tasks that are not independent of each other (segments
    of one operation) share it; intervals are taken over clusters and a cluster's tasks draw the same positions.

    >>> Task.from_arrays("press 7", torch.zeros(20, 1, 64)).unit
    'press 7'
    """

    name: str
    normal: Pool
    anomalous: Pool
    fixed_split: bool = False
    cluster: str = ""

    @staticmethod
    def from_arrays(name: str, normal: object, anomalous: object | None = None, *, cluster: str = "") -> Task:
        """A task of arrays, tensors, tables or lists; what is given is what the learner's network gets.

        Parameters
        ----------
        name
            Names the task in messages; two tasks of one training need two names.
        normal, anomalous
            Examples (n, ...): tables (n, columns), series (n, channels, length), pictures (n, channels, height, width),
            or whatever your network takes. Standardisation is per entry of the second axis, over the examples and all
            axes behind it: give series of one channel as `series[:, None]` to have one mean and deviation for all time
            steps. None: the task has no anomalies, so that it can neither train nor calibrate.
        cluster
            Tasks of one machine, person or place that are not independent of each other share it.

        Returns
        -------
        The task, of one store that both pools are views of.

        Raises
        ------
        InputError
            What is no array of finite numbers, and anomalies of another shape than the normals.

        Examples
        --------
        >>> import numpy as np
        >>> from fewone import Task
        >>> task = Task.from_arrays("press 7", np.zeros((20, 1, 64)), np.ones((5, 1, 64)))
        >>> len(task.normal), len(task.anomalous)
        (20, 5)
        """
        values = _read_examples(normal, f"task {name}: normal")
        if not len(values):
            raise InputError(f"task {name}: normal: at least one example is needed, got none")
        known = values[:0] if anomalous is None else _read_examples(anomalous, f"task {name}: anomalous")
        if known.shape[1:] != values.shape[1:]:
            raise InputError(
                f"task {name}: normal examples are {_show(values)}, anomalous ones {_show(known)}: give the examples"
                f" themselves, of one shape"
            )
        store, count = Store(torch.cat([values, known])), len(values)
        rows = torch.arange(count + len(known))
        return Task(name, RowPool(store, rows[:count]), RowPool(store, rows[count:]), cluster=cluster)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example as it is stored."""
        return tuple(self.normal.store.values.shape[1:])

    @property
    def unit(self) -> str:
        """What counts as one independent task."""
        return self.cluster or self.name

    @cached_property
    def moments(self) -> Moments:
        """Moments over all normals of the task: for training tasks, whose normals are all available."""
        normals = self.normal.store.values[self.normal.rows()].to(torch.float32)
        return Moments.of(normals, space=normals.dim() - 2)


def _read_examples(values: object, name: str) -> Tensor:
    """Bytes stay bytes, all else becomes float32: (n, ...) with at least one axis behind the examples."""
    array = as_array(values, name)
    if array.ndim < 2:
        raise InputError(f"{name}: examples (n, ...) are expected, got {array.shape}; one number each: give X[:, None]")
    if array.size and np.abs(array).max() > np.finfo(np.float32).max:
        raise InputError(f"{name}: numbers beyond 3.4e38 are too large for single precision; rescale them")
    whole = getattr(values, "dtype", None) in (np.uint8, torch.uint8)
    return torch.from_numpy(np.require(array, np.uint8 if whole else np.float32, ["C", "W"]))


def _show(values: Tensor) -> str:
    return f"({', '.join(['n', *map(str, values.shape[1:])])})"


@dataclass(frozen=True)
class EvaluationProtocol:
    """How test tasks are evaluated: adaptation sets per task, and the queries of each (None: all that remain)."""

    supports_per_task: int
    normals: int | None
    anomalies: int | None


@dataclass(frozen=True)
class TaskSplits:
    """A dataset, ready: training, validation and test tasks over one store.

    shape: of one prepared input, channels first. classes_exclude_each_other: another task's normals are anomalies
    (image classes), so batches of classes may be drawn. smallest_query: how far a training query may shrink where a
    task has few anomalies (None: not at all). fingerprint: a hash of the content, kept beside every result.
    """

    name: str
    train: tuple[Task, ...]
    validation: tuple[Task, ...]
    test: tuple[Task, ...]
    shape: tuple[int, ...]
    preparation: InputScaling
    plan: EvaluationProtocol
    classes_exclude_each_other: bool = False
    smallest_query: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True)
class Episodes:
    """A batch of episodes with a leading task axis, and where each example came from.

    support inputs (T, K, *shape), query inputs (T, Q, *shape); support_rows (T, K) and query_rows (T, Q) int64 point
    into the store (padding repeats a row with weight 0). task_index (T,) int64 numbers the tasks among all training
    tasks, for methods that keep something per training task; None outside of training.

    >>> from fewone import EpisodeSampler
    >>> task = Task.from_arrays("press 7", torch.zeros(20, 8), torch.ones(5, 8))
    >>> (episodes,) = EpisodeSampler(support_size=5, query_size=4).stream([task], meta_batch=1, steps=1)
    >>> episodes.support.labels.tolist(), episodes.query.labels.tolist()
    ([[0.0, 0.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0, 1.0]])
    """

    tasks: tuple[Task, ...]
    support: Examples
    query: Examples
    support_rows: Tensor
    query_rows: Tensor
    task_index: Tensor | None = None

    def __len__(self) -> int:
        return len(self.tasks)


@dataclass(frozen=True)
class ClassBatch:
    """One forward pass in which every class is a task in turn: inputs (C, M, *shape), the M examples of C classes.

    class_index (C,) int64 numbers the classes among all training classes (for the auxiliary cross-entropy).
    """

    inputs: Tensor
    class_index: Tensor


def generator_for(*keys: int | str) -> torch.Generator:
    """A generator whose stream is fixed by the keys alone.

    Iteration n of a run draws from generator_for(seed, "train", n): any worker, in any order, after any
    interruption draws the same, so no generator state is ever saved.
    """
    digest = hashlib.sha256("\x1f".join(map(str, keys)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
