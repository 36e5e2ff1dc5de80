"""The library's learner for series whose normality is a set: distances to the K normals, relative to theirs.

Each kind of evidence is a number that grows with strangeness. It is taken of the query and, leaving one out, of the
support's own normals; what counts is the difference, so that the support itself sets the threshold:
direct    a small network's opinion of the residual (or of the input),
distance  the log of the soft nearest-neighbour distance in the network's space,
fixed     the log of the nearest-neighbour distance of fixed random convolutions, which nothing trained can spoil.
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
from fewone.learners.meta_learner import GAIN, MetaLearner, Scorer, query_loss, snapshot
from fewone.networks import NetworkSettings, RunningNorm, as_embedding, build_embedding
from fewone.networks.front_ends import LogSpectrogram
from fewone.networks.random_convolution import RandomConvolution
from fewone.networks.settings import build_front_end

FAR = 1e9
"""A squared distance to what is not a normal of the support: never the nearest."""


@dataclass(frozen=True)
class ContrastSettings(LearnerSettings):
    """dimensions: the width of the space that distances live in (0: the network's own).

    residual: score what differs from the mean of the normals (aligned series), or the series themselves.
    random_kernels: how many fixed random convolutions give a distance of their own (0: none).

    >>> ContrastSettings(random_kernels=500).residual
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


class Contrast(MetaLearner):
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
        Judge what differs from the mean of the normals (aligned series), or the series themselves.
    random_kernels
        How many fixed random convolutions give a distance of their own (0: none).
    features
        How many the module gives, where it cannot be read off its last layer.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import Contrast
    >>> from fewone.episodes import Examples
    >>> module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, 8))
    >>> learner = Contrast(module, (1, 32), dimensions=4)
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
                'contrast shares one network among all tasks: set the network\'s norm to "running" or "none"'
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

    def train(self, mode: bool = True) -> Contrast:
        """Batch statistics are for `accumulate_gradient` alone: adapting never depends on the rest of a batch."""
        super().train(mode)
        self.body.eval()
        self.norm.eval()
        return self

    def adapt(self, support: Examples) -> ContrastScorer:
        """Known anomalies among the support are left out: they are no normals, and this learner has no use for them."""
        front, fixed = self.describe(support.inputs)
        return ContrastScorer(snapshot(self), Support(front, fixed, (support.labels == NORMAL).to(front.dtype)))

    def leave_one_out(self, support: Examples, left: Tensor) -> Tensor:
        """Logits (F,) of the normals `left` (F,) of one support (1, K, ...), each judged by the rest; seen once."""
        front, fixed = self.describe(support.inputs)
        normal = (support.labels == NORMAL).to(front.dtype).repeat(len(left), 1)
        many = Support(
            front.expand(len(left), *front.shape[1:]),
            None if fixed is None else fixed.expand(len(left), *fixed.shape[1:]),
            normal.scatter(1, left.unsqueeze(-1), 0.0),
        )
        left_fixed = None if fixed is None else fixed[0, left].unsqueeze(1)
        if self.residual:
            opinion, place = self.look(self.query_views(front[0, left].unsqueeze(1), many))
            return ContrastScorer(self, many).judge(opinion, place, left_fixed).squeeze(1)
        # Without residuals an example looks the same whatever the others are: one look serves all folds.
        opinion, place = self.look(self.view(front, front, many.count))
        looked = opinion.expand(len(left), -1), place.expand(len(left), -1, -1)
        judged = ContrastScorer(self, many, looked).judge(
            opinion[0, left].unsqueeze(1), place[0, left].unsqueeze(1), left_fixed
        )
        return judged.squeeze(1)

    def describe(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """inputs (T, n, *shape) -> front (T, n, channels, ...) and the fixed features (T, n, R) or None, unscaled."""
        flat = inputs.flatten(0, 1)
        front = flat if self.front_end is None else self.front_end(flat)
        fixed = None if self.convolution is None else torch.unflatten(self.convolution(flat)[0], 0, inputs.shape[:2])
        return torch.unflatten(front, 0, inputs.shape[:2]), fixed

    def view(self, front: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        """What the network looks at: front (T, n, channels, ...), less the mean of `count` (T, 1) normals if asked.

        A difference to a mean of n has 1 + 1/n times the variance: the factor makes every n look alike.
        """
        if not self.residual:
            normed, _ = self.norm(front.flatten(0, 1))
            return torch.unflatten(normed, 0, front.shape[:2])
        unit = _broad(self.deviation().unsqueeze(0), front.flatten(0, 1))
        return (front - mean) * _broad((count / (count + 1.0)).sqrt(), front) / unit

    def look(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Views (T, n, channels, ...) -> opinion (T, n) and place (T, n, D)."""
        features, _ = self.body(seen.flatten(0, 1))
        found = torch.unflatten(self.head(features), 0, seen.shape[:2])
        return found[..., 0], found[..., 1:]

    def support_views(self, support: Support) -> Tensor:
        """Each normal as the others see it."""
        return self.view(support.front, support.mean_of_others(), (support.count - 1.0).clamp_min(1.0))

    def query_views(self, front: Tensor, support: Support) -> Tensor:
        return self.view(front, support.mean(), support.count)

    def evidence(self, opinion: Tensor, place: Tensor, fixed: Tensor | None, to: Neighbours, allowed: Tensor) -> Tensor:
        """(T, n, kinds) of examples against the neighbours that are allowed, (T, n or 1, K)."""
        kinds = [opinion, nearest(place, to.place, allowed, (GAIN * self.log_sharpness).exp())]
        if fixed is not None and to.fixed is not None and self.fixed_deviation is not None:
            unit = self.fixed_deviation() * self.fixed_deviation.variance.numel() ** 0.5
            kinds.append(nearest(fixed / unit, to.fixed / unit, allowed, None))
        return torch.stack(kinds, -1)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        if isinstance(batch, ClassBatch):
            raise FewoneError("contrast learns from episodes: set learning.batch to 'episodes'")
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
            seen = torch.cat([self.support_views(support), self.query_views(front[:, size:], support)], 1)
            opinion, place = self.look(seen)
        finally:
            self.train(self.training)
        scorer = ContrastScorer(self, support, (opinion[:, :size], place[:, :size]))
        logits = scorer.judge(opinion[:, size:], place[:, size:], None if fixed is None else fixed[:, size:])
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
    """The support in both spaces: place (T, K, D), fixed (T, K, R) or None."""

    place: Tensor
    fixed: Tensor | None


class ContrastScorer(Scorer):
    """The evidence of a query less that of the support's own normals, weighed and added."""

    mean: Tensor
    count: Tensor
    normal: Tensor
    place: Tensor
    own: Tensor

    def __init__(self, contrast: Contrast, support: Support, looked: tuple[Tensor, Tensor] | None = None) -> None:
        """looked: opinion and place of the support, where they are known already."""
        super().__init__()
        self.contrast = contrast
        opinion, place = contrast.look(contrast.support_views(support)) if looked is None else looked
        self.register_buffer("mean", support.mean())
        self.register_buffer("count", support.count)
        self.register_buffer("normal", support.normal)
        self.register_buffer("place", place)
        self.fixed: Tensor | None
        self.register_buffer("fixed", support.fixed)
        self.register_buffer("own", self._judge_support(opinion))

    def _judge_support(self, opinion: Tensor) -> Tensor:
        """The support's own evidence, (T, 1, kinds): each normal by the others, the mean drawn to the prior."""
        size = self.normal.shape[1]
        others = self.normal.unsqueeze(1) * (1.0 - torch.eye(size, device=opinion.device, dtype=opinion.dtype))
        found = self.contrast.evidence(opinion, self.place, self.fixed, self._neighbours(), others)
        counted = self.normal.unsqueeze(-1)
        mean = torch.where(counted > 0, found, torch.zeros_like(found)).sum(1, keepdim=True) / self.count.unsqueeze(-1)
        # A single normal has no others: the prior alone speaks.
        number = torch.where(self.count > 1.0, self.count, torch.zeros_like(self.count)).unsqueeze(-1)
        strength = (GAIN * self.contrast.log_strength).exp()
        return (
            torch.where(number > 0, number * mean, torch.zeros_like(mean)) + strength * GAIN * self.contrast.prior
        ) / (number + strength)

    def _neighbours(self) -> Neighbours:
        return Neighbours(self.place, self.fixed)

    def forward(self, inputs: Tensor) -> Tensor:
        front, fixed = self.contrast.describe(inputs)
        opinion, place = self.contrast.look(self.contrast.view(front, self.mean, self.count))
        return self.judge(opinion, place, fixed)

    def judge(self, opinion: Tensor, place: Tensor, fixed: Tensor | None) -> Tensor:
        """Queries in both spaces (T, n, ...) -> logits (T, n)."""
        found = self.contrast.evidence(opinion, place, fixed, self._neighbours(), self.normal.unsqueeze(1))
        rarity = 1.0 / self.count.unsqueeze(-1)
        weight = F.softplus(GAIN * (self.contrast.weight[0] + self.contrast.weight[1] * rarity))
        bias = GAIN * (self.contrast.bias[0] + self.contrast.bias[1] * rarity.squeeze(-1))
        return ((found - self.own) * weight).sum(-1) + bias


def build_contrast(settings: ContrastSettings, network: NetworkSettings, facts: DataFacts) -> MetaLearner:
    shape = facts.shape
    front_end = build_front_end(network, shape)
    body = build_embedding(replace(network, front_end="none"), shape if front_end is None else front_end.shape)
    return Contrast(
        body,
        shape,
        front_end=front_end,
        dimensions=settings.dimensions,
        residual=settings.residual,
        random_kernels=settings.random_kernels,
    )
