"""Reptile: move the initialisation towards where SGD on each task ends.

The first N-1 steps see the support, the last the query, which is class-balanced (in one-class form too).
"""

from __future__ import annotations

from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.inner_loop import build_classifier, inner_loop_of
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
        return inner_loop_of(self.classifier).adapt(self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        """Returns the mean query loss before the last step."""
        assert isinstance(batch, Episodes)
        return inner_loop_of(self.classifier).accumulate_way(self.rates(), batch)


def build_reptile(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Reptile:
    """One fixed rate for every parameter."""
    classifier = build_classifier(network, shape)
    names = [name for name, _ in classifier.named_parameters()]
    return Reptile(classifier, FixedRates(names, settings.inner_rate, max(settings.inner_steps, 1)))
