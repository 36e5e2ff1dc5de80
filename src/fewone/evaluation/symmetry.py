"""The paper's Equation 5, measured: is E[H1 g2] = E[H2 g1] for two minibatches of the same class-imbalance rate?

g and H are gradient and Hessian of a minibatch's loss at the initialisation. First-order learners lean on the equality:
with it, what they leave out of MAML's gradient is there in expectation. It holds where both minibatches are drawn alike
and need not hold where one has normals only and the other both classes, as in OC-FOMAML and OC-Reptile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fewone.episodes import Examples, Task, generator_for
from fewone.errors import FewoneError
from fewone.evaluation.gradients import find_classifier
from fewone.learners import MetaLearner, query_loss
from fewone.networks import Classifier
from fewone.results.statistics import Interval, interval
from fewone.sampling import EpisodeSampler


@dataclass(frozen=True)
class Symmetry:
    """E[H1 g2] against E[H2 g1] over tasks and pairs of disjoint minibatches of one size.

    first_share: of normals in minibatch 1 (minibatch 2 is balanced). difference: squared length of
    E[H1 g2] - E[H2 g1] over that of E[H1 g2] + E[H2 g1], both without the bias that noise gives a squared length: 0
    where they are equal (then as often a little below 0 as above), with a 95 % interval over tasks. cosine: of the two.
    """

    first_share: float
    size: int
    difference: Interval
    cosine: float
    pairs: int


def measure_symmetry(
    learner: MetaLearner, tasks: Sequence[Task], sampler: EpisodeSampler, first_share: float, pairs: int, seed: int
) -> Symmetry:
    """`pairs` pairs of each task. Both minibatches have K examples (an odd K: one more) and norm themselves."""
    if len(tasks) < 3:
        raise FewoneError(f"{len(tasks)} task(s): an expectation over tasks needs at least 3")
    classifier, size = find_classifier(learner), sampler.support_size + sampler.support_size % 2
    drawing = replace(sampler, support_size=size, query_size=size, normal_share=first_share, smallest_query=None)
    products = []
    for task in tasks:
        # Both minibatches from all that a task has: fixed halves would make them differ by more than their share.
        whole = replace(task, fixed_split=False)
        found = [_draw_products(classifier, whole, drawing, seed, number) for number in range(pairs)]
        products.append(torch.stack(found).mean(0))
    first, second = torch.stack(products).unbind(1)
    return Symmetry(
        first_share,
        size,
        _estimate(first - second, first + second),
        float(torch.cosine_similarity(first.mean(0), second.mean(0), dim=0)),
        pairs * len(tasks),
    )


def _draw_products(classifier: Classifier, task: Task, sampler: EpisodeSampler, seed: int, number: int) -> Tensor:
    """H1 g2 and H2 g1 of one pair: (2, P) float64."""
    episode = sampler.draw([task], 1, generator_for(seed, "symmetry", task.name, number))
    one, other = episode.support[0], episode.query[0]
    forward, backward = find_product(classifier, one, other), find_product(classifier, other, one)
    return torch.stack([forward, backward]).to(torch.float64)


def find_product(classifier: Classifier, curved: Examples, sloped: Examples) -> Tensor:
    """Hessian of the loss on one minibatch (n, ...) times the gradient on another, by all parameters: (P,)."""
    parameters = list(classifier.parameters())

    def differentiate(examples: Examples, again: bool) -> Tensor:
        logits, _ = classifier(examples.inputs)
        found = torch.autograd.grad(query_loss(logits, examples), parameters, create_graph=again)
        return torch.cat([gradient.flatten() for gradient in found])

    with torch.enable_grad():
        direction = differentiate(sloped, again=False)
        slope = torch.dot(differentiate(curved, again=True), direction)
        product = torch.autograd.grad(slope, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in product])


def _estimate(differences: Tensor, sums: Tensor) -> Interval:
    """Ratio of squared lengths of the means of (n, P) and (n, P), with a jackknife interval over the n tasks."""
    whole = float(_squared_mean(differences) / _squared_mean(sums))
    rest = torch.arange(len(sums))
    without = [
        float(_squared_mean(differences[rest != left]) / _squared_mean(sums[rest != left])) for left in rest.tolist()
    ]
    count = len(without)
    # Pseudo-values: as far apart as n independent measurements of the ratio would be.
    spread = interval([count * whole - (count - 1) * value for value in without])
    assert spread.low is not None and spread.high is not None
    return Interval(whole, whole + spread.low - spread.mean, whole + spread.high - spread.mean, count)


def _squared_mean(vectors: Tensor) -> Tensor:
    """Squared length of the expectation of independent vectors (n, P): by products of different ones, free of bias."""
    count = len(vectors)
    everything: Tensor = vectors.sum(0).square().sum() - vectors.square().sum()
    return everything / (count * (count - 1))
