"""The library's own learner: a Gaussian model of classes on a shared embedding, adapted by Bayes' rule.

z = embedding(x) has unit variance per dimension over all classes. A class mean is drawn from N(0, t), an example of
the class from N(mean, w), with w + t = 1 per dimension and w learned. Given K normals the class mean has a Gaussian
posterior in closed form, so adapting is one mean, and K enters by Bayes' rule: one model serves every K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.documents import Count, NotNegative, Positive
from fewone.episodes import NORMAL, ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.meta_learner import PARAMETER_SCALE, MetaLearner, Scorer, query_loss, snapshot
from fewone.networks import NetworkSettings, RunningNorm, as_embedding, build_embedding

LOG_TWO_PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Gaussian:
    """Independent dimensions: mean and variance (..., D)."""

    mean: Tensor
    variance: Tensor

    def log_density(self, points: Tensor) -> Tensor:
        """points (..., n, D) -> (..., n), as two matrix products instead of a (..., n, D) difference."""
        precision = 1.0 / self.variance
        linear, square = self.mean * precision, -0.5 * precision
        constant = -0.5 * (self.mean.square() * precision + self.variance.log() + LOG_TWO_PI).sum(-1, keepdim=True)
        quadratic = points.square() @ square.unsqueeze(-1) + points @ linear.unsqueeze(-1)
        return quadratic.squeeze(-1) + constant


def predict(total: Tensor, count: Tensor, within: Tensor) -> Gaussian:
    """p(q | the class's examples): total (..., D) is their sum, count (..., 1) their number, within w (D,).

    Posterior of the class mean: precision count/w + 1/t, so variance v = w t / (w + count t) and mean v total / w.
    A query adds its own within-class variance: N(mean, v + w). Without examples this is N(0, 1): any class.
    """
    between = 1.0 - within
    shared = between / (within + count * between)
    return Gaussian(shared * total, shared * within + within)


class PosteriorScorer(Scorer):
    """The log-ratio of p(q | anomalous) to p(q | normal), scaled and shifted to a logit."""

    mean: Tensor
    variance: Tensor
    known_mean: Tensor
    known_variance: Tensor
    known_log_weight: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(
        self, plda: Plda, support: Tensor, normal: Tensor, anomalous: Tensor, embedding: Plda | None = None
    ) -> None:
        """support (T, K, D) embedded; normal and anomalous (T, K): 1 for what an example is, both 0 to leave it out.

        embedding: what embeds the queries, a snapshot; None: they come embedded too.
        """
        super().__init__()
        self.plda = embedding
        count = normal.sum(-1, keepdim=True)
        predictive = predict((support * normal.unsqueeze(-1)).sum(-2), count, plda.within())
        scale, bias = plda.scale_and_bias(count)
        self.has_anomalies = bool((anomalous > 0).any())
        known = predict(support, torch.ones_like(normal).unsqueeze(-1), plda.within())
        weights = torch.cat([(PARAMETER_SCALE * plda.log_concentration).exp().expand_as(count), anomalous], -1)
        for name, value in (
            ("mean", predictive.mean),
            ("variance", predictive.variance),
            ("known_mean", known.mean),
            ("known_variance", known.variance),
            ("known_log_weight", _log_share(weights)),
            ("scale", scale),
            ("bias", bias),
        ):
            self.register_buffer(name, value)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.score(inputs if self.plda is None else self.plda.embed(inputs))

    def score(self, queries: Tensor) -> Tensor:
        """queries (T, n, D) embedded, or (1, n, D) for all tasks -> logits (T, n)."""
        normal = Gaussian(self.mean, self.variance).log_density(queries)
        return self.scale * (self._anomalous(queries) - normal) + self.bias

    def _anomalous(self, queries: Tensor) -> Tensor:
        """log p(q | anomalous), (T, n): q is of a class never seen, or of the class of one of the A known anomalies.

        A Chinese restaurant of classes: weight c / (c + A) for a new class, 1 / (c + A) for that of each known anomaly,
        of which one example is known. So a known anomaly makes what resembles it more anomalous, and little else.
        """
        new = -0.5 * (queries.square() + LOG_TWO_PI).sum(-1)
        if not self.has_anomalies:
            return new
        known = Gaussian(self.known_mean, self.known_variance).log_density(queries.unsqueeze(-3))
        mixture = torch.cat([new.unsqueeze(-2), known], -2) + self.known_log_weight.unsqueeze(-1)
        return torch.logsumexp(mixture, dim=-2)


def _log_share(weights: Tensor) -> Tensor:
    """Logs of weights (T, n) made to sum to 1; a weight of 0 becomes so small that it never counts."""
    shares = weights / weights.sum(-1, keepdim=True)
    return torch.where(shares > 0, shares.clamp_min(1e-12).log(), torch.full_like(shares, -1e30))


@dataclass(frozen=True)
class EmbeddedPlda:
    """plda for examples that are embedded already, (T, n, D)."""

    plda: Plda

    @torch.no_grad()
    def adapt(self, support: Examples) -> PosteriorScorer:
        normal = (support.labels == NORMAL).to(support.inputs.dtype)
        return PosteriorScorer(self.plda, support.inputs, normal, 1.0 - normal)

    def leave_one_out(self, support: Examples, left: Tensor) -> Tensor:
        """Logits (F,) of the normals `left` (F,) of one support (1, K, D), each scored by the rest."""
        latent = support.inputs
        normal = (support.labels == NORMAL).to(latent.dtype).repeat(len(left), 1)
        kept = normal.scatter(1, left.unsqueeze(-1), 0.0)
        scorer = PosteriorScorer(self.plda, latent.expand(len(left), -1, -1), kept, 1.0 - normal)
        return scorer.score(latent[0, left].unsqueeze(1)).squeeze(1)


@dataclass(frozen=True)
class PldaSettings(LearnerSettings):
    """batch: trained on episodes, or on batches of classes where another task's normals are anomalies.

    dimensions: the width of the space that distances live in (0: the network's own). largest_support: batches of
    classes train every K from 1 to this (episodes: see training.smallest_k). auxiliary_weight: of a cross-entropy over
    all training classes, in batches of classes (0: none). flip_views: adapt and score images by the mean of both mirror
    views.

    >>> PldaSettings(dimensions=32).batch
    'episodes'
    """

    batch: Literal["episodes", "classes"] = "episodes"
    dimensions: Count = 128
    largest_support: Positive = 10
    auxiliary_weight: NotNegative = 0.5
    flip_views: bool = False


class Plda(MetaLearner):
    """The library's own learner: a Gaussian model of classes on a shared embedding, adapted by Bayes' rule.

    Embedding, linear map to D dimensions, norm to unit variance, and the within-class variances w; one trained model
    serves every K.

    Parameters
    ----------
    module
        Any torch module, inputs (n, *shape) -> features (n, d). Its batch norm and dropout, if any, work as usual in
        meta-training and are fixed in evaluation.
    dimensions
        D, of the space that distances live in; 0: the module's own features.
    batch
        Trained on episodes, or on batches of classes where another task's normals are anomalies.
    largest_support
        Batches of classes train every K from 1 to this.
    auxiliary_classes, auxiliary_weight
        Of a cross-entropy over all training classes (0: none).
    flip_views
        Adapt and score images by the mean of both mirror views.
    features
        How many the module gives, where it cannot be read off its last layer.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import Plda
    >>> from fewone.episodes import Examples
    >>> learner = Plda(torch.nn.Linear(3, 8), dimensions=4)
    >>> learner.adapt(Examples.normals(torch.zeros(1, 5, 3)))(torch.ones(1, 4, 3)).shape
    torch.Size([1, 4])
    """

    every_k = True
    embeds_alone = True

    def __init__(
        self,
        module: nn.Module,
        *,
        dimensions: int = 128,
        batch: Literal["episodes", "classes"] = "episodes",
        largest_support: int = 10,
        auxiliary_classes: int = 0,
        auxiliary_weight: float = 0.5,
        flip_views: bool = False,
        features: int | None = None,
    ) -> None:
        super().__init__()
        embedding = as_embedding(module, features)
        if embedding.takes_statistics:
            raise FewoneError(
                'plda shares one embedding among all tasks: set the network\'s norm to "running" or "none"'
            )
        self.batch = batch
        self.largest_support, self.auxiliary_weight = largest_support, auxiliary_weight
        self.flip_views = flip_views
        self.embedding = embedding
        self.projection = nn.Linear(embedding.width, dimensions) if dimensions else nn.Identity()
        width = dimensions or embedding.width
        self.last_norm = RunningNorm(width, affine=False)
        # All numbers of the head, from here on, in tenths.
        self.within_logit = nn.Parameter(torch.zeros(width))
        # A small first scale: the log-ratio sums over all dimensions and would saturate the loss at once.
        self.log_scale = nn.Parameter(torch.tensor([-2.5, 0.0]) / PARAMETER_SCALE)
        self.shift = nn.Parameter(torch.zeros(2))
        self.log_concentration = nn.Parameter(torch.zeros(1))
        self.classifier = nn.Linear(width, auxiliary_classes) if auxiliary_classes else None
        self.note(flip_views=flip_views)
        self.train(self.training)

    def train(self, mode: bool = True) -> Plda:
        """Batch statistics are for `accumulate_gradient` alone: adapting never depends on the rest of a batch."""
        super().train(mode)
        self.embedding.eval()
        self.last_norm.eval()
        return self

    def within(self) -> Tensor:
        """w (D,), kept away from 0 and 1 so that neither variance vanishes."""
        return 1e-3 + (1.0 - 2e-3) * torch.sigmoid(PARAMETER_SCALE * self.within_logit)

    def scale_and_bias(self, count: Tensor) -> tuple[Tensor, Tensor]:
        """From a log-ratio to a logit, given `count` normals, (T, 1) each; affine in 1/K, so bounded for any K."""
        rarity = 1.0 / count.clamp_min(1.0)
        scale = (PARAMETER_SCALE * (self.log_scale[0] + self.log_scale[1] * rarity)).exp()
        return scale, PARAMETER_SCALE * (self.shift[0] + self.shift[1] * rarity)

    def embed(self, inputs: Tensor) -> Tensor:
        """inputs (T, n, *shape) -> z (T, n, D); outside of training, of images, the mean of both mirror views."""
        latent = self._embed(inputs)
        if self.flip_views and inputs.dim() == 5 and not self.last_norm.training:
            latent = 0.5 * (latent + self._embed(inputs.flip(-1)))
        return latent

    def _embed(self, inputs: Tensor) -> Tensor:
        features, _ = self.embedding(inputs.flatten(0, 1))
        latent, _ = self.last_norm(self.projection(features).to(self.within_logit.dtype))
        return torch.unflatten(latent, 0, inputs.shape[:2])

    def adapt(self, support: Examples) -> PosteriorScorer:
        normal, kept = (support.labels == NORMAL).to(self.shift.dtype), snapshot(self)
        return PosteriorScorer(kept, kept.embed(support.inputs), normal, 1.0 - normal, kept)

    def leave_one_out(self, support: Examples, left: Tensor) -> Tensor:
        """Logits (F,) of the normals `left` (F,) of one support (1, K, ...), each scored by the rest; embedded once."""
        return self.after_embedding().leave_one_out(replace(support, inputs=self.embed(support.inputs)), left)

    def after_embedding(self) -> EmbeddedPlda:
        return EmbeddedPlda(self)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        self.embedding.train()
        self.last_norm.train()
        try:
            loss = self._class_loss(batch) if isinstance(batch, ClassBatch) else self._episode_loss(batch)
        finally:
            self.train(self.training)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _episode_loss(self, episodes: Episodes) -> Tensor:
        """Support and queries in one pass, so that they share the statistics of the batch."""
        support = episodes.support
        latent = self.embed(torch.cat([support.inputs, episodes.query.inputs], 1))
        normal = (support.labels == NORMAL).to(latent.dtype)
        scorer = PosteriorScorer(self, latent[:, : normal.shape[1]], normal, 1.0 - normal)
        return query_loss(scorer.score(latent[:, normal.shape[1] :]), episodes.query)

    def _class_loss(self, batch: ClassBatch) -> Tensor:
        """Every class in turn is the task: its first k examples the support, the rest normal, the others anomalous."""
        classes, examples = batch.inputs.shape[:2]
        if classes < 2 or examples < 2:
            raise FewoneError(f"a batch of {classes} classes with {examples} examples: at least 2 of each are needed")
        latent = self.embed(batch.inputs)
        sizes = spread_sizes(classes, min(self.largest_support, examples - 1)).to(latent.device)
        position = torch.arange(examples, device=latent.device)
        normal = (position < sizes.unsqueeze(-1)).to(latent.dtype)
        scorer = PosteriorScorer(self, latent, normal, torch.zeros_like(normal))
        logits = scorer.score(latent.reshape(1, classes * examples, -1)).view(classes, classes, examples)
        own = torch.eye(classes, device=latent.device, dtype=latent.dtype).unsqueeze(-1)
        counted = own * (1.0 - normal).unsqueeze(0)
        weights = 0.5 * counted / counted.sum((-2, -1), keepdim=True) + 0.5 * (1.0 - own) / (examples * (classes - 1))
        labels = (1.0 - own).expand_as(logits)
        loss = query_loss(logits.flatten(1), Examples(latent, labels.flatten(1), weights.flatten(1)))
        return loss + self._auxiliary_loss(latent, batch.class_index)

    def _auxiliary_loss(self, latent: Tensor, class_index: Tensor) -> Tensor:
        """Cross-entropy over all training classes: latent (C, M, D), class_index (C,)."""
        if self.classifier is None:
            return latent.new_zeros(())
        logits = self.classifier(latent).flatten(0, 1)
        truth = class_index.to(latent.device).repeat_interleave(latent.shape[1])
        if int(truth.max()) >= self.classifier.out_features:
            raise FewoneError(
                f"a batch holds class number {int(truth.max())}, the learner was built for"
                f" {self.classifier.out_features}: raise auxiliary_classes, or set it to 0 to train without this loss"
            )
        return self.auxiliary_weight * F.cross_entropy(logits, truth)


def spread_sizes(count: int, largest: int) -> Tensor:
    """`count` support sizes spread evenly over 1..largest, (count,) int64: the tasks of a batch train every K."""
    return torch.linspace(largest, 1, count).round().to(torch.int64)


def build_plda(settings: PldaSettings, network: NetworkSettings, facts: DataFacts) -> MetaLearner:
    auxiliary = settings.batch == "classes" and settings.auxiliary_weight > 0
    return Plda(
        build_embedding(network, facts.shape),
        dimensions=settings.dimensions,
        batch=settings.batch,
        largest_support=settings.largest_support,
        auxiliary_classes=facts.training_classes if auxiliary else 0,
        auxiliary_weight=settings.auxiliary_weight,
        flip_views=settings.flip_views,
    )
