"""MAML: an initialisation from which a few SGD steps on the support lead to a good classifier.

First order (FOMAML): the steps are not differentiated through.
"""

from __future__ import annotations

from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.inner_loop import build_classifier, inner_loop_of
from fewone.learners.inner_rates import InnerRates, build_rates
from fewone.learners.meta_learner import MetaLearner
from fewone.learners.settings import LearnerSettings
from fewone.networks import Classifier, NetworkSettings


class Maml(MetaLearner):
    """Every parameter is adapted, all at the same rate (or each tensor at its own learned one)."""

    def __init__(self, classifier: Classifier, rates: InnerRates, first_order: bool) -> None:
        super().__init__()
        self.classifier, self.rates, self.first_order = classifier, rates, first_order

    def adapt(self, support: Examples) -> AdaptedScorer:
        return inner_loop_of(self.classifier).adapt(self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        assert isinstance(batch, Episodes)
        return inner_loop_of(self.classifier).accumulate_meta_gradient(self.rates(), batch, self.first_order)


def build_maml(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Maml:
    """Exact: differentiates through the inner steps."""
    return _build(settings, network, shape, first_order=False)


def build_fomaml(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Maml:
    """First order."""
    return _build(settings, network, shape, first_order=True)


def _build(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...], first_order: bool) -> Maml:
    classifier = build_classifier(network, shape)
    names = [name for name, _ in classifier.named_parameters()]
    return Maml(classifier, build_rates(names, settings), first_order)
