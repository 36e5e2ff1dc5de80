"""Evidence that tasks taught: features of a window in the directions that tell classes and faults apart.

With W the covariance of features within a class and B that between the classes of a dataset and of what faults do to a
series, both pooled over training families, and U L U' the eigenvectors of (W + ridge diag W)^-1/2 B (W + ...)^-1/2,

P = (W + ridge diag W)^-1/2 U L / (1 + L)          z = P' features,          d = |z - z'|^2 / width.

It is linear, has no gradient and knows no task of the user's; until it is learned it is zero and says nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewone.learners.evidence_kinds.kind import Features, View
from fewone.learners.evidence_kinds.series import POINTS, Convolutions, Spectrum, Statistics, resample, scale_windows

WIDTH = 64
RIDGE = 1.0
KERNELS, COARSE = 12, 64
DESCRIBED = 483
"""How many numbers describe a channel."""


class Description(View):
    """What the projection starts from: responses at 128 points, of the slope too, the forms of the spectrum and of the
    distribution, size and roughness, the curve itself: (N, C, length) -> (N, C, DESCRIBED)."""

    def __init__(self) -> None:
        super().__init__()
        self.curve = Convolutions(points=POINTS, kernels=KERNELS)
        self.slope = Convolutions(points=POINTS, of_slope=True, kernels=KERNELS)
        self.spectrum, self.statistics = Spectrum(), Statistics()

    def forward(self, inputs: Tensor) -> Features:
        sizes, form = self.statistics(inputs)
        curve = resample(scale_windows(inputs), COARSE)
        parts = [*self.curve(inputs), *self.slope(inputs), 2.0 * self.spectrum(inputs)[1], 2.0 * form]
        return (torch.cat([*parts, 2.0 * sizes[..., 1:3], curve], -1),)


class Projected(View):
    """The description in the learned directions: (N, C, length) -> (N, C, WIDTH)."""

    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.description = Description()
        self.register_buffer("matrix", torch.zeros(DESCRIBED, WIDTH))

    def forward(self, inputs: Tensor) -> Features:
        (described,) = self.description(inputs)
        return (described @ self.matrix.to(described.dtype),)


def find_projection(within: Tensor, between: Tensor, ridge: float = RIDGE) -> Tensor:
    """P (features, WIDTH) of two covariances (features, features)."""
    wide, foreign = within.double(), between.double()
    own = wide.diagonal()
    sizes, directions = torch.linalg.eigh(wide + ridge * own.diag() + 1e-4 * own.mean() * torch.eye(len(wide)).double())
    whitening = directions * sizes.rsqrt()
    shares, chosen = torch.linalg.eigh(whitening.T @ foreign @ whitening)
    shares, chosen = shares.flip(0)[:WIDTH].clamp_min(0.0), chosen.flip(1)[:, :WIDTH]
    found: Tensor = whitening @ chosen * (shares / (1.0 + shares))
    return found.to(within.dtype)
