"""MAML: an initialisation from which a few SGD steps on the support lead to a good classifier.

First order (FOMAML): the steps are not differentiated through. Meta-SGD: a learned rate for every single parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import Tensor, nn

from fewone.documents import Count, NotNegative
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.inner_loop import inner_loop_of
from fewone.learners.inner_rates import choose_rates
from fewone.learners.meta_learner import MetaLearner
from fewone.networks import Classifier, NetworkSettings, as_classifier, build_embedding


@dataclass(frozen=True)
class MamlSettings(LearnerSettings):
    """inner_rate, inner_steps: of the descent on the support. learn_rates: a learned rate per tensor and step.

    query_statistics: in meta-training the query is normed by its own batch, as in the authors' program of FOMAML and
    Reptile; evaluation is by the support's statistics in any case.

    >>> MamlSettings(inner_steps=3).inner_rate
    0.01
    """

    inner_rate: NotNegative = 0.01
    inner_steps: Count = 5
    learn_rates: bool = False
    query_statistics: bool = False


@dataclass(frozen=True)
class MetaSgdSettings(LearnerSettings):
    """inner_rate: where all rates start. inner_steps: of the descent on the support.

    >>> MetaSgdSettings(inner_rate=0.1)
    MetaSgdSettings(inner_rate=0.1, inner_steps=5)
    """

    inner_rate: NotNegative = 0.01
    inner_steps: Count = 5


class Maml(MetaLearner):
    """MAML (Finn et al. 2017); trained on one-class supports it is OC-MAML (Eq. 4 of the paper).

    Every parameter takes `inner_steps` steps of SGD on the support, theta' = theta - inner_rate * dL_support/dtheta,
    and the initialisation theta is learned by the gradient of the query's loss at theta', through the steps.

    Parameters
    ----------
    module
        Any torch module, inputs (n, *shape) -> features (n, d) or one logit (n,); features get a linear head. For the
        library's own conv net the derivatives are written out (faster, to rounding the same); any other module is left
        to autograd. Batch norm and dropout in training mode are refused: call `module.eval()`.
    inner_rate, inner_steps
        Of the descent on the support.
    learn_rates
        One learned rate per tensor and step instead of the fixed one; "elements": one per single parameter, the same in
        every step and within [0, 1], which is Meta-SGD.
    first_order
        The steps are not differentiated through (FOMAML).
    query_statistics
        In meta-training the query is normed by its own batch (networks with support norm alone).
    features
        How many the module gives, where it cannot be read off its last layer.

    References
    ----------
    Finn, Abbeel, Levine: Model-agnostic meta-learning for fast adaptation of deep networks, ICML 2017.
    Frikha et al.: Few-shot one-class classification via meta-learning, AAAI 2021.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import Maml
    >>> from fewone.episodes import Examples
    >>> learner = Maml(torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU()), inner_rate=0.1, inner_steps=2)
    >>> support = Examples.normals(torch.zeros(1, 5, 3))
    >>> learner.adapt(support)(torch.ones(1, 4, 3)).shape
    torch.Size([1, 4])
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        inner_rate: float = 0.01,
        inner_steps: int = 5,
        learn_rates: bool | Literal["elements"] = False,
        first_order: bool = False,
        query_statistics: bool = False,
        features: int | None = None,
    ) -> None:
        super().__init__()
        self.classifier = as_classifier(module, features)
        parameters = dict(self.classifier.named_parameters())
        self.rates = choose_rates(parameters, inner_rate, inner_steps, learn_rates)
        self.first_order, self.query_statistics = first_order, query_statistics
        self.note(inner_rate=inner_rate, inner_steps=inner_steps, learn_rates=learn_rates, first_order=first_order)

    @property
    def initialisation(self) -> Classifier:
        return self.classifier

    def adapt(self, support: Examples) -> AdaptedScorer:
        return inner_loop_of(self.classifier).adapt(self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        loop = inner_loop_of(self.classifier)
        episodes = self.expect_episodes(batch)
        return loop.accumulate_meta_gradient(self.rates(), episodes, self.first_order, self.query_statistics)


def MetaSgd(  # noqa: N802
    module: nn.Module, *, inner_rate: float = 0.01, inner_steps: int = 5, features: int | None = None
) -> Maml:
    """Meta-SGD (Li et al. 2017): MAML whose every parameter is adapted at its own learned rate, within [0, 1].

    Parameters
    ----------
    module
        Any torch module, as for `Maml`.
    inner_rate
        Where all rates start.
    inner_steps
        Of the descent on the support.
    features
        How many the module gives, where it cannot be read off its last layer.

    Returns
    -------
    A learner `Maml`, with a rate per element.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import MetaSgd
    >>> learner = MetaSgd(torch.nn.Linear(3, 8), inner_rate=0.1, inner_steps=1)
    >>> sum(rate.numel() for rate in learner.rates.parameters())
    41

    References
    ----------
    Li, Zhou, Chen, Li: Meta-SGD: learning to learn quickly for few-shot learning, 2017.
    """
    return Maml(module, inner_rate=inner_rate, inner_steps=inner_steps, learn_rates="elements", features=features)


def build_maml(settings: MamlSettings, network: NetworkSettings, facts: DataFacts, first_order: bool = False) -> Maml:
    """Exact: differentiates through the inner steps, unless first order is asked for."""
    return Maml(
        build_embedding(network, facts.shape),
        inner_rate=settings.inner_rate,
        inner_steps=settings.inner_steps,
        learn_rates=settings.learn_rates,
        first_order=first_order,
        query_statistics=settings.query_statistics,
    )


build_fomaml = partial(build_maml, first_order=True)


def build_meta_sgd(settings: MetaSgdSettings, network: NetworkSettings, facts: DataFacts) -> Maml:
    embedding = build_embedding(network, facts.shape)
    return MetaSgd(embedding, inner_rate=settings.inner_rate, inner_steps=settings.inner_steps)
