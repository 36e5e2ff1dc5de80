"""1-NN: the distance to the nearest normal, relative to the normals' distances among themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewone.baselines.shallow import Method, RelativeDistance, negligible, own_threshold


class NearestDistance(nn.Module):
    """features (n, D) -> distance (n,) to the nearest of the normals (k, D)."""

    normals: Tensor

    def __init__(self, normals: Tensor) -> None:
        super().__init__()
        self.register_buffer("normals", normals)

    def forward(self, features: Tensor) -> Tensor:
        return distances(features, self.normals).amin(-1)


def distances(first: Tensor, second: Tensor) -> Tensor:
    """Euclidean distances (n, m) of first (n, D) and second (m, D), without the cancellation of a matrix product."""
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")


class NearestNormal(Method):
    """Own threshold: the 90 % quantile of the leave-one-out distances (one normal: its distance to the origin)."""

    def fit(self, normals: Tensor) -> RelativeDistance:
        own = distances(normals, normals).fill_diagonal_(torch.inf).amin(-1)
        threshold = own_threshold(own, alone=normals[0].norm())
        return RelativeDistance(NearestDistance(normals), threshold, negligible(normals))
