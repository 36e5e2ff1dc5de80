"""The inner loop that all gradient-based learners share: SGD on the support, and the gradient through it.

Knows no algorithm: which parameters move, and how far, is in the rates it is given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fewone.episodes import Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners.inner_rates import StepRates
from fewone.learners.meta_learner import Scorer, query_loss
from fewone.networks import Classifier, NetworkSettings, Statistics, build_embedding

Parameters = dict[str, Tensor]


def build_classifier(network: NetworkSettings, shape: tuple[int, ...]) -> Classifier:
    """The network of a gradient-based learner: an embedding and a linear head, free of running averages."""
    if network.norm == "running":
        raise FewoneError(
            "norm 'running' averages over tasks, so that adapting would change the learner; choose 'support' or 'none'"
        )
    return Classifier(build_embedding(network, shape))


def take_steps(
    loss: Callable[[Parameters], Tensor], start: Mapping[str, Tensor], rates: Sequence[StepRates], order: int
) -> Parameters:
    """SGD from `start`, one step per mapping of rates.

    order 2: the result is differentiable through the steps. order 1: the gradients of the steps are constants.
    """
    parameters = dict(start)
    for step in rates:
        moved = {name: parameters[name] for name in step}
        with torch.enable_grad():
            leaves = moved if order == 2 else {name: value.detach().requires_grad_() for name, value in moved.items()}
            gradients = torch.autograd.grad(
                loss(parameters | leaves), list(leaves.values()), create_graph=order == 2, allow_unused=True
            )
        for (name, value), gradient in zip(moved.items(), gradients, strict=True):
            if gradient is not None:
                parameters[name] = value - step[name] * gradient
    return parameters


def support_loss(classifier: Classifier, parameters: Parameters, support: Examples) -> Tensor:
    """Cross-entropy of one task's support (K, ...), normalised by its own statistics."""
    logits, _ = functional_call(classifier, parameters, (support.inputs,))
    return query_loss(logits, support)


def transfer_loss(classifier: Classifier, parameters: Parameters, support: Examples, query: Examples) -> Tensor:
    """Cross-entropy of one task's query, normalised by the statistics of the support under the same parameters."""
    statistics = support_statistics(classifier, parameters, support)
    logits, _ = functional_call(classifier, parameters, (query.inputs, statistics))
    return query_loss(logits, query)


def support_statistics(classifier: Classifier, parameters: Parameters, support: Examples) -> Statistics:
    """The statistics that one task's support (K, ...) leaves behind; () for a network that keeps none."""
    if not classifier.embedding.takes_statistics:
        return ()
    _, statistics = functional_call(classifier, parameters, (support.inputs,))
    return tuple(statistics)


def accumulate_meta_gradient(
    classifier: Classifier, rates: Sequence[StepRates], episodes: Episodes, first_order: bool
) -> Tensor:
    """Add the gradient of the mean query loss after the steps to `.grad` of the classifier and behind the rates."""
    losses = []
    parameters = dict(classifier.named_parameters())
    for support, query in each_task(episodes):
        adapted = take_steps(
            lambda values, support=support: support_loss(classifier, values, support),  # type: ignore[misc]
            parameters,
            rates,
            order=1 if first_order else 2,
        )
        loss = transfer_loss(classifier, adapted, support, query) / len(episodes)
        # The graph behind learned rates is shared by all tasks.
        torch.autograd.backward(loss, retain_graph=True)
        losses.append(loss.detach())
    return torch.stack(losses).sum()


def each_task(episodes: Episodes) -> list[tuple[Examples, Examples]]:
    """Support and query of one task after the other."""
    return [(episodes.support[task], episodes.query[task]) for task in range(len(episodes))]


class AdaptedScorer(Scorer):
    """Adapted parameters of T tasks, and the statistics of their supports under them."""

    def __init__(self, classifier: Classifier, adapted: Mapping[str, Tensor], statistics: Statistics) -> None:
        """Adapted (T, ...) each; what is not in it is taken from the classifier. Statistics (T, channels) each."""
        super().__init__()
        # A copy: the learner may train on, what was adapted stays.
        self.classifier = copy.deepcopy(classifier).requires_grad_(False)
        self.names = tuple(adapted)
        self.values = nn.ParameterList(nn.Parameter(value, requires_grad=False) for value in adapted.values())
        self.statistics = nn.ParameterList(nn.Parameter(value, requires_grad=False) for value in statistics)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([self._score(task, values) for task, values in enumerate(inputs.unbind())])

    def _score(self, task: int, inputs: Tensor) -> Tensor:
        parameters = {name: value[task] for name, value in zip(self.names, self.values, strict=True)}
        statistics = tuple(value[task] for value in self.statistics)
        logits: Tensor
        logits, _ = functional_call(self.classifier, parameters, (inputs, statistics))
        return logits


def adapt_classifier(classifier: Classifier, rates: Sequence[StepRates], support: Examples) -> AdaptedScorer:
    """The classifier after the steps on each task's support (T, K, ...)."""
    start = {name: value.detach() for name, value in classifier.named_parameters()}
    constants = [{name: rate.detach() for name, rate in step.items()} for step in rates]
    adapted, found = [], []
    for task in range(len(support)):
        examples = support[task]
        adapted.append(
            take_steps(
                lambda values, examples=examples: support_loss(classifier, values, examples),  # type: ignore[misc]
                start,
                constants,
                order=1,
            )
        )
        with torch.no_grad():
            found.append(support_statistics(classifier, adapted[-1], examples))
    return AdaptedScorer(classifier, stack(adapted), tuple(torch.stack(column) for column in zip(*found, strict=True)))


def stack(rows: Sequence[Parameters]) -> Parameters:
    """The parameters of T tasks, one after the other -> (T, ...) each."""
    return {name: torch.stack([row[name].detach() for row in rows]) for name in rows[0]}
