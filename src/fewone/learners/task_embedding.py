"""One embedding for a batch of tasks: which statistics normalise whom, in evaluation and when meta-training.

Shared by the learners that compare features (protonet, metaoptnet). Knows no label and no loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewone.learners.meta_learner import MetaLearner
from fewone.networks import Embedding, IdentityEmbedding, RunningNorm, Statistics, as_embedding


class TaskEmbedding(nn.Module):
    """An embedding over a task axis, and optionally a last norm that puts the mean feature at the origin.

    Evaluation (`embed_support`, `embed_queries`) uses the running averages, or, in a network with support norm, the
    statistics of each task's support for its support and all its queries: a query never sees another query.
    Meta-training (`embed_episodes`) embeds all supports and queries of the batch at once, and only there do batch
    statistics enter running averages and does DropBlock drop: the mode of the learner around it plays no part.
    """

    def __init__(self, network: Embedding, centred: bool) -> None:
        super().__init__()
        self.network = network
        self.centre = RunningNorm(network.width, affine=False) if centred else None
        self.width = network.width
        self.per_task = network.takes_statistics
        self.train(False)

    def train(self, mode: bool = True) -> TaskEmbedding:
        """Stay in evaluation mode: `learner.train()` must not make `adapt` depend on, or move, batch statistics."""
        return super().train(False)

    def passing(self) -> TaskEmbedding:
        """The embedding to put in this one's place for examples that are embedded already."""
        return TaskEmbedding(IdentityEmbedding((self.width,)), centred=False)

    def embed_support(self, inputs: Tensor) -> tuple[Tensor, Statistics]:
        """inputs (T, K, *shape) -> features (T, K, width), and the statistics for the queries, (T, channels) each."""
        features, statistics = self._embed(inputs, None)
        return self._centre(features), statistics

    def embed_queries(self, inputs: Tensor, statistics: Statistics) -> Tensor:
        """inputs (T, n, *shape), statistics of the T supports -> features (T, n, width)."""
        features, _ = self._embed(inputs, statistics)
        return self._centre(features)

    def embed_episodes(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Meta-training: support (T, K, *shape) and query (T, Q, *shape) -> their features, as one batch."""
        super().train(True)
        try:
            if self.per_task:
                features, statistics = self._embed(support, None)
                together = torch.cat([features, self._embed(query, statistics)[0]], dim=1)
            else:
                together, _ = self._embed(torch.cat([support, query], dim=1), None)
            together = self._centre(together)
        finally:
            super().train(False)
        size = support.shape[1]
        return together[:, :size], together[:, size:]

    def _embed(self, inputs: Tensor, statistics: Statistics | None) -> tuple[Tensor, Statistics]:
        if not self.per_task:
            features, _ = self.network(inputs.flatten(0, 1))
            return features.reshape(inputs.shape[0], inputs.shape[1], self.width), ()
        passes = [
            self.network(task, None if statistics is None else tuple(entry[number] for entry in statistics))
            for number, task in enumerate(inputs)
        ]
        features = torch.stack([features for features, _ in passes])
        return features, tuple(torch.stack(entries) for entries in zip(*(used for _, used in passes), strict=True))

    def _centre(self, features: Tensor) -> Tensor:
        if self.centre is None:
            return features
        centred: Tensor = self.centre(features.flatten(0, 1))[0]
        return centred.reshape(features.shape)


def as_task_embedding(module: nn.Module, features: int | None, centred: bool) -> TaskEmbedding:
    """Any module over a task axis; one that is so already stays as it is."""
    return module if isinstance(module, TaskEmbedding) else TaskEmbedding(as_embedding(module, features), centred)


class FeatureLearner(MetaLearner):
    """A learner that is a task embedding and whatever it does with the features."""

    def __init__(self, embedding: TaskEmbedding) -> None:
        super().__init__()
        self.embedding = embedding

    @property
    def embeds_alone(self) -> bool:
        """Whether an example's features depend on that example alone, not on the support."""
        return not self.embedding.per_task

    @torch.no_grad()
    def embed(self, inputs: Tensor) -> Tensor:
        """inputs (T, n, *shape) -> features (T, n, width), where each depends on its input alone."""
        return self.embedding.embed_support(inputs)[0]
