"""Batch norms. One whose statistics travel: taken from one batch (the support), applied to another (each query).

Composed from primitives, because torch's fused batch norm under `vmap` gives wrong second-order gradients. The other is
the ordinary one with running averages, behind the same interface.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Statistics = tuple[Tensor, ...]
"""Mean and variance of each normalisation of a network, in the order of the forward pass: (channels,) each."""


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


class RunningNorm(nn.Module):
    """Ordinary batch norm behind the same interface: batch statistics in training, running averages otherwise."""

    def __init__(self, channels: int, affine: bool = True, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.epsilon, self.momentum = epsilon, momentum
        self.gamma = nn.Parameter(torch.ones(channels)) if affine else None
        self.beta = nn.Parameter(torch.zeros(channels)) if affine else None
        self.running_mean: Tensor
        self.running_variance: Tensor
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_variance", torch.ones(channels))

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        normed = F.batch_norm(
            inputs,
            self.running_mean,
            self.running_variance,
            self.gamma,
            self.beta,
            training=self.training,
            momentum=self.momentum,
            eps=self.epsilon,
        )
        return normed, ()

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """The norm under the running averages as values * scale + shift, (channels,) each."""
        scale = torch.rsqrt(self.running_variance + self.epsilon)
        scale = scale if self.gamma is None else self.gamma * scale
        shift = -self.running_mean * scale
        return scale, shift if self.beta is None else self.beta + shift
