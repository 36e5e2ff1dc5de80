"""MAML: an initialisation from which a few SGD steps on the support lead to a good classifier.

First order (FOMAML): the steps are not differentiated through.
"""

from __future__ import annotations

from torch import Tensor, nn

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.inner_loop import inner_loop_of
from fewone.learners.inner_rates import choose_rates
from fewone.learners.meta_learner import MetaLearner
from fewone.learners.settings import LearnerSettings
from fewone.networks import NetworkSettings, as_classifier, build_embedding


class Maml(MetaLearner):
    """MAML (Finn et al. 2017); trained on one-class supports it is OC-MAML (Eq. 4 of the paper).

    Every parameter takes `inner_steps` steps of SGD on the support, theta' = theta - inner_rate * dL_support/dtheta,
    and the initialisation theta is learned by the gradient of the query's loss at theta', through the steps.

    Parameters
    ----------
    module : any torch module, inputs (n, *shape) -> features (n, d) or one logit (n,); features get a linear head.
        For the library's own conv net the derivatives are written out (faster, to rounding the same); any other module
        is left to autograd. Batch norm and dropout in training mode are refused: call `module.eval()`.
    inner_rate, inner_steps : of the descent on the support.
    learn_rates : one learned rate per tensor and step instead of the fixed one.
    first_order : the steps are not differentiated through (FOMAML).
    query_statistics : in meta-training the query is normed by its own batch (networks with support norm alone).
    features : how many the module gives, where it cannot be read off its last layer.

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
        learn_rates: bool = False,
        first_order: bool = False,
        query_statistics: bool = False,
        features: int | None = None,
    ) -> None:
        super().__init__()
        self.classifier = as_classifier(module, features)
        names = [name for name, _ in self.classifier.named_parameters()]
        self.rates = choose_rates(names, inner_rate, inner_steps, learn_rates)
        self.first_order, self.query_statistics = first_order, query_statistics
        self.note(inner_rate=inner_rate, inner_steps=inner_steps, learn_rates=learn_rates, first_order=first_order)

    def adapt(self, support: Examples) -> AdaptedScorer:
        return inner_loop_of(self.classifier).adapt(self.rates(), support)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        loop = inner_loop_of(self.classifier)
        episodes = self.expect_episodes(batch)
        return loop.accumulate_meta_gradient(self.rates(), episodes, self.first_order, self.query_statistics)


def build_maml(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Maml:
    """Exact: differentiates through the inner steps."""
    return _build(settings, network, shape, first_order=False)


def build_fomaml(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> Maml:
    """First order."""
    return _build(settings, network, shape, first_order=True)


def _build(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...], first_order: bool) -> Maml:
    return Maml(
        build_embedding(network, shape),
        inner_rate=settings.inner_rate,
        inner_steps=settings.inner_steps,
        learn_rates=settings.learn_rates,
        first_order=first_order,
        query_statistics=settings.query_statistics,
    )
