"""Features of fixed random convolutions (after ROCKET): nothing is learned, so nothing is lost on a new machine."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.errors import FewoneError
from fewone.networks.embedding import Embedding
from fewone.networks.norms import Statistics

KERNEL = 9
SAMPLES = 1 << 14
"""Series of so many samples in all at a time: their responses stay in the cache."""


class RandomConvolution(Embedding):
    """Series (n, channels, length) -> (n, 2 * kernels): share of positive values and maximum of each response.

    Kernels of 9 taps with zero mean; dilations are powers of two up to the length; every kernel reads each channel with
    a weight of its own, at random. Inputs are expected standardised; the same seed gives the same kernels.
    """

    biases: Tensor

    def __init__(self, shape: tuple[int, ...], kernels: int = 256, seed: int = 0) -> None:
        super().__init__()
        if len(shape) != 2 or shape[1] < KERNEL:
            raise FewoneError(
                f"random convolutions need series (channels, length) of at least {KERNEL} samples, not {shape}"
            )
        channels, length = shape
        # On the CPU whatever the default device is: the same seed must give the same kernels everywhere.
        with torch.device("cpu"):
            self._draw_kernels(channels, kernels, torch.Generator().manual_seed(seed), length)
        self.width = 2 * kernels
        self.takes_statistics = False

    def _draw_kernels(self, channels: int, kernels: int, generator: torch.Generator, length: int) -> None:
        self.dilations = [2**power for power in range(16) if (KERNEL - 1) * 2**power < length]
        counts = [
            kernels // len(self.dilations) + (i < kernels % len(self.dilations)) for i in range(len(self.dilations))
        ]
        for number, count in enumerate(counts):
            weights = torch.randn(count, channels, KERNEL, generator=generator)
            weights = weights - weights.mean(-1, keepdim=True)
            # One channel alone, or a random mixture: both kinds of kernels are there.
            alone = F.one_hot(torch.randint(channels, (count,), generator=generator), channels)
            mixed = torch.rand(count, 1, generator=generator) < 0.5
            weights = weights * torch.where(mixed, torch.ones_like(alone), alone).unsqueeze(-1)
            weights = weights / weights.square().sum((1, 2), keepdim=True).sqrt()
            self.register_buffer(f"weights_{number}", weights)
        self.register_buffer("biases", 2.0 * torch.rand(kernels, generator=generator) - 1.0)

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        if torch.compiler.is_compiling():  # an exported graph knows convolutions, and no parts of a batch
            return self.convolve(inputs), ()
        parts = torch.split(inputs, max(1, SAMPLES // inputs.shape[-1]))
        return torch.cat([self._multiply(part) for part in parts]), ()

    def convolve(self, inputs: Tensor) -> Tensor:
        """The features by torch's own convolution: the plain form of `_multiply`."""
        positive, largest = [], []
        for dilation, weights, bias in self._groups():
            response = F.conv1d(inputs, weights, bias, dilation=dilation, padding=(KERNEL // 2) * dilation)
            positive.append((response > 0).to(inputs.dtype).mean(-1))
            largest.append(response.amax(-1))
        return torch.cat(positive + largest, -1)

    def _multiply(self, inputs: Tensor) -> Tensor:
        """The same as products with shifted copies of the series, two to three times as fast: the channels are few."""
        number, channels, length = inputs.shape
        reach = (KERNEL // 2) * self.dilations[-1]
        padded = F.pad(inputs, (reach, reach))
        positive, largest = [], []
        for dilation, weights, bias in self._groups():
            margin = reach - (KERNEL // 2) * dilation
            shifted = padded[..., margin : padded.shape[-1] - margin].unfold(-1, length, dilation)
            taps = shifted.reshape(number, channels * KERNEL, length)
            response = torch.baddbmm(bias.unsqueeze(-1), weights.flatten(1).expand(number, -1, -1), taps)
            largest.append(response.amax(-1))
            # In place, so that the zeros and ones need no conversion.
            positive.append(response.detach().clone().gt_(0.0).mean(-1))
        return torch.cat(positive + largest, -1)

    def _groups(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Dilation, weights (n, channels, KERNEL) and biases (n,) of the kernels of one dilation after the other."""
        start = 0
        for number, dilation in enumerate(self.dilations):
            weights: Tensor = getattr(self, f"weights_{number}")
            if len(weights):  # a long series may have more dilations than there are kernels
                yield dilation, weights, self.biases[start : start + len(weights)]
            start += len(weights)
