"""ANIL: almost no inner loop. Only the head is adapted; the body is learned across tasks and runs once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer, stack_statistics, stack_tasks
from fewone.learners.inner_loop import Parameters, build_classifier, take_steps
from fewone.learners.inner_rates import InnerRates, build_rates
from fewone.learners.meta_learner import MetaLearner, query_loss
from fewone.learners.settings import LearnerSettings
from fewone.networks import Classifier, NetworkSettings


class Anil(MetaLearner):
    """The head is adapted on the features of the support."""

    def __init__(self, classifier: Classifier, rates: InnerRates, first_order: bool) -> None:
        super().__init__()
        self.classifier, self.rates, self.first_order = classifier, rates, first_order

    def adapt(self, support: Examples) -> AdaptedScorer:
        heads, found = [], []
        with torch.no_grad():
            start = {name: value.detach() for name, value in head_parameters(self.classifier).items()}
            rates = [{name: rate.detach() for name, rate in step.items()} for step in self.rates()]
            for task in range(len(support)):
                features, statistics = self.classifier.embedding(support[task].inputs)
                heads.append(take_steps(_HeadLoss(features, support[task]), start, rates, order=1))
                found.append(statistics)
        return AdaptedScorer(self.classifier, stack_tasks(heads), stack_statistics(found))

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        assert isinstance(batch, Episodes)
        losses = []
        rates, start = self.rates(), head_parameters(self.classifier)
        for task in range(len(batch)):
            support, query = batch.support[task], batch.query[task]
            features, statistics = self.classifier.embedding(support.inputs)
            judged, _ = self.classifier.embedding(query.inputs, statistics)
            head = take_steps(_HeadLoss(features, support), start, rates, order=1 if self.first_order else 2)
            loss = _HeadLoss(judged, query)(head) / len(batch)
            torch.autograd.backward(loss, retain_graph=True)
            losses.append(loss.detach())
        return torch.stack(losses).sum()


class _HeadLoss:
    """Parameters of the head -> cross-entropy of one task's examples, given as features (n, width)."""

    def __init__(self, features: Tensor, examples: Examples) -> None:
        self.features, self.examples = features, examples

    def __call__(self, head: Mapping[str, Tensor]) -> Tensor:
        logits = F.linear(self.features, head["head.weight"], head["head.bias"]).squeeze(-1)
        return query_loss(logits, self.examples)


def head_parameters(classifier: Classifier) -> Parameters:
    """The parameters of the linear head, by their names in the classifier."""
    return {f"head.{name}": value for name, value in classifier.head.named_parameters()}


def build_anil(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Anil:
    """Exact: differentiates through the inner steps."""
    return _build(settings, network, shape, first_order=False)


def build_foanil(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Anil:
    """First order."""
    return _build(settings, network, shape, first_order=True)


def _build(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...], first_order: bool) -> Anil:
    classifier = build_classifier(network, shape)
    return Anil(classifier, build_rates(list(head_parameters(classifier)), settings), first_order)
