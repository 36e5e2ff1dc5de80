"""Reptile: move the initialisation towards where SGD on each task ends.

The first N-1 steps see the support, the last the query, which is class-balanced (in one-class form too).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.inner_loop import (
    AdaptedScorer,
    adapt_classifier,
    build_classifier,
    each_task,
    support_loss,
    take_steps,
    transfer_loss,
)
from fewone.learners.inner_rates import FixedRates, InnerRates
from fewone.learners.meta_learner import MetaLearner
from fewone.learners.settings import LearnerSettings
from fewone.networks import Classifier, NetworkSettings


class Reptile(MetaLearner):
    """Every parameter is adapted; the way from the adapted to the initial parameters serves as the gradient."""

    def __init__(self, classifier: Classifier, rates: InnerRates) -> None:
        super().__init__()
        self.classifier, self.rates = classifier, rates

    def adapt(self, support: Examples) -> AdaptedScorer:
        return adapt_classifier(self.classifier, self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        """Returns the mean query loss before the last step."""
        assert isinstance(batch, Episodes)
        *first, last = self.rates()
        start = dict(self.classifier.named_parameters())
        ways = {name: torch.zeros_like(value) for name, value in start.items()}
        losses: list[Tensor] = []
        for support, query in each_task(batch):

            def step_on_support(values: dict[str, Tensor], support: Examples = support) -> Tensor:
                return support_loss(self.classifier, values, support)

            def step_on_query(
                values: dict[str, Tensor], support: Examples = support, query: Examples = query
            ) -> Tensor:
                losses.append(transfer_loss(self.classifier, values, support, query))
                return losses[-1]

            middle = take_steps(step_on_support, start, first, order=1)
            end = take_steps(step_on_query, middle, [last], order=1)
            for name, value in start.items():
                ways[name] += (value - end[name]).detach() / len(batch)
        for name, value in start.items():
            value.grad = ways[name] if value.grad is None else value.grad + ways[name]
        return torch.stack(losses).mean().detach()


def build_reptile(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Reptile:
    """One fixed rate for every parameter."""
    classifier = build_classifier(network, shape)
    names = [name for name, _ in classifier.named_parameters()]
    return Reptile(classifier, FixedRates(names, settings.inner_rate, max(settings.inner_steps, 1)))
