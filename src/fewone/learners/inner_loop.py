"""The inner loop that all gradient-based learners share: SGD on the support, and the gradient through it.

Knows no algorithm: which parameters move, and how far, is in the rates it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.func import functional_call

from fewone.conv_adjoint.derivatives import ConvDerivatives
from fewone.episodes import Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer, stack_statistics, stack_tasks
from fewone.learners.adjoint import AdjointLoop, accumulate
from fewone.learners.inner_rates import StepRates
from fewone.learners.meta_learner import query_loss
from fewone.networks import Classifier, Statistics

Parameters = dict[str, Tensor]


class InnerLoop(Protocol):
    """SGD on the supports of a batch of tasks, from the parameters of one classifier."""

    def adapt(self, rates: Sequence[StepRates], support: Examples) -> AdaptedScorer:
        """The classifier after the steps on each task's support (T, K, ...)."""
        ...

    def accumulate_meta_gradient(
        self, rates: Sequence[StepRates], episodes: Episodes, first_order: bool, query_statistics: bool = False
    ) -> Tensor:
        """Add the gradient of the mean query loss after the steps to `.grad` of the classifier and behind the rates.

        first_order: the gradients of the steps count as constants. query_statistics: the query is normed by its own
        batch instead of by the support's statistics. Returns the loss.
        """
        ...

    def accumulate_reptile_gradient(
        self,
        rates: Sequence[StepRates],
        episodes: Episodes,
        balanced_step: bool = True,
        query_statistics: bool = False,
    ) -> Tensor:
        """Add the mean way back from where the steps end to `.grad`; the last step is on the query
        (balanced_step), or on the support like the others. query_statistics: the query is normed by its own batch.

        Returns the mean query loss before the last step.
        """
        ...


def inner_loop_of(classifier: Classifier) -> InnerLoop:
    """Derivatives written out for the conv classifier, autograd for any other network."""
    if ConvDerivatives.can_differentiate(classifier):
        return AdjointLoop(classifier)
    return AutogradLoop(classifier)


class AutogradLoop:
    """The plain loop, for any network: one task after the other, a graph through its steps."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def adapt(self, rates: Sequence[StepRates], support: Examples) -> AdaptedScorer:
        start = {name: value.detach() for name, value in self.classifier.named_parameters()}
        constants = [{name: rate.detach() for name, rate in step.items()} for step in rates]
        adapted, found = [], []
        for task in range(len(support)):
            adapted.append(take_steps(self._on_support(support[task]), start, constants, order=1))
            with torch.no_grad():
                found.append(self._statistics(adapted[-1], support[task]))
        return AdaptedScorer(self.classifier, stack_tasks(adapted), stack_statistics(found))

    def accumulate_meta_gradient(
        self, rates: Sequence[StepRates], episodes: Episodes, first_order: bool, query_statistics: bool = False
    ) -> Tensor:
        losses = []
        start = dict(self.classifier.named_parameters())
        for task in range(len(episodes)):
            support, query = episodes.support[task], episodes.query[task]
            adapted = take_steps(self._on_support(support), start, rates, order=1 if first_order else 2)
            loss = self._on_query(support, query, query_statistics)(adapted) / len(episodes)
            # The graph behind learned rates is shared by all tasks.
            torch.autograd.backward(loss, retain_graph=True)
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def accumulate_reptile_gradient(
        self,
        rates: Sequence[StepRates],
        episodes: Episodes,
        balanced_step: bool = True,
        query_statistics: bool = False,
    ) -> Tensor:
        *first, last = rates
        losses = []
        start = dict(self.classifier.named_parameters())
        for task in range(len(episodes)):
            support, query = episodes.support[task], episodes.query[task]
            middle = take_steps(self._on_support(support), start, first, order=1)
            on_query = self._on_query(support, query, query_statistics)
            with torch.no_grad():
                losses.append(on_query(middle))
            end = take_steps(on_query if balanced_step else self._on_support(support), middle, [last], order=1)
            for name, value in start.items():
                accumulate(value, (value - end[name]).detach() / len(episodes))
        return torch.stack(losses).mean()

    def _on_support(self, support: Examples) -> Callable[[Parameters], Tensor]:
        """Parameters -> cross-entropy of one task's support (K, ...), normed by its own statistics."""

        def loss(parameters: Parameters) -> Tensor:
            logits, _ = functional_call(self.classifier, parameters, (support.inputs,))
            return query_loss(logits, support)

        return loss

    def _on_query(self, support: Examples, query: Examples, query_statistics: bool) -> Callable[[Parameters], Tensor]:
        """Parameters -> cross-entropy of the query, normed by the statistics of the support under them or its own."""

        def loss(parameters: Parameters) -> Tensor:
            statistics = None if query_statistics else self._statistics(parameters, support)
            logits, _ = functional_call(self.classifier, parameters, (query.inputs, statistics))
            return query_loss(logits, query)

        return loss

    def _statistics(self, parameters: Parameters, support: Examples) -> Statistics:
        if not self.classifier.embedding.takes_statistics:
            return ()
        _, statistics = functional_call(self.classifier, parameters, (support.inputs,))
        return tuple(statistics)


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
