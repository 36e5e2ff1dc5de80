"""ANIL: almost no inner loop. Only the head is adapted; the body is learned across tasks and runs once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fewone.conv_adjoint.derivatives import ConvDerivatives
from fewone.conv_adjoint.features import embed_tasks
from fewone.documents import Count, NotNegative
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import InputError
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.adjoint import accumulate
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.inner_loop import Parameters, take_steps
from fewone.learners.inner_rates import StepRates, choose_rates
from fewone.learners.meta_learner import MetaLearner, query_loss
from fewone.learners.task_groups import work_in_groups
from fewone.networks import Classifier, NetworkSettings, Statistics, as_classifier, build_embedding


@dataclass(frozen=True)
class AnilSettings(LearnerSettings):
    """inner_rate, inner_steps: of the head's descent on the support. learn_rates: one per tensor and step, learned.

    >>> AnilSettings(inner_steps=3).inner_rate
    0.01
    """

    inner_rate: NotNegative = 0.01
    inner_steps: Count = 5
    learn_rates: bool = False


class Anil(MetaLearner):
    """ANIL (Raghu et al. 2020): the head alone is adapted, on the features of the support; the body is shared.

    Parameters
    ----------
    module
        Any torch module, inputs (n, *shape) -> features (n, d), as for `Maml`; it gets a linear head.
    inner_rate, inner_steps
        Of the head's descent on the support.
    learn_rates
        One learned rate per tensor and step instead of the fixed one.
    first_order
        The steps are not differentiated through.
    features
        How many the module gives, where it cannot be read off its last layer.

    References
    ----------
    Raghu, Raghu, Bengio, Vinyals: Rapid learning or feature reuse? ICLR 2020.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import Anil
    >>> from fewone.episodes import Examples
    >>> learner = Anil(torch.nn.Linear(3, 8), inner_rate=0.1, inner_steps=2)
    >>> learner.adapt(Examples.normals(torch.zeros(1, 5, 3)))(torch.ones(1, 4, 3)).shape
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
        features: int | None = None,
    ) -> None:
        super().__init__()
        self.classifier = as_classifier(module, features)
        if not isinstance(self.classifier.head, nn.Linear):
            raise InputError("Anil adapts a head on features; this module gives one logit: leave its last layer out")
        self.rates = choose_rates(head_parameters(self.classifier), inner_rate, inner_steps, learn_rates)
        self.first_order = first_order
        written_out = ConvDerivatives.can_differentiate(self.classifier)
        self.network = ConvDerivatives(self.classifier) if written_out else None
        self.note(inner_rate=inner_rate, inner_steps=inner_steps, learn_rates=learn_rates, first_order=first_order)

    @property
    def initialisation(self) -> Classifier:
        return self.classifier

    def adapt(self, support: Examples) -> AdaptedScorer:
        head = head_parameters(self.classifier)
        rates = [{name: rate.detach() for name, rate in step.items()} for step in self.rates()]

        def work(group: slice) -> tuple[Parameters, Statistics]:
            features, statistics = self.embed(support.inputs[group])
            return adapt_heads(features, support[group], head, rates, order=1), statistics

        found = work_in_groups(len(support), self._map_size(support), work)
        heads = {name: torch.cat([adapted[name].detach() for adapted, _ in found]) for name in head}
        statistics = tuple(torch.cat(column) for column in zip(*(kept for _, kept in found), strict=True))
        return AdaptedScorer(self.classifier, heads, statistics)

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        batch = self.expect_episodes(batch)
        parameters = list(self.parameters())

        def work(group: slice) -> tuple[Tensor, tuple[Tensor | None, ...]]:
            with torch.enable_grad():
                loss = self._sum_losses(batch.support[group], batch.query[group])
            return loss.detach(), torch.autograd.grad(loss, parameters, allow_unused=True)

        found = work_in_groups(len(batch), self._map_size(batch.support), work)
        for parameter, column in zip(parameters, zip(*(gradients for _, gradients in found), strict=True), strict=True):
            for gradient in column:
                if gradient is not None:
                    accumulate(parameter, gradient / len(batch))
        return torch.stack([loss for loss, _ in found]).sum() / len(batch)

    def _map_size(self, support: Examples) -> int:
        """Values of one task's largest feature map, as far as known."""
        return support.inputs[:1].numel() if self.network is None else self.network.largest_map(support.inputs[:1])

    def _sum_losses(self, support: Examples, query: Examples) -> Tensor:
        features, statistics = self.embed(support.inputs)
        embedded, _ = self.embed(query.inputs, statistics)
        order = 1 if self.first_order else 2
        heads = adapt_heads(features, support, head_parameters(self.classifier), self.rates(), order)
        return head_loss(embedded, heads, query)

    def embed(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        """Features (T, n, width) of inputs (T, n, *shape); statistics (T, channels) each."""
        if self.network is not None:
            return embed_tasks(self.classifier, self.network, inputs, statistics)
        given = [
            None if statistics is None else tuple(value[task] for value in statistics) for task in range(len(inputs))
        ]
        found = [self.classifier.embedding(values, kept) for values, kept in zip(inputs, given, strict=True)]
        columns = zip(*(kept for _, kept in found), strict=True)
        return torch.stack([features for features, _ in found]), tuple(torch.stack(column) for column in columns)


def head_parameters(classifier: Classifier) -> Parameters:
    """The parameters of the linear head, by their names in the classifier."""
    return {f"head.{name}": value for name, value in classifier.head.named_parameters()}


def adapt_heads(
    features: Tensor, support: Examples, head: Mapping[str, Tensor], rates: Sequence[StepRates], order: int
) -> Parameters:
    """Heads (T, ...) after the steps on the support's features (T, K, width); see `take_steps` for the order."""
    start = {name: value.expand(len(features), *value.shape) for name, value in head.items()}
    # Tasks share no parameters here, so the gradient of the sum is each task's own.
    return take_steps(lambda heads: head_loss(features, heads, support), start, rates, order)


def head_loss(features: Tensor, head: Mapping[str, Tensor], examples: Examples) -> Tensor:
    """Cross-entropy of features (T, n, width) under heads (T, ...), summed over the tasks."""
    bias = head["head.bias"].unsqueeze(1)
    logits = torch.baddbmm(bias, features, head["head.weight"].transpose(1, 2)).squeeze(2)
    return query_loss(logits, examples) * len(logits)


def build_anil(settings: AnilSettings, network: NetworkSettings, facts: DataFacts, first_order: bool = False) -> Anil:
    """Exact: differentiates through the inner steps, unless first order is asked for."""
    return Anil(
        build_embedding(network, facts.shape),
        inner_rate=settings.inner_rate,
        inner_steps=settings.inner_steps,
        learn_rates=settings.learn_rates,
        first_order=first_order,
    )


build_foanil = partial(build_anil, first_order=True)
