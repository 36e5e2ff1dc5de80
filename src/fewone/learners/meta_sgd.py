"""Meta-SGD: MAML with a learned rate for every single parameter, clipped to [0, 1]."""

from __future__ import annotations

from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.inner_loop import build_classifier, inner_loop_of
from fewone.learners.inner_rates import ElementRates, InnerRates
from fewone.learners.meta_learner import MetaLearner
from fewone.learners.settings import LearnerSettings
from fewone.networks import Classifier, NetworkSettings


class MetaSgd(MetaLearner):
    """Every parameter is adapted at its own learned rate."""

    def __init__(self, classifier: Classifier, rates: InnerRates) -> None:
        super().__init__()
        self.classifier, self.rates = classifier, rates

    def adapt(self, support: Examples) -> AdaptedScorer:
        return inner_loop_of(self.classifier).adapt(self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        assert isinstance(batch, Episodes)
        return inner_loop_of(self.classifier).accumulate_meta_gradient(self.rates(), batch, first_order=False)


def build_meta_sgd(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> MetaSgd:
    """All rates start at the settings' inner_rate."""
    classifier = build_classifier(network, shape)
    return MetaSgd(
        classifier, ElementRates(dict(classifier.named_parameters()), settings.inner_rate, settings.inner_steps)
    )
