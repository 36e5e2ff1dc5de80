"""Evidence that tasks taught: features of a window in the directions that tell classes and faults apart.

With W the covariance of features within a class and B that between the classes of a dataset and of what faults do to a
series, both pooled over training families, and U L U' the eigenvectors of (W + ridge diag W)^-1/2 B (W + ...)^-1/2,

P = (W + ridge diag W)^-1/2 U          z = P' features,          d = |a (z - z')|^2 / width,          a = L / (1 + L)

where each direction is, besides, in units of how the normals at hand vary in it (pair_up_in_units). It is linear, has
no gradient and knows no task of the user's; until it is learned it is zero and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewone.learners.evidence_kinds.kind import Features, View
from fewone.learners.evidence_kinds.series import (
    POINTS,
    Convolutions,
    Spectrum,
    Statistics,
    pair_up,
    pair_up_in_units,
    resample,
    scale_windows,
)

WIDTH = 64
RIDGE = 1.0
KERNELS, COARSE = 12, 64
DESCRIBED = 483
"""How many numbers describe a channel."""


@dataclass(frozen=True)
class Directions:
    """matrix (features, WIDTH): directions in which series of a class vary alike; shares (WIDTH): what each counts."""

    matrix: Tensor
    shares: Tensor

    @property
    def scaled(self) -> Tensor:
        """(features, WIDTH): each direction as long as what it counts."""
        return self.matrix * self.shares


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
    """The description in the learned directions: (N, C, length) -> (N, C, WIDTH).

    in_units: as wide as series of a class vary, with what each direction counts beside it; else made as wide as that.
    """

    matrix: Tensor
    shares: Tensor

    def __init__(self, in_units: bool = False) -> None:
        super().__init__()
        self.in_units = in_units
        self.description = Description()
        self.register_buffer("matrix", torch.zeros(DESCRIBED, WIDTH))
        if in_units:
            self.register_buffer("shares", torch.zeros(WIDTH))

    def learn(self, directions: Directions) -> None:
        if self.in_units:
            self.matrix.copy_(directions.matrix)
            self.shares.copy_(directions.shares)
        else:
            self.matrix.copy_(directions.scaled)

    def project(self, described: Tensor) -> Features:
        """(..., DESCRIBED) -> (..., WIDTH)."""
        found = described @ self.matrix.to(described.dtype)
        return (found, self.shares.to(found.dtype).expand(found.shape)) if self.in_units else (found,)

    def forward(self, inputs: Tensor) -> Features:
        (described,) = self.description(inputs)
        return self.project(described)


def compare_directions(queries: Features, normals: Features) -> Tensor:
    return pair_up(queries[0] * queries[1], normals[0] * normals[1])


def compare_directions_in_units(queries: Features, normals: Features, allowed: Tensor) -> Tensor:
    shares = normals[1][:, :1].flatten(2).square()
    return pair_up_in_units(queries[0], normals[0], allowed, shares)


def find_projection(within: Tensor, between: Tensor, ridge: float = RIDGE) -> Directions:
    """Of two covariances (features, features)."""
    wide, foreign = within.double(), between.double()
    own = wide.diagonal()
    sizes, directions = torch.linalg.eigh(wide + ridge * own.diag() + 1e-4 * own.mean() * torch.eye(len(wide)).double())
    whitening = directions * sizes.rsqrt()
    shares, chosen = torch.linalg.eigh(whitening.T @ foreign @ whitening)
    shares, chosen = shares.flip(0)[:WIDTH].clamp_min(0.0), chosen.flip(1)[:, :WIDTH]
    return Directions((whitening @ chosen).to(within.dtype), (shares / (1.0 + shares)).to(within.dtype))
