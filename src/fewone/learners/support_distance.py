"""The library's learner for series whose normality is a set: distances to the K normals, relative to theirs.

With evidence e_j(x; S) of kind j, which grows with the strangeness of x beside the normals S, the logit of a query q is

    sum_j w_j (e_j(q; S) - o_j) + b,    o_j = (K mean_i e_j(x_i; S without x_i) + s_j p_j) / (K + s_j)

The support sets its own threshold: o_j is what its normals say of each other, leaving one out, drawn to a learned prior
p_j of strength s_j. The kinds are

direct     a logit that a small network reads off the residual (or the input) alone,
embedding  log of the soft squared distance to the nearest normal in the network's space,
fixed      the same by fixed random convolutions, which nothing trained can spoil.

It was called `contrast` before version 0.2; it has nothing to do with contrastive learning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.documents import Count
from fewone.episodes import NORMAL, ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.meta_learner import PARAMETER_SCALE, MetaLearner, Scorer, query_loss, snapshot
from fewone.networks import NetworkSettings, RunningNorm, as_embedding, build_embedding
from fewone.networks.front_ends import LogSpectrogram
from fewone.networks.random_convolution import RandomConvolution
from fewone.networks.settings import build_front_end

FAR = 1e9
"""A squared distance to what is not a normal of the support: never the nearest."""


@dataclass(frozen=True)
class SupportDistanceSettings(LearnerSettings):
    """dimensions: the width of the space that distances live in (0: the network's own).

    residual: score what differs from the mean of the normals (aligned series), or the series themselves.
    random_kernels: how many fixed random convolutions give a distance of their own (0: none).

    >>> SupportDistanceSettings(random_kernels=500).residual
    True
    """

    dimensions: Count = 128
    residual: bool = True
    random_kernels: Count = 0


class PooledDeviation(nn.Module):
    """The deviation of each channel within the normals of a task, as a running average over training tasks."""

    variance: Tensor

    def __init__(self, channels: int, momentum: float = 0.05) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("variance", torch.ones(channels))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.seen: Tensor

    def observe(self, values: Tensor, normal: Tensor) -> None:
        """values (T, n, channels, ...), normal (T, n) 0 or 1: the mean variance within the tasks joins the average."""
        count = normal.sum(-1)
        enough = count >= 2
        if not bool(enough.any()):
            return
        weight = normal.view(*normal.shape, *(1,) * (values.dim() - 2))
        shape = (-1,) + (1,) * (values.dim() - 1)
        mean = (values * weight).sum(1, keepdim=True) / count.clamp_min(1.0).view(shape)
        squares = ((values - mean).square() * weight).sum(1, keepdim=True) / (count - 1.0).clamp_min(1.0).view(shape)
        axes = (0, 1, *range(3, values.dim()))
        found = squares[enough].mean(axes)
        momentum = max(self.momentum, 1.0 / (1 + int(self.seen)))
        self.variance.lerp_(found, momentum)
        self.seen += 1

    def forward(self) -> Tensor:
        deviation = self.variance.sqrt()
        # A channel that hardly varies within tasks must not drown the others.
        return torch.maximum(deviation, 0.1 * deviation.mean()).clamp_min(1e-6)


@dataclass(frozen=True)
class Support:
    """What is kept of T supports: front (T, K, channels, ...), fixed (T, K, R) or None, normal (T, K) 0 or 1."""

    front: Tensor
    fixed: Tensor | None
    normal: Tensor

    @property
    def count(self) -> Tensor:
        """How many normals, at least 1, (T, 1)."""
        return self.normal.sum(-1, keepdim=True).clamp_min(1.0)

    def mean(self) -> Tensor:
        """Mean of the normals, (T, 1, channels, ...)."""
        return self._total() / _broad(self.count, self.front)

    def mean_of_others(self) -> Tensor:
        """For each normal the mean of the others, (T, K, channels, ...); a single normal stands for the others."""
        others = (self._total() - self.front) / _broad((self.count - 1.0).clamp_min(1.0), self.front)
        return torch.where(_broad(self.count, self.front) > 1.0, others, self.front)

    def _total(self) -> Tensor:
        return (self.front * _broad(self.normal, self.front)).sum(1, keepdim=True)


def _broad(values: Tensor, like: Tensor) -> Tensor:
    """values (T, n) as (T, n, 1, ...), to meet a tensor of more axes."""
    return values.view(*values.shape, *(1,) * (like.dim() - 2))


def nearest(points: Tensor, others: Tensor, allowed: Tensor, sharpness: Tensor | None) -> Tensor:
    """Log of the squared distance of points (T, n, D) to the nearest of others (T, K, D): (T, n).

    allowed (T, n, K) or (T, 1, K): 1 where a neighbour counts. With a sharpness the minimum is soft: the mean of
    exp(-sharpness * distance) over the neighbours, turned back into a distance.
    """
    # Around the middle of the others, or the three terms would cancel what is asked for.
    middle = others.mean(1, keepdim=True)
    points, others = points - middle, others - middle
    lengths = points.square().sum(-1, keepdim=True) + others.square().sum(-1).unsqueeze(1)
    squares = (lengths - 2.0 * points @ others.transpose(1, 2)).clamp_min(0.0)
    squares = torch.where(allowed > 0, squares, torch.full_like(squares, FAR))
    if sharpness is None:
        least = squares.amin(-1)
    else:
        number = allowed.expand_as(squares).sum(-1).clamp_min(1.0)
        least = (number.log() - torch.logsumexp(-sharpness * squares, -1)) / sharpness
    # The floor keeps identical support points from making every other distance infinitely far.
    return (least.clamp_min(0.0) + 1e-2).log()


class SupportDistance(MetaLearner):
    """Distances to the K normals relative to theirs: front end, residual, network and the weights of the evidence.

    Parameters
    ----------
    module
        Any torch module, what the front end gives (n, channels, ...) -> features (n, d).
    shape
        Of one input, (channels, length).
    front_end
        A fixed transform before the module; None: the inputs themselves.
    dimensions
        Of the space that distances live in.
    residual
        Score what differs from the mean of the normals (aligned series), or the series themselves.
    random_kernels
        How many fixed random convolutions give a distance of their own (0: none).
    features
        How many the module gives, where it cannot be read off its last layer.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import SupportDistance
    >>> from fewone.episodes import Examples
    >>> module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, 8))
    >>> learner = SupportDistance(module, (1, 32), dimensions=4)
    >>> learner.adapt(Examples.normals(torch.zeros(1, 5, 1, 32)))(torch.ones(1, 4, 1, 32)).shape
    torch.Size([1, 4])
    """

    every_k = True

    def __init__(
        self,
        module: nn.Module,
        shape: tuple[int, ...],
        *,
        front_end: LogSpectrogram | None = None,
        dimensions: int = 128,
        residual: bool = True,
        random_kernels: int = 0,
        features: int | None = None,
    ) -> None:
        super().__init__()
        body = as_embedding(module, features)
        if body.takes_statistics:
            raise FewoneError(
                'support-distance shares one network among all tasks: set the network\'s norm to "running" or "none"'
            )
        self.residual = residual
        self.front_end = front_end
        self.body = body
        channels = shape[0] if front_end is None else front_end.shape[0]
        self.deviation = PooledDeviation(channels)
        self.norm = RunningNorm(channels, affine=False)
        self.head = nn.Linear(body.width, 1 + dimensions)
        self.convolution = RandomConvolution(shape, random_kernels) if random_kernels else None
        self.fixed_deviation = PooledDeviation(2 * random_kernels) if random_kernels else None
        kinds = 2 if self.convolution is None else 3
        # All numbers of the head, from here on, in tenths.
        self.log_sharpness = nn.Parameter(torch.zeros(()))
        self.weight = nn.Parameter(torch.zeros(2, kinds))
        self.bias = nn.Parameter(torch.zeros(2))
        self.prior = nn.Parameter(torch.zeros(kinds))
        self.log_strength = nn.Parameter(torch.zeros(kinds))
        self.note(residual=residual)
        self.train(self.training)

    def train(self, mode: bool = True) -> SupportDistance:
        """Batch statistics are for `accumulate_gradient` alone: adapting never depends on the rest of a batch."""
        super().train(mode)
        self.body.eval()
        self.norm.eval()
        return self

    def adapt(self, support: Examples) -> SupportDistanceScorer:
        """Known anomalies among the support are left out: they are no normals, and this learner has no use for them."""
        front, fixed = self.describe(support.inputs)
        return SupportDistanceScorer(snapshot(self), Support(front, fixed, (support.labels == NORMAL).to(front.dtype)))

    def leave_one_out(self, support: Examples, left: Tensor) -> Tensor:
        """Logits (F,) of the normals `left` (F,) of one support (1, K, ...), each scored by the rest; seen once."""
        front, fixed = self.describe(support.inputs)
        normal = (support.labels == NORMAL).to(front.dtype).repeat(len(left), 1)
        many = Support(
            front.expand(len(left), *front.shape[1:]),
            None if fixed is None else fixed.expand(len(left), *fixed.shape[1:]),
            normal.scatter(1, left.unsqueeze(-1), 0.0),
        )
        left_fixed = None if fixed is None else fixed[0, left].unsqueeze(1)
        if self.residual:
            direct, embedding = self.encode(self.relate_queries(front[0, left].unsqueeze(1), many))
            return SupportDistanceScorer(self, many).score(direct, embedding, left_fixed).squeeze(1)
        # Without residuals an example looks the same whatever the others are: one look serves all folds.
        direct, embedding = self.encode(self.relate(front, front, many.count))
        encoded = direct.expand(len(left), -1), embedding.expand(len(left), -1, -1)
        scored = SupportDistanceScorer(self, many, encoded).score(
            direct[0, left].unsqueeze(1), embedding[0, left].unsqueeze(1), left_fixed
        )
        return scored.squeeze(1)

    def describe(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """inputs (T, n, *shape) -> front (T, n, channels, ...) and the fixed features (T, n, R) or None, unscaled."""
        flat = inputs.flatten(0, 1)
        front = flat if self.front_end is None else self.front_end(flat)
        fixed = None if self.convolution is None else torch.unflatten(self.convolution(flat)[0], 0, inputs.shape[:2])
        return torch.unflatten(front, 0, inputs.shape[:2]), fixed

    def relate(self, front: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        """What the network looks at: front (T, n, channels, ...), less the mean of `count` (T, 1) normals if asked.

        A difference to a mean of n has 1 + 1/n times the variance: the factor makes every n look alike.
        """
        if not self.residual:
            normed, _ = self.norm(front.flatten(0, 1))
            return torch.unflatten(normed, 0, front.shape[:2])
        unit = _broad(self.deviation().unsqueeze(0), front.flatten(0, 1))
        return (front - mean) * _broad((count / (count + 1.0)).sqrt(), front) / unit

    def encode(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """What `relate` gives (T, n, channels, ...) -> direct logit (T, n) and embedding (T, n, D)."""
        features, _ = self.body(seen.flatten(0, 1))
        found = torch.unflatten(self.head(features), 0, seen.shape[:2])
        return found[..., 0], found[..., 1:]

    def relate_support(self, support: Support) -> Tensor:
        """Each normal relative to the others."""
        return self.relate(support.front, support.mean_of_others(), (support.count - 1.0).clamp_min(1.0))

    def relate_queries(self, front: Tensor, support: Support) -> Tensor:
        return self.relate(front, support.mean(), support.count)

    def evidence(
        self, direct: Tensor, embedding: Tensor, fixed: Tensor | None, to: Neighbours, allowed: Tensor
    ) -> Tensor:
        """(T, n, kinds) of examples against the neighbours that are allowed, (T, n or 1, K)."""
        kinds = [direct, nearest(embedding, to.embedding, allowed, (PARAMETER_SCALE * self.log_sharpness).exp())]
        if fixed is not None and to.fixed is not None and self.fixed_deviation is not None:
            unit = self.fixed_deviation() * self.fixed_deviation.variance.numel() ** 0.5
            kinds.append(nearest(fixed / unit, to.fixed / unit, allowed, None))
        return torch.stack(kinds, -1)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        if isinstance(batch, ClassBatch):
            raise FewoneError("support-distance learns from episodes: set learning.batch to 'episodes'")
        size = batch.support.labels.shape[1]
        with torch.no_grad():
            front, fixed = self.describe(torch.cat([batch.support.inputs, batch.query.inputs], 1))
            self._observe(front, fixed, batch)
        normal = (batch.support.labels == NORMAL).to(front.dtype)
        support = Support(front[:, :size], None if fixed is None else fixed[:, :size], normal)
        self.body.train()
        self.norm.train()
        try:
            # One pass for both, so that they share the statistics of the batch.
            seen = torch.cat([self.relate_support(support), self.relate_queries(front[:, size:], support)], 1)
            direct, embedding = self.encode(seen)
        finally:
            self.train(self.training)
        scorer = SupportDistanceScorer(self, support, (direct[:, :size], embedding[:, :size]))
        logits = scorer.score(direct[:, size:], embedding[:, size:], None if fixed is None else fixed[:, size:])
        loss = query_loss(logits, batch.query)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _observe(self, front: Tensor, fixed: Tensor | None, batch: Episodes) -> None:
        counted = torch.cat([batch.support.weights, batch.query.weights], 1) > 0
        normal = (torch.cat([batch.support.labels, batch.query.labels], 1) == NORMAL) & counted
        self.deviation.observe(front, normal.to(front.dtype))
        if fixed is not None and self.fixed_deviation is not None:
            self.fixed_deviation.observe(fixed, normal.to(fixed.dtype))


@dataclass(frozen=True)
class Neighbours:
    """The support in both spaces: embedding (T, K, D), fixed (T, K, R) or None."""

    embedding: Tensor
    fixed: Tensor | None


class SupportDistanceScorer(Scorer):
    """The evidence of a query less that of the support's own normals, weighed and added."""

    mean: Tensor
    count: Tensor
    normal: Tensor
    embedding: Tensor
    own: Tensor

    def __init__(
        self, learner: SupportDistance, support: Support, encoded: tuple[Tensor, Tensor] | None = None
    ) -> None:
        """encoded: direct logits and embeddings of the support, where they are known already."""
        super().__init__()
        self.learner = learner
        direct, embedding = learner.encode(learner.relate_support(support)) if encoded is None else encoded
        self.register_buffer("mean", support.mean())
        self.register_buffer("count", support.count)
        self.register_buffer("normal", support.normal)
        self.register_buffer("embedding", embedding)
        self.fixed: Tensor | None
        self.register_buffer("fixed", support.fixed)
        self.register_buffer("own", self._score_support(direct))

    def _score_support(self, direct: Tensor) -> Tensor:
        """The support's own evidence, (T, 1, kinds): each normal by the others, the mean drawn to the prior."""
        size = self.normal.shape[1]
        others = self.normal.unsqueeze(1) * (1.0 - torch.eye(size, device=direct.device, dtype=direct.dtype))
        found = self.learner.evidence(direct, self.embedding, self.fixed, self._neighbours(), others)
        counted = self.normal.unsqueeze(-1)
        mean = torch.where(counted > 0, found, torch.zeros_like(found)).sum(1, keepdim=True) / self.count.unsqueeze(-1)
        # A single normal has no others: the prior alone speaks.
        number = torch.where(self.count > 1.0, self.count, torch.zeros_like(self.count)).unsqueeze(-1)
        strength = (PARAMETER_SCALE * self.learner.log_strength).exp()
        return (
            torch.where(number > 0, number * mean, torch.zeros_like(mean))
            + strength * PARAMETER_SCALE * self.learner.prior
        ) / (number + strength)

    def _neighbours(self) -> Neighbours:
        return Neighbours(self.embedding, self.fixed)

    def forward(self, inputs: Tensor) -> Tensor:
        front, fixed = self.learner.describe(inputs)
        direct, embedding = self.learner.encode(self.learner.relate(front, self.mean, self.count))
        return self.score(direct, embedding, fixed)

    def score(self, direct: Tensor, embedding: Tensor, fixed: Tensor | None) -> Tensor:
        """Queries in both spaces (T, n, ...) -> logits (T, n)."""
        found = self.learner.evidence(direct, embedding, fixed, self._neighbours(), self.normal.unsqueeze(1))
        rarity = 1.0 / self.count.unsqueeze(-1)
        weight = F.softplus(PARAMETER_SCALE * (self.learner.weight[0] + self.learner.weight[1] * rarity))
        bias = PARAMETER_SCALE * (self.learner.bias[0] + self.learner.bias[1] * rarity.squeeze(-1))
        return ((found - self.own) * weight).sum(-1) + bias


def build_support_distance(
    settings: SupportDistanceSettings, network: NetworkSettings, facts: DataFacts
) -> MetaLearner:
    shape = facts.shape
    front_end = build_front_end(network, shape)
    body = build_embedding(replace(network, front_end="none"), shape if front_end is None else front_end.shape)
    return SupportDistance(
        body,
        shape,
        front_end=front_end,
        dimensions=settings.dimensions,
        residual=settings.residual,
        random_kernels=settings.random_kernels,
    )
