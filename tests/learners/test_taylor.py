"""The paper's Taylor expansions: with one inner step of size a, what is left of them falls with a squared."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from fewone.episodes import Examples
from fewone.learners.meta_learner import query_loss

RATES = [4e-3, 2e-3, 1e-3, 5e-4]


def gradient_and_products(
    learner: torch.nn.Module, support: Examples, query: Examples
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """g1, g2, H2 g1 and H1 g2 at the initial parameters, flattened; 1 is the support, 2 the query."""
    parameters = dict(learner.classifier.named_parameters())

    def gradient(examples: Examples, values: list[Tensor], keep: bool) -> list[Tensor]:
        logits, _ = functional_call(learner.classifier, dict(zip(parameters, values, strict=True)), (examples.inputs,))
        return list(torch.autograd.grad(query_loss(logits, examples), values, create_graph=keep))

    start = [value.detach().requires_grad_() for value in parameters.values()]
    one, two = (gradient(examples, start, keep=True) for examples in (support, query))
    products = [
        torch.autograd.grad(slopes, start, grad_outputs=[value.detach() for value in along], retain_graph=True)
        for slopes, along in ((two, one), (one, two))
    ]
    return tuple(torch.cat([value.detach().flatten() for value in row]) for row in (one, two, *products))


def expand_maml(g1: Tensor, g2: Tensor, h2_g1: Tensor, h1_g2: Tensor, rate: float) -> Tensor:
    return g2 - rate * h2_g1 - rate * h1_g2


def expand_fomaml(g1: Tensor, g2: Tensor, h2_g1: Tensor, h1_g2: Tensor, rate: float) -> Tensor:
    return g2 - rate * h2_g1


def expand_reptile(g1: Tensor, g2: Tensor, h2_g1: Tensor, h1_g2: Tensor, rate: float) -> Tensor:
    return g1 + g2 - rate * h2_g1


@pytest.mark.parametrize("anomalies", [0, 2], ids=["one-class", "balanced"])
@pytest.mark.parametrize(
    ("name", "steps", "expand"),
    [("maml", 1, expand_maml), ("fomaml", 1, expand_fomaml), ("reptile", 2, expand_reptile)],
)
def test_the_expansion_is_exact_to_second_order(
    name: str, steps: int, expand: Callable[..., Tensor], anomalies: int, make_learner, make_episodes
):
    episodes = make_episodes(tasks=1, anomalies=anomalies)
    residuals = []
    for rate in RATES:
        learner = make_learner(name, steps=steps, rate=rate)
        parts = gradient_and_products(learner, episodes.support[0], episodes.query[0])
        learner.accumulate_gradient(episodes)
        found = torch.cat([value.grad.flatten() for value in learner.classifier.parameters()])
        # Reptile's way is its gradient times the rate.
        found = found / rate if name == "reptile" else found
        residuals.append(float((found - expand(*parts, rate)).norm()))
    slopes = [
        math.log(after / before) / math.log(smaller / larger)
        for before, after, larger, smaller in zip(residuals, residuals[1:], RATES, RATES[1:], strict=False)
    ]
    assert all(1.9 < slope < 2.1 for slope in slopes), slopes


def test_without_the_second_term_the_expansion_is_only_of_first_order(make_learner, make_episodes):
    episodes = make_episodes(tasks=1)
    residuals = []
    for rate in RATES[:2]:
        learner = make_learner("maml", steps=1, rate=rate)
        parts = gradient_and_products(learner, episodes.support[0], episodes.query[0])
        learner.accumulate_gradient(episodes)
        found = torch.cat([value.grad.flatten() for value in learner.classifier.parameters()])
        residuals.append(float((found - expand_fomaml(*parts, rate)).norm()))
    assert math.log2(residuals[0] / residuals[1]) == pytest.approx(1.0, abs=0.1)
