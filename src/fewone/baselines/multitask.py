"""MTL: shared layers and one head per training task, all trained together; at test a new head on the shared layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.baselines.finetuned import FineTuning, build_shared_embedding
from fewone.baselines.shallow import Hyperparameter
from fewone.documents import Count, NotNegative, Positive
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import DataFacts, LearnerSettings, MetaLearner, Scorer, query_loss
from fewone.networks import Embedding, NetworkSettings


class TaskHeads(nn.Module):
    """One head per training task, with a hidden layer: features (T, n, D) of tasks (T,) -> logits (T, n)."""

    def __init__(self, tasks: int, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden_weight = nn.Parameter(
            torch.empty(tasks, width, hidden).uniform_(-1, 1) * math.sqrt(6 / (width + hidden))
        )
        self.hidden_bias = nn.Parameter(torch.zeros(tasks, 1, hidden))
        self.weight = nn.Parameter(torch.empty(tasks, hidden, 1).uniform_(-1, 1) * math.sqrt(6 / (hidden + 1)))
        self.bias = nn.Parameter(torch.zeros(tasks, 1, 1))

    def forward(self, features: Tensor, tasks: Tensor) -> Tensor:
        hidden = F.relu(features @ self.hidden_weight[tasks] + self.hidden_bias[tasks])
        return (hidden @ self.weight[tasks] + self.bias[tasks]).squeeze(-1)


@dataclass(frozen=True)
class MultiTaskSettings(LearnerSettings):
    """inner_rate: of the fine-tuning on the support. inner_steps: where the choice of their number begins.

    head_width: the hidden layer of each training task's head.
    """

    inner_rate: NotNegative = 0.01
    inner_steps: Count = 5
    head_width: Positive = 16


class MultiTask(MetaLearner):
    """layers: what is adapted at test, the new head (as in the paper) or everything (as in its code)."""

    def __init__(
        self, settings: MultiTaskSettings, embedding: Embedding, training_tasks: int, layers: Literal["head", "all"]
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.tasks = max(1, training_tasks)
        self.heads = TaskHeads(self.tasks, embedding.width, settings.head_width)
        self.tuning = FineTuning(embedding.width, settings.inner_rate, settings.inner_steps, layers)

    @property
    def hyperparameter(self) -> Hyperparameter:
        return self.tuning

    def adapt(self, support: Examples) -> Scorer:
        return self.tuning.adapt(self.embedding, support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        assert isinstance(batch, Episodes) and batch.task_index is not None
        if int(batch.task_index.max()) >= self.tasks:
            raise FewoneError(
                f"mtl: training task {int(batch.task_index.max())} of {self.tasks}; build it for their number"
            )
        query = batch.query
        features, _ = self.embedding(query.inputs.flatten(0, 1))
        logits = self.heads(features.unflatten(0, query.labels.shape), batch.task_index)
        loss = query_loss(logits, query)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def build_mtl(settings: MultiTaskSettings, network: NetworkSettings, facts: DataFacts) -> MultiTask:
    return MultiTask(settings, build_shared_embedding(network, facts.shape), facts.training_tasks, layers="head")


def build_mtl_all(settings: MultiTaskSettings, network: NetworkSettings, facts: DataFacts) -> MultiTask:
    return MultiTask(settings, build_shared_embedding(network, facts.shape), facts.training_tasks, layers="all")
