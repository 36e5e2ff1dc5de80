"""One-liners for series: a single number, or a spectrum, says how far a window is from the normals."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewone.baselines.shallow import Features, Method, RelativeDistance, own_threshold

TINY = 1e-12


class LargestDifference(Features):
    """The largest step between neighbouring samples, over all channels: (n, channels, length) -> (n, 1)."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.diff(dim=-1).abs().flatten(1).amax(-1, keepdim=True)


class LogEnergy(Features):
    """The log of the mean square around each channel's mean: (n, channels, length) -> (n, channels)."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.log(inputs.var(dim=-1, correction=0).flatten(1) + TINY)


class LogSpectrum(Features):
    """Log magnitudes of the Fourier transform of each channel: (n, channels, length) -> (n, channels * frequencies).

    floor keeps empty frequencies from ruling the distance; inputs are expected standardised.
    """

    def __init__(self, floor: float = 1e-3) -> None:
        super().__init__()
        self.floor = floor

    def forward(self, inputs: Tensor) -> Tensor:
        magnitudes = torch.fft.rfft(inputs, dim=-1, norm="ortho").abs()
        return torch.log(magnitudes + self.floor).flatten(1)


class Magnitude(nn.Module):
    """features (n, 1) -> (n,): the number itself is the distance."""

    def forward(self, features: Tensor) -> Tensor:
        return features.squeeze(-1)


class UpperTail(Method):
    """One-sided: larger is more anomalous. Own threshold: the 90 % quantile over the normals."""

    def fit(self, normals: Tensor) -> RelativeDistance:
        values = normals.squeeze(-1)
        return RelativeDistance(Magnitude(), values.quantile(0.9), values.new_tensor(TINY))


class Deviation(nn.Module):
    """features (n, D) -> (n,): the largest absolute deviation from the centre over the D numbers."""

    centre: Tensor

    def __init__(self, centre: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.centre).abs().amax(-1)


class TwoSided(Method):
    """Both ways off the normals' mean is anomalous. Own threshold: 90 % of the leave-one-out deviations.

    A single normal has none: then a factor of two in energy is the threshold.
    """

    def fit(self, normals: Tensor) -> RelativeDistance:
        count = len(normals)
        # The deviation from the mean of the others is k / (k - 1) times that from the mean of all.
        own = Deviation(normals.mean(0))(normals) * (count / max(1, count - 1))
        threshold = own_threshold(own, alone=normals.new_tensor(2.0).log())
        return RelativeDistance(Deviation(normals.mean(0)), threshold, normals.new_tensor(1e-6))
