"""Meta-SGD: MAML with a learned rate for every single parameter, clipped to [0, 1]."""

from __future__ import annotations

from torch import Tensor, nn

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.inner_loop import inner_loop_of
from fewone.learners.inner_rates import ElementRates, check_rate
from fewone.learners.meta_learner import MetaLearner
from fewone.learners.settings import LearnerSettings
from fewone.networks import NetworkSettings, as_classifier, build_embedding


class MetaSgd(MetaLearner):
    """Meta-SGD (Li et al. 2017): every parameter is adapted at its own learned rate, within [0, 1].

    Parameters
    ----------
    module : any torch module, as for `Maml`.
    inner_rate : where all rates start.
    inner_steps : of the descent on the support.
    features : how many the module gives, where it cannot be read off its last layer.

    References
    ----------
    Li, Zhou, Chen, Li: Meta-SGD: learning to learn quickly for few-shot learning, 2017.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import MetaSgd
    >>> learner = MetaSgd(torch.nn.Linear(3, 8), inner_rate=0.1, inner_steps=1)
    >>> sum(rate.numel() for rate in learner.rates.parameters())
    41
    """

    def __init__(
        self, module: nn.Module, *, inner_rate: float = 0.01, inner_steps: int = 5, features: int | None = None
    ) -> None:
        super().__init__()
        check_rate(inner_rate, inner_steps)
        self.classifier = as_classifier(module, features)
        self.rates = ElementRates(dict(self.classifier.named_parameters()), inner_rate, inner_steps)
        self.note(inner_steps=inner_steps)

    def adapt(self, support: Examples) -> AdaptedScorer:
        return inner_loop_of(self.classifier).adapt(self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        loop = inner_loop_of(self.classifier)
        return loop.accumulate_meta_gradient(self.rates(), self.expect_episodes(batch), first_order=False)


def build_meta_sgd(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> MetaSgd:
    """All rates start at the settings' inner_rate."""
    embedding = build_embedding(network, shape)
    return MetaSgd(embedding, inner_rate=settings.inner_rate, inner_steps=settings.inner_steps)
