"""The distance to the normals' mean in units of their covariance, shrunk after Ledoit and Wolf."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewone.baselines.shallow import Method, RelativeDistance, negligible, own_threshold


class MahalanobisDistance(nn.Module):
    """features (n, D) -> distance (n,). The covariance is kept as a few axes and one variance for all the others."""

    mean: Tensor
    axes: Tensor
    variances: Tensor
    rest: Tensor

    def __init__(self, mean: Tensor, axes: Tensor, variances: Tensor, rest: Tensor) -> None:
        """mean (D,), axes (r, D) orthonormal, variances (r,) along them, rest: the variance across them."""
        super().__init__()
        for name, value in (("mean", mean), ("axes", axes), ("variances", variances), ("rest", rest)):
            self.register_buffer(name, value)

    def forward(self, features: Tensor) -> Tensor:
        centred = features - self.mean
        along = centred @ self.axes.T
        across = (centred - along @ self.axes).square().sum(-1)
        return ((along.square() / self.variances).sum(-1) + across / self.rest).sqrt()


def fit_distance(normals: Tensor) -> MahalanobisDistance:
    """Normals (k, D). The empirical covariance has rank below k, so D may be large: nothing here is D x D."""
    count, width = normals.shape
    mean = normals.mean(0)
    centred = normals - mean
    _, singular, axes = torch.linalg.svd(centred, full_matrices=False)
    scale = centred.square().sum() / (count * width)
    if scale <= 1e-12 * normals.square().mean() + torch.finfo(torch.float32).tiny:
        # Identical normals (or one) have no covariance: every direction counts alike.
        return MahalanobisDistance(mean, axes[:0], singular[:0], torch.ones_like(scale))
    # Two normals lie symmetrically about their mean, so the estimate of the noise vanishes: then half and half.
    shrinkage = shrink(centred).clamp_min(1e-3) if count > 2 else scale.new_tensor(0.5)
    rest = shrinkage * scale
    return MahalanobisDistance(mean, axes, (1 - shrinkage) * singular.square() / count + rest, rest)


def shrink(centred: Tensor) -> Tensor:
    """Ledoit and Wolf's share of the identity, from centred normals (k, D) by their Gram matrix."""
    count, width = centred.shape
    squares = (centred @ centred.T).square().sum() / count**2
    scale = centred.square().sum() / (count * width)
    distance = squares / width - scale.square()
    noise = (centred.square().sum(-1).square().sum() / count - squares) / (width * count)
    return torch.minimum(noise, distance) / distance.clamp_min(torch.finfo(distance.dtype).tiny)


class Mahalanobis(Method):
    """Own threshold: the 90 % quantile of the leave-one-out distances (one normal: its distance to the origin)."""

    def fit(self, normals: Tensor) -> RelativeDistance:
        keep = ~torch.eye(len(normals), dtype=torch.bool)
        own = [fit_distance(normals[keep[i]])(normals[i : i + 1]) for i in range(len(normals)) if len(normals) > 1]
        leave_one_out = torch.cat(own) if own else normals.new_empty(0)
        threshold = own_threshold(leave_one_out, alone=normals[0].norm())
        return RelativeDistance(fit_distance(normals), threshold, negligible(normals))
