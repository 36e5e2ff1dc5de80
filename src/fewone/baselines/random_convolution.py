"""Random convolution features (ROCKET-like) in units of their deviation within a task, pooled over training tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from fewone.baselines.shallow import Features
from fewone.episodes import NORMAL, ClassBatch, Episodes
from fewone.networks.random_convolution import RandomConvolution


class PooledConvolutions(Features):
    """inputs (n, channels, length) -> features (n, D) / pooled deviation (1, until training tasks were observed).

    squares (D,): sum over training tasks of the variance of each feature within the task; tasks: how many.
    """

    squares: Tensor
    tasks: Tensor

    def __init__(self, convolution: RandomConvolution) -> None:
        super().__init__()
        self.convolution = convolution
        self.register_buffer("squares", torch.zeros(convolution.width, dtype=torch.float64))
        self.register_buffer("tasks", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor
        features, _ = self.convolution(inputs)
        return features / self._deviation().to(features.dtype)

    def observe(self, batch: Episodes | ClassBatch) -> None:
        with torch.no_grad():
            for normals in _normals(batch):
                features, _ = self.convolution(normals)
                self.squares += features.to(torch.float64).var(dim=0)
                self.tasks += 1

    def _deviation(self) -> Tensor:
        if self.tasks == 0:
            return torch.ones_like(self.squares)
        deviation = (self.squares / self.tasks).sqrt()
        # A feature that hardly varies within tasks must not drown the others.
        return deviation.clamp_min(float(0.1 * deviation.median()) or 1.0)


def _normals(batch: Episodes | ClassBatch) -> list[Tensor]:
    """The normals (n, *shape) of each task of a batch, padding left out."""
    if isinstance(batch, ClassBatch):
        return list(batch.inputs.unbind())
    found = []
    for task in range(len(batch)):
        support, query = batch.support[task], batch.query[task]
        judged = (query.labels == NORMAL) & (query.weights > 0)
        found.append(torch.cat([support.inputs[support.labels == NORMAL], query.inputs[judged]]))
    return [normals for normals in found if len(normals) > 1]
