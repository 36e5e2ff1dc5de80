"""Labelled classes -> one task per class: its examples are normal, those of the other classes anomalous."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fewone.episodes import RowPool, Store, Task


@dataclass(frozen=True)
class ClassRows:
    """The rows of every class of a split, (n,) int64 each: one object that all its tasks share."""

    members: tuple[Tensor, ...]

    @cached_property
    def sizes(self) -> Tensor:
        """How many rows each class has, (C,)."""
        return torch.tensor([len(rows) for rows in self.members], dtype=torch.int64)


@dataclass(frozen=True)
class OtherClasses:
    """A pool of anomalies: each from a uniformly drawn class other than `own` (None: any of the classes)."""

    store: Store
    classes: ClassRows
    own: int | None = None

    @cached_property
    def _sizes(self) -> Tensor:
        """Of the classes that may be drawn, (C,): the own class counts as empty."""
        sizes = self.classes.sizes.clone()
        if self.own is not None:
            sizes[self.own] = 0
        return sizes

    def __len__(self) -> int:
        return int(self._sizes.sum())

    def rows(self) -> Tensor:
        others = [rows for number, rows in enumerate(self.classes.members) if number != self.own]
        return torch.cat([torch.empty(0, dtype=torch.int64), *others])

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        shares = _share_out(count, self._sizes, generator)
        parts = [torch.empty(0, dtype=torch.int64)]
        for number in shares.nonzero().squeeze(1).tolist():
            rows = self.classes.members[number]
            parts.append(rows[torch.randperm(len(rows), generator=generator)[: int(shares[number])]])
        return torch.cat(parts)[torch.randperm(count, generator=generator)]


def _share_out(count: int, sizes: Tensor, generator: torch.Generator) -> Tensor:
    """How many of `count` fall on each class (C,): a uniform draw each, drawn again where a class is exhausted."""
    if count > int(sizes.sum()):
        raise ValueError(f"{count} rows wanted of {int(sizes.sum())}")
    shares = torch.zeros_like(sizes)
    while (missing := count - int(shares.sum())) > 0:
        open_classes = (shares < sizes).nonzero().squeeze(1)
        drawn = open_classes[torch.randint(len(open_classes), (missing,), generator=generator)]
        shares = torch.minimum(shares + torch.bincount(drawn, minlength=len(sizes)), sizes)
    return shares


def group_rows(labels: Tensor, classes: int) -> tuple[Tensor, ...]:
    """The rows of each class, in ascending order: labels (N,) below `classes` -> `classes` tensors of int64."""
    order = torch.argsort(labels, stable=True)
    return torch.split(order, torch.bincount(labels, minlength=classes).tolist())


def make_class_tasks(store: Store, classes: Mapping[str, Tensor]) -> tuple[Task, ...]:
    """One task per class of a split: its rows are normal, those of the split's other classes anomalous."""
    members = ClassRows(tuple(classes.values()))
    return tuple(
        Task(name, RowPool(store, rows), OtherClasses(store, members, number))
        for number, (name, rows) in enumerate(classes.items())
    )


def fingerprint_classes(content: Tensor, splits: Sequence[Sequence[Task]]) -> str:
    """64 hex digits fixed by all stored bytes and by the name and rows of every task.

    The bytes enter as sums of machine words, 8 KB at a time: hashing 184 MB would take longer than reading them.
    """
    digest = hashlib.sha256()
    flat = content.reshape(-1).view(torch.uint8)
    whole = len(flat) // 8192 * 8192
    sums = flat[:whole].view(torch.int64).view(-1, 1024).sum(dim=1)
    digest.update(f"{len(flat)}\x1f".encode())
    digest.update(sums.numpy().tobytes())
    digest.update(flat[whole:].numpy().tobytes())
    for number, tasks in enumerate(splits):
        for task in tasks:
            digest.update(f"\x1e{number}\x1f{task.name}\x1f".encode())
            digest.update(task.normal.rows().numpy().tobytes())
    return digest.hexdigest()
