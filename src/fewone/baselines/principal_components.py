"""PCA of the K normals, as the authors put it before OC-SVM and Isolation Forest: 95 % of the variance is kept."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PrincipalComponents(nn.Module):
    """features (n, D) -> (n, r): centred, projected on the components (r, D)."""

    mean: Tensor
    components: Tensor

    def __init__(self, mean: Tensor, components: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("components", components)

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.mean) @ self.components.T


class Centring(nn.Module):
    """features (n, D) -> (n, D) without the mean: what is left of PCA where the normals do not vary."""

    mean: Tensor

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)

    def forward(self, features: Tensor) -> Tensor:
        return features - self.mean


def fit_components(normals: Tensor, share: float = 0.95) -> PrincipalComponents | Centring:
    """As few components of normals (k, D) as hold more than `share` of their variance; signs fixed by the loadings."""
    mean = normals.mean(0)
    _, singular, axes = torch.linalg.svd(normals - mean, full_matrices=False)
    variances = singular.square()
    if variances.sum() <= 1e-12 * normals.square().sum() + torch.finfo(torch.float32).tiny:
        return Centring(mean)
    held = variances.cumsum(0) / variances.sum()
    kept = axes[: int((held <= share).sum()) + 1]
    largest = kept.gather(1, kept.abs().argmax(dim=1, keepdim=True))
    return PrincipalComponents(mean, kept * largest.sign())
