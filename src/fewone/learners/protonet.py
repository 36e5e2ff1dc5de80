"""Prototypical networks (Snell et al. 2017), and One-Way ProtoNets (Kruspe 2019) where the support has one class.

A class is the mean of its support features; a class that the support lacks is the origin. The origin can stand for
"anything" only if the features are centred there, so the embedding ends in a batch norm without shift. That last norm
never takes the statistics of a one-class support: it would move the support's own mean, the normal prototype, onto
the origin. It takes those of the whole training batch (supports and queries of all its tasks) and, in evaluation,
their running averages, so a query's score still depends on no other query.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fewone.episodes import ANOMALOUS, NORMAL, ClassBatch, Episodes, Examples
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.meta_learner import Scorer, query_loss, snapshot
from fewone.learners.task_embedding import FeatureLearner, TaskEmbedding, as_task_embedding
from fewone.networks import NetworkSettings, Statistics, build_embedding


@dataclass(frozen=True)
class ProtoNetSettings(LearnerSettings):
    """It has none: the temperature is learned.

    >>> ProtoNetSettings()
    ProtoNetSettings()
    """


class ProtoNet(FeatureLearner):
    """Prototypical networks (Snell et al. 2017), and their one-way form (Kruspe 2019) where the support has one class.

    logit = temperature * (distance to the normal prototype - distance to the anomalous prototype). Distances are
    squared and averaged over the feature dimensions, so that the temperature means the same at every width; it is
    learned, as its logarithm.

    Parameters
    ----------
    module
        Any torch module, inputs (n, *shape) -> features (n, d). Its batch norm and dropout, if any, work as usual in
        meta-training and are fixed in evaluation.
    temperature
        Where the learned one starts.
    features
        How many the module gives, where it cannot be read off its last layer.

    References
    ----------
    Snell, Swersky, Zemel: Prototypical networks for few-shot learning, NeurIPS 2017.
    Kruspe: One-way prototypical networks, 2019.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import ProtoNet
    >>> from fewone.episodes import Examples
    >>> learner = ProtoNet(torch.nn.Linear(3, 8))
    >>> learner.adapt(Examples.normals(torch.zeros(1, 5, 3)))(torch.ones(1, 4, 3)).shape
    torch.Size([1, 4])
    """

    def __init__(self, module: nn.Module, *, temperature: float = 4.0, features: int | None = None) -> None:
        super().__init__(as_task_embedding(module, features, centred=True))
        self.log_temperature = nn.Parameter(torch.tensor(temperature).log())

    @torch.no_grad()
    def adapt(self, support: Examples) -> ProtoNetScorer:
        features, statistics = self.embedding.embed_support(support.inputs)
        prototypes = find_prototypes(features, support)
        return ProtoNetScorer(self.embedding, statistics, prototypes, self.log_temperature.exp())

    @torch.no_grad()
    def after_embedding(self) -> ProtoNet:
        """The learner for examples that are embedded already."""
        return ProtoNet(self.embedding.passing(), temperature=float(self.log_temperature.exp()))

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        batch = self.expect_episodes(batch)
        support, query = self.embedding.embed_episodes(batch.support.inputs, batch.query.inputs)
        prototypes = find_prototypes(support, batch.support)
        loss = query_loss(self.log_temperature.exp() * compare_distances(query, prototypes), batch.query)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


class ProtoNetScorer(Scorer):
    """Scores by prototypes (T, 2, width), the normal one first."""

    def __init__(
        self, embedding: TaskEmbedding, statistics: Statistics, prototypes: Tensor, temperature: Tensor
    ) -> None:
        super().__init__()
        self.embedding = snapshot(embedding)
        self.prototypes: Tensor
        self.temperature: Tensor
        self.register_buffer("prototypes", prototypes)
        self.register_buffer("temperature", temperature)
        self.statistics = nn.ParameterList([nn.Parameter(entry, requires_grad=False) for entry in statistics])

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.embedding.embed_queries(inputs, tuple(self.statistics))
        return self.temperature * compare_distances(features, self.prototypes)


def find_prototypes(features: Tensor, support: Examples) -> Tensor:
    """features (T, K, width) -> the weighted class means (T, 2, width); a class without examples: the origin."""
    members = torch.stack([support.labels == NORMAL, support.labels == ANOMALOUS], dim=1)
    shares = members * support.weights.unsqueeze(1)
    shares = shares / shares.sum(-1, keepdim=True).clamp_min(torch.finfo(shares.dtype).tiny)
    return shares.to(features.dtype) @ features


def compare_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """features (T, n, width), prototypes (T, 2, width) -> mean squared distance to normal minus to anomalous (T, n)."""
    normal, anomalous = prototypes[:, :1], prototypes[:, 1:]
    return (features - normal).square().mean(-1) - (features - anomalous).square().mean(-1)


def build_protonet(settings: ProtoNetSettings, network: NetworkSettings, facts: DataFacts) -> ProtoNet:
    return ProtoNet(build_embedding(network, facts.shape))
