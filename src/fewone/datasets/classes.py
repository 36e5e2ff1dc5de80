"""Labelled classes -> one task per class: its examples are normal, those of the other classes anomalous."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fewone.episodes import RowPool, Store, Task


@dataclass(frozen=True)
class OtherClasses:
    """A pool of anomalies: each from a uniformly drawn class other than `own` (None: any of the classes).

    classes: the rows of every class, (n,) int64 each; all tasks of a split share the one tuple.
    """

    store: Store
    classes: tuple[Tensor, ...]
    own: int | None = None

    def _others(self) -> list[Tensor]:
        return [rows for number, rows in enumerate(self.classes) if number != self.own]

    def __len__(self) -> int:
        return sum(map(len, self._others()))

    def rows(self) -> Tensor:
        return torch.cat(self._others()) if len(self) else torch.empty(0, dtype=torch.int64)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        others = self._others()
        if count == 0 or not others:
            return torch.empty(0, dtype=torch.int64)
        sizes = torch.tensor([len(rows) for rows in others])
        shares = _share_out(count, sizes, generator).tolist()
        parts = [
            others[number][torch.randperm(len(others[number]), generator=generator)[:share]]
            for number, share in enumerate(shares)
            if share
        ]
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
    members = tuple(classes.values())
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
