"""MAML's meta-gradient is the derivative of its loss; FOMAML's is the query gradient where the steps end."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call

from fewone.learners.meta_learner import query_loss

NORMS = [("none", "before-relu"), ("support", "before-relu"), ("support", "last")]


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize(("norm", "place"), NORMS)
def test_meta_gradient_equals_finite_differences(norm, place, steps, make_learner, make_episodes, finite_difference):
    learner = make_learner("maml", norm=norm, norm_place=place, steps=steps)
    assert finite_difference(learner, make_episodes(anomalies=1)) < 1e-6


@pytest.mark.parametrize("shape", [(2, 20), (3, 9, 8)], ids=str)
def test_meta_gradient_equals_finite_differences_with_learned_rates(
    shape, make_learner, make_episodes, finite_difference
):
    learner = make_learner("maml", shape, norm="support", learn_rates=True)
    assert learner.rates.rates.shape == (3, len(list(learner.classifier.parameters())))
    assert finite_difference(learner, make_episodes(shape)) < 1e-6


@pytest.mark.parametrize(("norm", "place"), NORMS)
def test_first_order_equals_second_order_at_zero_steps(norm, place, make_learner, make_episodes, gradient_of):
    episodes = make_episodes()
    second = gradient_of(make_learner("maml", norm=norm, norm_place=place, steps=0), episodes)
    first = gradient_of(make_learner("fomaml", norm=norm, norm_place=place, steps=0), episodes)
    assert first[0] == second[0]
    for name in second[1]:
        torch.testing.assert_close(first[1][name], second[1][name])


def test_first_order_differs_from_second_order_after_a_step(make_learner, make_episodes, gradient_of):
    _, second = gradient_of(make_learner("maml", steps=1), make_episodes())
    _, first = gradient_of(make_learner("fomaml", steps=1), make_episodes())
    assert any(not torch.allclose(first[name], second[name], rtol=1e-3) for name in second)


@pytest.mark.parametrize(("norm", "place"), NORMS)
def test_first_order_is_the_query_gradient_at_the_adapted_parameters(
    norm, place, make_learner, make_episodes, gradient_of
):
    learner, episodes = make_learner("fomaml", norm=norm, norm_place=place), make_episodes(tasks=1, anomalies=1)
    _, gradient = gradient_of(learner, episodes)
    scorer = learner.adapt(episodes.support)
    adapted = {
        name: value[0].clone().requires_grad_() for name, value in zip(scorer.names, scorer.adapted, strict=True)
    }
    _, statistics = functional_call(learner.classifier, adapted, (episodes.support.inputs[0],))
    logits, _ = functional_call(learner.classifier, adapted, (episodes.query.inputs[0], statistics))
    expected = torch.autograd.grad(query_loss(logits, episodes.query[0]), list(adapted.values()))
    for name, value in zip(adapted, expected, strict=True):
        torch.testing.assert_close(gradient[f"classifier.{name}"], value)


def test_a_learned_rate_is_never_negative_and_can_come_back(make_learner, make_episodes, gradient_of):
    learner, episodes = make_learner("maml", learn_rates=True), make_episodes(anomalies=1)
    with torch.no_grad():
        learner.rates.rates.fill_(-0.5)
    start = dict(learner.classifier.named_parameters())
    for name, value in zip(
        *(lambda scorer: (scorer.names, scorer.adapted))(learner.adapt(episodes.support)), strict=True
    ):
        assert torch.equal(value[0], start[name])
    _, gradient = gradient_of(learner, episodes)
    assert (gradient["rates.rates"] <= 0).all(), "a step against the gradient may only lead back to 0"
    assert (gradient["rates.rates"] < 0).any(), "some rate wants to grow, and must be able to"
