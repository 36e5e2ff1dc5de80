"""Fixed transforms before a network: part of it, so that they train, save and export with it.

Composed from convolutions and matrix products: ONNX has no complex numbers.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.errors import FewoneError


class LogSpectrogram(nn.Module):
    """Series (n, channels, length) -> log band powers over time (n, channels * bands, frames).

    Frames of `window` samples, Hann-weighted, every `hop` samples; neighbouring frequencies are averaged into bands of
    equal width (the constant is left out), which takes most of the noise of a single frequency away.
    """

    kernels: Tensor
    averaging: Tensor

    def __init__(self, shape: tuple[int, ...], window: int, hop: int, bands: int, floor: float = 1e-3) -> None:
        super().__init__()
        if len(shape) != 2:
            raise FewoneError(f"a log-spectrogram needs series (channels, length), the input shape is {shape}")
        channels, length = shape
        if not 2 <= window <= length:
            raise FewoneError(f"the spectrogram's window is {window} samples: 2 to {length} (the series) are allowed")
        if not 1 <= bands <= window // 2:
            raise FewoneError(f"{bands} bands of a window of {window} samples: 1 to {window // 2} are allowed")
        self.hop, self.floor = hop, floor
        self.register_buffer("kernels", _fourier_kernels(window))
        self.register_buffer("averaging", _averaging(window // 2, bands))
        self.shape = (channels * bands, (length - window) // hop + 1)

    def forward(self, inputs: Tensor) -> Tensor:
        number, channels, length = inputs.shape
        waves = F.conv1d(inputs.reshape(number * channels, 1, length), self.kernels, stride=self.hop)
        cosine, sine = waves.chunk(2, dim=1)
        power = self.averaging @ (cosine.square() + sine.square())
        return (power + self.floor).log().reshape(number, *self.shape)


def _fourier_kernels(window: int) -> Tensor:
    """Hann-weighted cosines, then sines, of frequencies 1..window/2: (2 * (window // 2), 1, window).

    Scaled so that white noise of unit variance has power 1 at every frequency.
    """
    time = torch.arange(window, dtype=torch.float64)
    weight = 0.5 - 0.5 * torch.cos(2.0 * math.pi * time / window)
    weight = weight / weight.square().sum().sqrt()
    angle = 2.0 * math.pi / window * torch.arange(1, window // 2 + 1, dtype=torch.float64)[:, None] * time
    return torch.cat([angle.cos() * weight, angle.sin() * weight]).unsqueeze(1).to(torch.get_default_dtype())


def _averaging(frequencies: int, bands: int) -> Tensor:
    """(bands, frequencies): each row averages its share of the frequencies."""
    edges = [round(band * frequencies / bands) for band in range(bands + 1)]
    matrix = torch.zeros(bands, frequencies)
    for band, (start, end) in enumerate(pairwise(edges)):
        matrix[band, start:end] = 1.0 / (end - start)
    return matrix
