"""Trained on all training tasks as one supervised problem, then fine-tuned on the support: FB.

FB: softmax over all training classes; where a task's anomalies are no class of another task, its normals and its
anomalies are two classes. At test a new sigmoid head, all layers adapted.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.baselines.shallow import Features, Hyperparameter
from fewone.documents import Count, NotNegative
from fewone.episodes import ANOMALOUS, ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import DataFacts, LearnerSettings, MetaLearner, Scorer, snapshot
from fewone.learners.inner_loop import inner_loop_of
from fewone.learners.inner_rates import FixedRates
from fewone.networks import Classifier, Embedding, NetworkSettings, build_embedding

STEPS = (1, 2, 5, 10, 20, 50, 100, 200)


class EmbeddingFeatures(Features):
    """The features of a trained embedding as it stands: a copy, with its running averages fixed."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = snapshot(embedding)

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor
        features, _ = self.embedding(inputs)
        return features


class HeadScorer(Scorer):
    """A linear head for each of T tasks on shared features: weight (T, D), bias (T, 1)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, features: EmbeddingFeatures, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, inputs: Tensor) -> Tensor:
        features = torch.unflatten(self.features(inputs.flatten(0, 1)), 0, inputs.shape[:2])
        return torch.einsum("tnd,td->tn", features, self.weight) + self.bias


class FineTuning(Hyperparameter):
    """A new head on an embedding, and some steps of SGD on the support. steps: chosen on validation tasks."""

    steps: Tensor
    weight: Tensor
    options = STEPS
    episodes = 20

    def __init__(self, width: int, rate: float, steps: int, layers: Literal["all", "head"]) -> None:
        super().__init__()
        self.rate, self.layers = rate, layers
        head = nn.Linear(width, 1)
        nn.init.xavier_uniform_(head.weight)
        # Where every fine-tuning begins: fixed by the run's seed, saved with the learner, never trained.
        self.register_buffer("weight", head.weight.detach().clone())
        self.register_buffer("steps", torch.tensor(steps))

    def choose(self, option: float) -> None:
        """Settle on a number of steps."""
        self.steps.fill_(int(option))

    def adapt(self, embedding: Embedding, support: Examples) -> Scorer:
        return self._adapt_head(embedding, support) if self.layers == "head" else self._adapt_all(embedding, support)

    def _adapt_all(self, embedding: Embedding, support: Examples) -> Scorer:
        head = nn.Linear(embedding.width, 1)
        with torch.no_grad():
            head.weight.copy_(self.weight)
            head.bias.zero_()
        classifier = Classifier(deepcopy(embedding), head).eval()
        names = [name for name, _ in classifier.named_parameters()]
        return inner_loop_of(classifier).adapt(FixedRates(names, self.rate, int(self.steps))(), support)

    def _adapt_head(self, embedding: Embedding, support: Examples) -> HeadScorer:
        """Logistic regression on features that stay: their pass is made once, the gradient is written out."""
        shared = EmbeddingFeatures(embedding)
        with torch.no_grad():
            features = torch.unflatten(shared(support.inputs.flatten(0, 1)), 0, support.labels.shape)
            weight = self.weight.expand(len(support), -1).clone()
            bias = weight.new_zeros(len(support), 1)
            for _ in range(int(self.steps)):
                probability = torch.sigmoid(torch.einsum("tkd,td->tk", features, weight) + bias)
                slope = (probability - support.labels) * support.weights
                weight -= self.rate * torch.einsum("tk,tkd->td", slope, features)
                bias -= self.rate * slope.sum(-1, keepdim=True)
        return HeadScorer(shared, weight, bias)


def build_shared_embedding(network: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    """An embedding trained on batches of many tasks: batch norm, if any, is the ordinary one."""
    return build_embedding(replace(network, norm="running") if network.norm == "support" else network, shape)


@dataclass(frozen=True)
class FineTunedSettings(LearnerSettings):
    """inner_rate: of the fine-tuning on the support. inner_steps: where the choice of their number begins.

    batch: a softmax over the classes of all tasks (where another task's normals are anomalies), or episodes, of which
    normals and anomalies are two classes each.
    """

    inner_rate: NotNegative = 0.01
    inner_steps: Count = 5
    batch: Literal["episodes", "classes"] = "episodes"


class FineTuned(MetaLearner):
    """The fine-tune baseline."""

    def __init__(self, settings: FineTunedSettings, embedding: Embedding, training_tasks: int) -> None:
        super().__init__()
        self.batch = settings.batch
        self.embedding = embedding
        classes = training_tasks * (1 if settings.batch == "classes" else 2)
        self.classes = nn.Linear(embedding.width, max(1, classes))
        self.tuning = FineTuning(embedding.width, settings.inner_rate, settings.inner_steps, layers="all")

    @property
    def hyperparameter(self) -> Hyperparameter:
        return self.tuning

    def adapt(self, support: Examples) -> Scorer:
        return self.tuning.adapt(self.embedding, support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        inputs, truth, weights = label_classes(batch)
        if int(truth.max()) >= self.classes.out_features:
            raise FewoneError(f"fb: class {int(truth.max())} of {self.classes.out_features}; build it for their number")
        features, _ = self.embedding(inputs)
        losses = F.cross_entropy(self.classes(features), truth, reduction="none")
        loss = (losses * weights).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def label_classes(batch: Episodes | ClassBatch) -> tuple[Tensor, Tensor, Tensor]:
    """A batch as plain examples: inputs (n, *shape), class numbers (n,), weights (n,) that sum to 1."""
    if isinstance(batch, ClassBatch):
        inputs = batch.inputs.flatten(0, 1)
        truth = batch.class_index.repeat_interleave(batch.inputs.shape[1])
        return inputs, truth, torch.full((len(inputs),), 1 / len(inputs))
    assert batch.task_index is not None
    labels = torch.cat([batch.support.labels, batch.query.labels], 1)
    weights = torch.cat([batch.support.weights > 0, batch.query.weights > 0], 1).float()
    # Class 2i: the normals of training task i; class 2i + 1: its anomalies.
    truth = 2 * batch.task_index[:, None] + (labels == ANOMALOUS)
    inputs = torch.cat([batch.support.inputs, batch.query.inputs], 1)
    return inputs.flatten(0, 1), truth.flatten(), (weights / weights.sum()).flatten()


def build_fb(settings: FineTunedSettings, network: NetworkSettings, facts: DataFacts) -> FineTuned:
    return FineTuned(settings, build_shared_embedding(network, facts.shape), facts.training_tasks)
