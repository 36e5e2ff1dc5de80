"""A shallow method on the embedding that FB or MTL learned."""

from __future__ import annotations

from torch import Tensor

from fewone.baselines.finetuned import EmbeddingFeatures, FineTuned
from fewone.baselines.multitask import MultiTask
from fewone.baselines.shallow import Hyperparameter, Method, ShallowScorer, fit_tasks
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners import MetaLearner


class EmbeddedShallow(MetaLearner):
    """Trained as its trunk is, adapted as its method is."""

    fits_supports = True

    def __init__(self, trunk: FineTuned | MultiTask, method: Method) -> None:
        super().__init__()
        self.batch = trunk.batch
        self.trunk, self.method = trunk, method

    @property
    def hyperparameter(self) -> Hyperparameter:
        return self.method

    def adapt(self, support: Examples) -> ShallowScorer:
        return fit_tasks(EmbeddingFeatures(self.trunk.embedding), self.method, support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        return self.trunk.accumulate_gradient(batch)
