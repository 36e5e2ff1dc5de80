"""TaskSplits -> a hash of what they hold: the same data gives the same fingerprint, on every machine."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch

from fewone.episodes import RowPool, Store, TaskSplits


def with_fingerprint(splits: TaskSplits) -> TaskSplits:
    """The same splits, carrying the fingerprint of their content."""
    return replace(splits, fingerprint=fingerprint(splits))


def fingerprint(splits: TaskSplits) -> str:
    """sha256 over the stored values, and over the name and rows of each task of each split, as 64 hex digits."""
    digest = hashlib.sha256()
    tasks = [
        (split, task)
        for split, members in (("train", splits.train), ("validation", splits.validation), ("test", splits.test))
        for task in members
    ]
    stores: dict[int, Store] = {}
    for split, task in tasks:
        digest.update(f"{split}\x1f{task.name}\x1f{task.fixed_split}\x1e".encode())
        _add_tensor(digest, task.normal.rows())
        # Anomalies that are no list of rows (all other classes) follow from the other tasks' normals.
        if isinstance(task.anomalous, RowPool):
            _add_tensor(digest, task.anomalous.rows())
        stores.setdefault(id(task.normal.store), task.normal.store)
    for store in stores.values():
        _add_tensor(digest, store.values)
    return digest.hexdigest()


def _add_tensor(digest: hashlib._Hash, tensor: torch.Tensor) -> None:
    digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(tensor.contiguous().numpy().data)
