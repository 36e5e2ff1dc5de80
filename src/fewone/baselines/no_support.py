"""The control: a supervised net, anomalous against normal over all training tasks, that never sees the support.

Where a method does not beat it, the support taught the method nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewone.baselines.finetuned import build_shared_embedding
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners import DataFacts, MetaLearner, NoSettings, Scorer, query_loss, snapshot
from fewone.networks import Classifier, NetworkSettings


class FixedScorer(Scorer):
    """The same classifier for every task."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = snapshot(classifier)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor
        logits, _ = self.classifier(inputs.flatten(0, 1))
        return torch.unflatten(logits, 0, inputs.shape[:2])


class NoSupport(MetaLearner):
    """Adapting does nothing. (Where a dataset standardises inputs by the support's normals, that much it does see.)"""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def adapt(self, support: Examples) -> FixedScorer:
        return FixedScorer(self.classifier)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        assert isinstance(batch, Episodes)
        query = batch.query
        logits, _ = self.classifier(query.inputs.flatten(0, 1))
        loss = query_loss(torch.unflatten(logits, 0, query.labels.shape), query)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def build_no_support(settings: NoSettings, network: NetworkSettings, facts: DataFacts) -> NoSupport:
    return NoSupport(Classifier(build_shared_embedding(network, facts.shape)))
