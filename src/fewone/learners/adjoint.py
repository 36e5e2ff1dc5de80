"""The exact meta-gradient of a conv classifier without a graph through the inner loop.

Keep what the inner steps did, take the query's gradient v where they end, and sweep back: v <- v - H (rate * v).
Parameters of T tasks are rows (T, P).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.conv_adjoint.derivatives import ConvDerivatives, PreparedInputs, Tape, logit_curvature, logit_gradient
from fewone.episodes import Episodes, Examples
from fewone.learners.adapted_scorer import AdaptedScorer
from fewone.learners.inner_rates import StepRates
from fewone.learners.task_groups import Result, work_in_groups
from fewone.networks import Classifier, Statistics


class AdjointLoop:
    """The inner loop of a conv classifier, its derivatives written out."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier, self.network = classifier, ConvDerivatives(classifier)

    def adapt(self, rates: Sequence[StepRates], support: Examples) -> AdaptedScorer:
        start, steps = self._start(), self._pack_rates(rates)

        def work(group: slice) -> tuple[Tensor, Statistics]:
            part = Support.of(self.network, support[group])
            rows = descend(part, start.expand(len(part.examples), -1), steps)
            return rows, part.statistics(rows)

        found = self._in_groups(support, work)
        rows = torch.cat([rows for rows, _ in found])
        statistics = tuple(torch.cat(column) for column in zip(*(kept for _, kept in found), strict=True))
        return AdaptedScorer(self.classifier, self.network.packing.unpack(rows), statistics)

    def accumulate_meta_gradient(
        self, rates: Sequence[StepRates], episodes: Episodes, first_order: bool, query_statistics: bool = False
    ) -> Tensor:
        start, steps = self._start(), self._pack_rates(rates)
        learned = any(rate.requires_grad for step in rates for rate in step.values())

        def work(group: slice) -> MetaGradient:
            part = Support.of(self.network, episodes.support[group])
            rows = start.expand(len(part.examples), -1)
            return differentiate(part, episodes.query[group], rows, steps, first_order, learned, query_statistics)

        total = MetaGradient.add(self._in_groups(episodes.support, work))
        self._accumulate(total.parameters / len(episodes))
        if learned:
            self._accumulate_rates(rates, [row / len(episodes) for row in total.rates])
        return total.loss / len(episodes)

    def accumulate_reptile_gradient(
        self,
        rates: Sequence[StepRates],
        episodes: Episodes,
        balanced_step: bool = True,
        query_statistics: bool = False,
    ) -> Tensor:
        start, (*first, last) = self._start(), self._pack_rates(rates)

        def work(group: slice) -> MetaGradient:
            part = Support.of(self.network, episodes.support[group])
            rows = start.expand(len(part.examples), -1)
            middle = descend(part, rows, first)
            loss, gradient = query_gradient(part, episodes.query[group], middle, query_statistics)
            if not balanced_step:
                gradient = part.gradient(part.run(middle))
            return MetaGradient(loss.sum(), (rows - middle + gradient * last).sum(0), ())

        total = MetaGradient.add(self._in_groups(episodes.support, work))
        self._accumulate(total.parameters / len(episodes))
        return total.loss / len(episodes)

    def _in_groups(self, support: Examples, work: Callable[[slice], Result]) -> list[Result]:
        return work_in_groups(len(support), self.network.largest_map(support.inputs[:1]), work)

    def _start(self) -> Tensor:
        parameters = self.classifier.named_parameters()
        return self.network.packing.pack({name: value.detach() for name, value in parameters})

    def _pack_rates(self, rates: Sequence[StepRates]) -> list[Tensor]:
        packed = []
        for step in rates:
            different = {id(rate): rate.detach() for rate in step.values()}
            same = len(different) == 1 and len(step) == len(self.network.packing.tensors)
            only = next(iter(different.values()))
            packed.append(only if same and only.dim() == 0 else self.network.packing.pack(step).detach())
        return packed

    def _accumulate(self, row: Tensor) -> None:
        gradients = self.network.packing.unpack(row.unsqueeze(0))
        for name, parameter in self.classifier.named_parameters():
            accumulate(parameter, gradients[name][0])

    def _accumulate_rates(self, rates: Sequence[StepRates], rows: Sequence[Tensor]) -> None:
        """Gradients by the rates of each step, rows (P,), handed on to whatever the rates were computed from."""
        tensors, gradients = [], []
        for step, row in zip(rates, rows, strict=True):
            found = self.network.packing.unpack(row.unsqueeze(0))
            for name, rate in step.items():
                tensors.append(rate)
                gradients.append(found[name][0] if rate.dim() else found[name].sum())
        torch.autograd.backward(tensors, gradients)


