"""Shallow methods behind the same seam: features of the support's normals -> a fitted method per task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fewone.episodes import NORMAL, ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import MetaLearner, Scorer, snapshot


class Hyperparameter(nn.Module):
    """One setting to be chosen on validation tasks, kept in a buffer; no options: nothing to choose."""

    options: tuple[float, ...] = ()
    episodes: int = 60
    """How many validation episodes each option is worth: fewer where adapting is slow."""

    def choose(self, option: float) -> None:
        """Settle on one of the options."""
        raise FewoneError(f"there is no option {option:g} to choose here")


class Method(Hyperparameter, ABC):
    """Fits the normals of one task. What it learned from other tasks (a kernel width) is in its buffers."""

    @abstractmethod
    def fit(self, normals: Tensor) -> nn.Module:
        """normals (k, D) float64, k >= 1 -> a module: features (n, D) -> logits (n,), above 0 = anomalous."""


class Features(nn.Module, ABC):
    """inputs (n, *shape) -> features (n, D). Nothing here is adapted to a task."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor: ...

    def observe(self, batch: Episodes | ClassBatch) -> None:
        """Take from a training batch what is learned without a gradient (scales); nothing, unless overridden."""


class RawFeatures(Features):
    """The inputs themselves, flattened."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1)


class ShallowScorer(Scorer):
    """One fitted method per task over shared features."""

    def __init__(self, features: Features, fitted: Sequence[nn.Module]) -> None:
        super().__init__()
        self.features, self.fitted = features, nn.ModuleList(fitted)

    def forward(self, inputs: Tensor) -> Tensor:
        logits = [
            method(self.features(values).to(torch.float64))
            for method, values in zip(self.fitted, inputs.unbind(), strict=True)
        ]
        return torch.stack(logits).to(inputs.dtype)


def fit_tasks(features: Features, method: Method, support: Examples) -> ShallowScorer:
    """The method fitted to the normals of each task's support (T, K, ...); its anomalies, if any, are left aside."""
    fitted = []
    with torch.no_grad():
        for inputs, labels in zip(support.inputs.unbind(), support.labels.unbind(), strict=True):
            normals = inputs[labels == NORMAL]
            if len(normals) == 0:
                raise FewoneError("a support without a normal example: shallow methods need at least one")
            fitted.append(method.fit(features(normals).to(torch.float64)))
    return ShallowScorer(features, fitted)


class ShallowLearner(MetaLearner):
    """Features that need no training, and a method."""

    fits_supports = True

    def __init__(self, features: Features, method: Method) -> None:
        super().__init__()
        self.features, self.method = features, method

    @property
    def hyperparameter(self) -> Hyperparameter:
        return self.method

    def adapt(self, support: Examples) -> ShallowScorer:
        return fit_tasks(snapshot(self.features), self.method, support)

    def observe(self, batch: Episodes | ClassBatch) -> None:
        """Learn the features' scales from a batch of training tasks."""
        self.features.observe(batch)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        raise FewoneError("a shallow method has nothing to train by gradient: evaluate it directly")


class RelativeDistance(nn.Module):
    """log of a distance relative to the method's own threshold: 0 at the threshold, scale-free."""

    threshold: Tensor
    floor: Tensor

    def __init__(self, distance: nn.Module, threshold: Tensor, floor: Tensor) -> None:
        """floor: a distance too small to matter, so that identical normals do not divide by zero."""
        super().__init__()
        self.distance = distance
        self.register_buffer("threshold", threshold)
        self.register_buffer("floor", floor)

    def forward(self, features: Tensor) -> Tensor:
        return torch.log((self.distance(features) + self.floor) / (self.threshold + self.floor))


def own_threshold(leave_one_out: Tensor, alone: Tensor, contamination: float = 0.1) -> Tensor:
    """The (1 - contamination) quantile of the normals' leave-one-out distances (k,); `alone` for a single normal."""
    if len(leave_one_out) < 2:
        return alone
    return leave_one_out.quantile(1 - contamination)


def negligible(normals: Tensor) -> Tensor:
    """A distance that rounding could make, given normals (k, D)."""
    length: Tensor = torch.linalg.vector_norm(normals, dim=-1).mean()
    return 1e-6 * length + torch.finfo(torch.float32).tiny
