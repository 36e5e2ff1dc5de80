"""A batch in shards: the meta-gradient as a sum over shards in a fixed order, whoever computes them.

With S shards of n_s tasks each, n in all:

    gradient = sum over s of n_s / n * gradient of shard s     (in the order of s: the same bits everywhere)
    buffers  = sum over s of n_s / n * buffers after shard s   (each shard begins with those of the last iteration)

A learner whose batch statistics couple the tasks of a batch (running norms, batches of classes) couples those of a
shard, and no others: the number of shards is a setting of the experiment, the number of workers is not.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, generator_for
from fewone.errors import FewoneError
from fewone.learners import MetaLearner
from fewone.training.batches import Batch
from fewone.training.device import accumulate
from fewone.workers import Exchange


def count_parts(batch: Batch) -> int:
    """Into how many shards a batch can be cut: its tasks, or half its classes (a class alone has no anomalies)."""
    return len(batch) if isinstance(batch, Episodes) else len(batch.inputs) // 2


def split_batch(batch: Batch, shards: int) -> list[Batch]:
    """Consecutive tasks (or classes) in `shards` parts whose sizes differ by one at most."""
    if shards > count_parts(batch):
        what = f"{len(batch)} tasks" if isinstance(batch, Episodes) else f"{len(batch.inputs)} classes"
        raise FewoneError(
            f"training.shards is {shards}, but a batch of {what} can be cut into {count_parts(batch)}; set it to that"
            f" at most, or enlarge training.{'meta_batch' if isinstance(batch, Episodes) else 'classes'}"
        )
    size = len(batch) if isinstance(batch, Episodes) else len(batch.inputs)
    edges = [size * number // shards for number in range(shards + 1)]
    return [_cut(batch, slice(first, last)) for first, last in pairwise(edges)]


def _cut(batch: Batch, part: slice) -> Batch:
    if isinstance(batch, ClassBatch):
        return ClassBatch(batch.inputs[part], batch.class_index[part])
    return Episodes(
        batch.tasks[part],
        batch.support[part],
        batch.query[part],
        batch.support_rows[part],
        batch.query_rows[part],
        None if batch.task_index is None else batch.task_index[part],
    )


def accumulate_in_shards(
    learner: MetaLearner, batch: Batch, shards: int, seed: int, iteration: int, exchange: Exchange
) -> Tensor:
    """Set `.grad` and the buffers of the learner as the equations above say; return the loss."""
    parts = split_batch(batch, shards)
    total = sum(map(_size, parts))
    packing = _Packing(learner)

    def work(number: int) -> Tensor:
        packing.reset()
        # What a layer draws (dropout) is fixed by seed, iteration and shard; the caller's stream is untouched.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator_for(seed, "layers", iteration, number).initial_seed())
            loss = accumulate(learner, parts[number])
        return packing.pack(loss, _size(parts[number]) / total)

    return packing.unpack(exchange.share_out(len(parts), work))


def _size(batch: Batch) -> int:
    return len(batch) if isinstance(batch, Episodes) else len(batch.inputs)


class _Packing:
    """The loss, the gradients (and which there are) and the buffers of a learner <-> one row of numbers."""

    def __init__(self, learner: MetaLearner) -> None:
        self.parameters = list(learner.parameters())
        self.buffers = list(learner.buffers())
        self.start = [buffer.clone() for buffer in self.buffers]

    def reset(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        for buffer, start in zip(self.buffers, self.start, strict=True):
            buffer.copy_(start)

    def pack(self, loss: Tensor, share: float) -> Tensor:
        present = torch.tensor([float(parameter.grad is not None) for parameter in self.parameters])
        gradients = [
            (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).flatten() * share
            for parameter in self.parameters
        ]
        # How far a buffer moved: a counter stays a whole number, a running average becomes the mean of the shards'.
        moved = [
            (buffer - start).flatten().to(torch.float32) * (share if buffer.is_floating_point() else 1.0)
            for buffer, start in zip(self.buffers, self.start, strict=True)
        ]
        dtype = self.parameters[0].dtype
        return torch.cat([value.to(dtype) for value in (loss.reshape(1) * share, present, *gradients, *moved)])

    def unpack(self, rows: list[Tensor]) -> Tensor:
        total = rows[0].clone()
        for row in rows[1:]:
            total += row
        loss, place = total[0], 1 + len(self.parameters)
        for number, parameter in enumerate(self.parameters):
            found = total[place : place + parameter.numel()].view_as(parameter)
            parameter.grad = found.clone() if total[1 + number] > 0 else None
            place += parameter.numel()
        for buffer, start in zip(self.buffers, self.start, strict=True):
            summed = total if buffer.is_floating_point() else rows[0]
            moved = summed[place : place + buffer.numel()].view_as(buffer)
            buffer.copy_(start + moved.to(buffer.dtype))
            place += buffer.numel()
        return loss
