"""Reptile: move the initialisation towards where SGD on each task ends.

The first N-1 steps see the support, the last the query, which is class-balanced (in one-class form too). In the
authors' program no step does: `balanced_step = False`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fewone.documents import Count, NotNegative
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.inner_loop import inner_loop_of
from fewone.learners.inner_rates import FixedRates, check_rate
from fewone.learners.meta_learner import MetaLearner
from fewone.networks import Classifier, NetworkSettings, as_classifier, build_embedding


@dataclass(frozen=True)
class ReptileSettings(LearnerSettings):
    """inner_rate, inner_steps: of the descent. balanced_step: the last step of meta-training is on the class-balanced
    query, as the paper says; False: on the support like the others, as in the authors' program.

    query_statistics: in meta-training the query is normed by its own batch, as in the authors' program.

    >>> ReptileSettings(inner_steps=10).balanced_step
    True
    """

    inner_rate: NotNegative = 0.01
    inner_steps: Count = 5
    query_statistics: bool = False
    balanced_step: bool = True


class Reptile(MetaLearner):
    """Reptile (Nichol et al. 2018): the way from the adapted to the initial parameters serves as the gradient.

    Parameters
    ----------
    module
        Any torch module, as for `Maml`.
    inner_rate, inner_steps
        Of the descent; in meta-training the last step is on the query.
    balanced_step
        False takes the last step on the support like the others, as the authors' program does.
    query_statistics
        In meta-training the query is normed by its own batch (networks with support norm alone).
    features
        How many the module gives, where it cannot be read off its last layer.

    References
    ----------
    Nichol, Achiam, Schulman: On first-order meta-learning algorithms, 2018.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import Reptile
    >>> Reptile(torch.nn.Linear(3, 8), inner_rate=0.1, inner_steps=3).every_k
    False
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        inner_rate: float = 0.01,
        inner_steps: int = 5,
        balanced_step: bool = True,
        query_statistics: bool = False,
        features: int | None = None,
    ) -> None:
        super().__init__()
        check_rate(inner_rate, inner_steps)
        self.classifier = as_classifier(module, features)
        names = [name for name, _ in self.classifier.named_parameters()]
        self.rates = FixedRates(names, inner_rate, max(inner_steps, 1))
        self.balanced_step, self.query_statistics = balanced_step, query_statistics
        self.note(inner_rate=inner_rate, inner_steps=inner_steps)

    @property
    def initialisation(self) -> Classifier:
        return self.classifier

    def adapt(self, support: Examples) -> AdaptedScorer:
        return inner_loop_of(self.classifier).adapt(self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        """Returns the mean query loss before the last step."""
        loop = inner_loop_of(self.classifier)
        episodes = self.expect_episodes(batch)
        return loop.accumulate_reptile_gradient(self.rates(), episodes, self.balanced_step, self.query_statistics)


def build_reptile(settings: ReptileSettings, network: NetworkSettings, facts: DataFacts) -> Reptile:
    """One fixed rate for every parameter."""
    return Reptile(
        build_embedding(network, facts.shape),
        inner_rate=settings.inner_rate,
        inner_steps=settings.inner_steps,
        balanced_step=settings.balanced_step,
        query_statistics=settings.query_statistics,
    )