@dataclass(frozen=True)
class Support:
    """The support of T tasks, prepared once for all tapes over it."""

    network: ConvDerivatives
    examples: Examples
    inputs: PreparedInputs

    @staticmethod
    def of(network: ConvDerivatives, examples: Examples) -> Support:
        return Support(network, examples, network.prepare(examples.inputs))

    def run(self, rows: Tensor) -> Tape:
        return self.network.run(rows, self.inputs)

    def gradient(self, tape: Tape) -> Tensor:
        """Gradient of the support's loss on a tape: (T, P)."""
        return tape.backward(logit_gradient(tape.logits, self.examples.labels, self.examples.weights))

    def statistics(self, rows: Tensor) -> Statistics:
        """What the support leaves behind for queries: mean and variance of each norm, (T, channels) each."""
        if not self.network.has_norms:
            return ()
        return self.run(rows).body.statistics

    def hessian_product(self, tape: Tape, direction: Tensor) -> Tensor:
        """Hessian of the support's loss times direction (T, P), on a tape that went backward already."""
        curvature = logit_curvature(tape.logits, self.examples.weights)
        return tape.move(self.network.packing.split(direction), curvature)


def descend(support: Support, start: Tensor, rates: Sequence[Tensor]) -> Tensor:
    """SGD on the support from rows (T, P); rates: a scalar or (P,) for each step."""
    rows = start
    for rate in rates:
        rows = torch.addcmul(rows, support.gradient(support.run(rows)), rate, value=-1)
    return rows


@dataclass(frozen=True)
class MetaGradient:
    """Summed over tasks: the loss, its gradient by the initial parameters (P,) and by the rates of each step (P,)."""

    loss: Tensor
    parameters: Tensor
    rates: tuple[Tensor, ...]

    @staticmethod
    def add(parts: Sequence[MetaGradient]) -> MetaGradient:
        return MetaGradient(
            torch.stack([part.loss for part in parts]).sum(0),
            torch.stack([part.parameters for part in parts]).sum(0),
            tuple(torch.stack(column).sum(0) for column in zip(*(part.rates for part in parts), strict=True)),
        )


def differentiate(
    support: Support,
    query: Examples,
    start: Tensor,
    rates: Sequence[Tensor],
    first_order: bool,
    learn_rates: bool,
    query_statistics: bool = False,
) -> MetaGradient:
    """Gradient of the query's loss after SGD on the support. first_order: the steps' gradients are constants."""
    rows = start
    tapes: list[Tape | None] = []
    gradients: list[Tensor | None] = []
    for rate in rates:
        tape = support.run(rows)
        gradient = support.gradient(tape)
        rows = torch.addcmul(rows, gradient, rate, value=-1)
        tapes.append(None if first_order else tape)
        gradients.append(gradient if learn_rates else None)
    loss, adjoint = query_gradient(support, query, rows, query_statistics)
    by_rate: list[Tensor] = []
    for rate in reversed(rates):
        kept, step = tapes.pop(), gradients.pop()
        if step is not None:
            by_rate.append(-(step * adjoint).sum(0))
        if kept is not None:
            adjoint = adjoint - support.hessian_product(kept, adjoint * rate)
    return MetaGradient(loss.sum(), adjoint.sum(0), tuple(reversed(by_rate)))


def query_gradient(
    support: Support, query: Examples, rows: Tensor, query_statistics: bool = False
) -> tuple[Tensor, Tensor]:
    """Loss (T,) of the query under rows (T, P), and its gradient, through the statistics too.

    The statistics are the support's, or, with query_statistics, those of the query's own batch, in one chunk.
    """
    network = support.network
    if query_statistics and network.has_norms:
        alone = Support.of(network, query)
        queried = alone.run(rows)
        return weighted_loss(queried.logits, query), alone.gradient(queried)
    tape = support.run(rows) if network.has_norms else None
    losses, gradients = [], []
    for cut in network.chunks(query.inputs):
        chunk = Examples(query.inputs[:, cut], query.labels[:, cut], query.weights[:, cut])
        queried = network.run(rows, network.prepare(chunk.inputs), tape.body.statistics if tape is not None else None)
        losses.append(weighted_loss(queried.logits, chunk))
        gradients.append(queried.backward(logit_gradient(queried.logits, chunk.labels, chunk.weights)))
        if tape is not None:
            tape.body.add_statistics_grad_of(queried.body)
    if tape is not None:
        gradients.append(tape.backward(torch.zeros_like(tape.logits)))
    return torch.stack(losses).sum(0), torch.stack(gradients).sum(0)


def weighted_loss(logits: Tensor, examples: Examples) -> Tensor:
    """Weighted cross-entropy of each task: (T, n) -> (T,)."""
    losses = F.binary_cross_entropy_with_logits(logits, examples.labels.to(logits.dtype), reduction="none")
    return (losses * examples.weights).sum(1)


def accumulate(parameter: Tensor, gradient: Tensor) -> None:
    """Add to `.grad`, as a backward pass would."""
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
