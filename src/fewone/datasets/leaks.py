"""TaskSplits -> what of the held-out tasks can be seen before the test. Looks at pools and values, draws nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from fewone.episodes import Task, TaskSplits


def find_leaks(splits: TaskSplits) -> list[str]:
    """One line per leak: a shared example or recording, or a held-out class among earlier examples."""
    parts = _parts(splits)
    store = splits.train[0].normal.store
    rows = {name: gather_rows(tasks) for name, tasks in parts.items()}
    leaks: list[str] = []
    for one, other in combinations(parts, 2):
        shared = _shared(rows[one], rows[other])
        if len(shared):
            leaks.append(f"{len(shared)} examples are in both {one} and {other}, the first is row {int(shared[0])}")
        if store.recording is not None:
            recordings = _shared(torch.unique(store.recording[rows[one]]), torch.unique(store.recording[rows[other]]))
            if len(recordings):
                leaks.append(f"{len(recordings)} recordings are in both {one} and {other}")
        if store.classes is not None:
            normals = torch.cat([task.normal.rows() for task in parts[other]])
            classes = _shared(torch.unique(store.classes[rows[one]]), torch.unique(store.classes[normals]))
            if len(classes):
                leaks.append(f"{len(classes)} classes of {other} are among the {one} examples")
    return leaks


def gather_rows(tasks: Sequence[Task]) -> Tensor:
    """Every row that a task of these can draw, once, in ascending order."""
    if not tasks:
        return torch.empty(0, dtype=torch.int64)
    seen = torch.zeros(len(tasks[0].normal.store.values), dtype=torch.bool)
    for task in tasks:
        seen[task.normal.rows()] = True
        seen[task.anomalous.rows()] = True
    return seen.nonzero().squeeze(1)


def _shared(one: Tensor, other: Tensor) -> Tensor:
    return one[torch.isin(one, other)]


@dataclass(frozen=True)
class Copy:
    """An example of a later split that holds the same values as another row of an earlier split."""

    split: str
    row: int
    earlier_split: str
    earlier_row: int


def find_copies(splits: TaskSplits) -> list[Copy]:
    """Different rows of two splits with the same values: a file that stands in the data under two names."""
    values = splits.train[0].normal.store.values
    first: dict[bytes, tuple[str, int]] = {}
    copies: list[Copy] = []
    for split, tasks in _parts(splits).items():
        for row in gather_rows(tasks).tolist():
            digest = hashlib.blake2b(values[row].numpy().tobytes(), digest_size=16).digest()
            earlier_split, earlier_row = first.setdefault(digest, (split, row))
            if earlier_split != split and earlier_row != row:
                copies.append(Copy(split, row, earlier_split, earlier_row))
    return copies


def _parts(splits: TaskSplits) -> dict[str, tuple[Task, ...]]:
    return {"training": splits.train, "validation": splits.validation, "test": splits.test}
