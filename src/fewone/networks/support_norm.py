"""Batch norm whose statistics travel: taken from one batch (the support), applied to another (each query).

Composed from primitives, because torch's fused batch norm under `vmap` gives wrong second-order gradients.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

Statistics = tuple[Tensor, ...]
"""Mean and variance of each normalisation of a network, in the order of the forward pass: (channels,) each."""


class Embedding(nn.Module):
    """inputs (n, *shape) -> features (n, width). Abstract; concrete networks are final.

    takes_statistics: features depend on statistics that one batch hands to another.
    """

    width: int
    takes_statistics: bool = True

    @abstractmethod
    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        """Features, and the statistics that normalised them: the given ones, or those of this very batch."""


class SupportNorm(nn.Module):
    """Normalisation per channel by the statistics of a batch; gamma and beta are parameters like any other."""

    def __init__(self, channels: int, epsilon: float = 1e-3) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        """inputs (n, channels, *space) -> the same shape; statistics: (mean, biased variance), (channels,) each."""
        found = statistics if statistics is not None else batch_statistics(inputs)
        shape = (1, -1) + (1,) * (inputs.dim() - 2)
        scale, shift = self.scale_and_shift(found)
        return inputs * scale.view(shape) + shift.view(shape), found

    def scale_and_shift(self, statistics: Statistics) -> tuple[Tensor, Tensor]:
        """The norm under these statistics as values * scale + shift, (channels,) each."""
        mean, variance = statistics
        scale = self.gamma * torch.rsqrt(variance + self.epsilon)
        return scale, self.beta - mean * scale


def batch_statistics(inputs: Tensor) -> Statistics:
    """Mean and biased variance per channel of (n, channels, *space)."""
    axes = (0, *range(2, inputs.dim()))
    mean = inputs.mean(dim=axes)
    centred = inputs - mean.view((1, -1) + (1,) * (inputs.dim() - 2))
    return mean, centred.square().mean(dim=axes)


class Classifier(nn.Module):
    """An embedding and a linear head: inputs (n, *shape) -> anomaly logits (n,)."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.head = nn.Linear(embedding.width, 1)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        features, statistics = self.embedding(inputs, statistics)
        return self.head(features).squeeze(-1), statistics
