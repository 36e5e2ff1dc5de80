"""Isolation Forest, all trees at once: how few random cuts isolate a point among the normals.

Own code, because scikit-learn builds a thousand trees of ten points one by one, a hundred times slower.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.baselines.principal_components import fit_components
from fewone.baselines.shallow import Method
from fewone.episodes import generator_for


def average_path(count: Tensor) -> Tensor:
    """The mean depth at which `count` points are isolated from each other (an unsuccessful search in a binary tree)."""
    harmonic = torch.log((count - 1).clamp_min(1)) + 0.5772156649015329
    long = 2 * harmonic - 2 * (count - 1) / count.clamp_min(1)
    return torch.where(count > 2, long, torch.where(count == 2, torch.ones_like(count), torch.zeros_like(count)))


class IsolationForest(nn.Module):
    """features (n, D) -> anomaly score (n,) relative to the threshold that calls `contamination` of the normals so.

    Trees are complete to their last level: node i has children 2i + 1 and 2i + 2. feature, cut (B, inner nodes);
    length (B, nodes): the path that ends in each node, counting on where it still holds several normals.
    """

    feature: Tensor
    cut: Tensor
    length: Tensor
    normaliser: Tensor
    threshold: Tensor

    def __init__(self, project: nn.Module, points: Tensor, trees: int, contamination: float) -> None:
        super().__init__()
        self.project = project
        self.depth = max(1, math.ceil(math.log2(max(2, len(points)))))
        feature, cut, length = _grow(points, trees, self.depth)
        normaliser = average_path(points.new_tensor(float(len(points)))).clamp_min(1e-12)
        for name, value in (("feature", feature), ("cut", cut), ("length", length), ("normaliser", normaliser)):
            self.register_buffer(name, value)
        scores = self._score(points)
        self.register_buffer("threshold", scores.quantile(1 - contamination))

    def forward(self, features: Tensor) -> Tensor:
        return self._score(self.project(features)) - self.threshold

    def _score(self, points: Tensor) -> Tensor:
        """2 ** -(mean path length / its expectation), in chunks so that (B, n) index tables stay small."""
        parts = [self._score_part(points[start : start + 1024]) for start in range(0, len(points), 1024)]
        return torch.cat(parts)

    def _score_part(self, points: Tensor) -> Tensor:
        trees, columns = len(self.feature), points.T.contiguous()
        node = torch.zeros((trees, len(points)), dtype=torch.int64)
        position = torch.arange(len(points)).expand(trees, -1)
        for _ in range(self.depth):
            value = columns[self.feature.gather(1, node), position]
            node = 2 * node + 1 + (value > self.cut.gather(1, node))
        return torch.exp2(-self.length.gather(1, node).mean(0) / self.normaliser)


def _grow(points: Tensor, trees: int, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """Level by level for all trees: a random feature that varies in the node, a cut between its extremes."""
    count, width = points.shape
    generator = generator_for("isolation forest", trees)
    node = torch.zeros((trees, count), dtype=torch.int64)
    features, cuts = [], []
    settled = torch.zeros((trees, 1))
    for level in range(depth):
        nodes = 2**level
        low, high = _extremes(points, node, nodes)
        lottery = torch.rand((trees, nodes, width), generator=generator)
        chance = torch.rand((trees, nodes), generator=generator).to(points.dtype)
        # Rounding does not count as variation (the same bound as scikit-learn's).
        feature = torch.where(high > low + 1e-7, lottery, torch.full_like(lottery, -1.0)).argmax(-1)
        lowest = low.gather(-1, feature[..., None])[..., 0]
        highest = high.gather(-1, feature[..., None])[..., 0]
        divisible = highest > lowest + 1e-7
        # An undivided node sends everything left; its path ends here.
        cut = torch.where(divisible, lowest + chance * (highest - lowest), torch.full_like(lowest, torch.inf))
        cut = torch.where(cut == highest, lowest, cut)
        features.append(feature)
        cuts.append(cut)
        settled = torch.stack([settled + divisible, settled + divisible], -1).flatten(1)
        value = points.T[feature.gather(1, node), torch.arange(count).expand(trees, -1)]
        node = 2 * node + (value > cut.gather(1, node))
    held = F.one_hot(node, 2**depth).sum(1).to(points.dtype)
    length = settled.to(points.dtype) + average_path(held)
    inner = torch.zeros((trees, 2**depth - 1), dtype=points.dtype)
    return torch.cat(features, 1), torch.cat(cuts, 1), torch.cat([inner, length], 1)


def _extremes(points: Tensor, node: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Lowest and highest value of each feature in each node, (B, nodes, D); an empty node has high < low."""
    trees, width = len(node), points.shape[1]
    index = node[..., None].expand(-1, -1, width)
    values = points.expand(trees, -1, -1)
    empty = points.new_empty((trees, nodes, width))
    low = empty.fill_(torch.inf).scatter_reduce(1, index, values, "amin")
    high = empty.fill_(-torch.inf).scatter_reduce(1, index, values, "amax")
    return low, high


class Forest(Method):
    """1000 trees, contamination 0.1, on the principal components of the normals."""

    def __init__(self, trees: int = 1000, contamination: float = 0.1) -> None:
        super().__init__()
        self.trees, self.contamination = trees, contamination

    def fit(self, normals: Tensor) -> IsolationForest:
        project = fit_components(normals)
        return IsolationForest(project, project(normals), self.trees, self.contamination)
