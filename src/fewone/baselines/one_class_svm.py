"""OC-SVM: RBF kernel, nu 0.1, on the principal components of the normals; solved by libsvm, scored here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewone.baselines.principal_components import fit_components
from fewone.baselines.shallow import Method

GAMMAS = tuple(2.0**power for power in range(-10, 0))


class SupportVectors(nn.Module):
    """features (n, D) -> the offset less the weighted kernel to the support vectors: above 0 = outside."""

    vectors: Tensor
    weights: Tensor
    offset: Tensor

    def __init__(self, project: nn.Module, vectors: Tensor, weights: Tensor, offset: Tensor, gamma: float) -> None:
        super().__init__()
        self.project, self.gamma = project, gamma
        for name, value in (("vectors", vectors), ("weights", weights), ("offset", offset)):
            self.register_buffer(name, value)

    def forward(self, features: Tensor) -> Tensor:
        squares = torch.cdist(
            self.project(features), self.vectors, compute_mode="donot_use_mm_for_euclid_dist"
        ).square()
        return self.offset - torch.exp(-self.gamma * squares) @ self.weights


class OneClassSvm(Method):
    """gamma: chosen on validation tasks; 0, until then, stands for 1 / (dimensions x variance) of each task."""

    gamma: Tensor
    options = GAMMAS

    def __init__(self, nu: float = 0.1) -> None:
        super().__init__()
        self.nu = nu
        self.register_buffer("gamma", torch.zeros((), dtype=torch.float64))

    def choose(self, option: float) -> None:
        """Settle on a kernel width."""
        self.gamma.fill_(option)

    def fit(self, normals: Tensor) -> SupportVectors:
        from sklearn.svm import OneClassSVM  # only on need: scikit-learn takes a second to import

        project = fit_components(normals)
        points = project(normals)
        gamma = float(self.gamma) or float(1 / (points.shape[1] * points.var(correction=0)).clamp_min(1e-12))
        machine = OneClassSVM(kernel="rbf", nu=self.nu, gamma=gamma, tol=1e-6).fit(points.numpy())
        return SupportVectors(
            project,
            torch.from_numpy(machine.support_vectors_.copy()),
            torch.from_numpy(machine.dual_coef_[0].copy()),
            torch.tensor(-machine.intercept_[0], dtype=torch.float64),
            gamma,
        )
