"""ANIL adapts the head alone, and its meta-gradient is exact."""

from __future__ import annotations

import pytest
import torch

from fewone.learners.inner_loop import inner_loop_of

NORMS = [("none", "before-relu"), ("support", "before-relu"), ("support", "last")]


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize(("norm", "place"), NORMS)
def test_meta_gradient_equals_finite_differences(norm, place, steps, make_learner, make_episodes, finite_difference):
    learner = make_learner("anil", norm=norm, norm_place=place, steps=steps)
    assert finite_difference(learner, make_episodes(anomalies=1)) < 1e-6


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize(("norm", "place"), NORMS)
def test_is_maml_with_rates_for_the_head_alone(norm, place, first_order, make_learner, make_episodes, gradient_of):
    episodes = make_episodes(tasks=3, anomalies=1)
    learner = make_learner("foanil" if first_order else "anil", norm=norm, norm_place=place, learn_rates=True)
    loss, gradient = gradient_of(learner, episodes)
    logits = learner.adapt(episodes.support)(episodes.query.inputs)
    learner.zero_grad()
    loop = inner_loop_of(learner.classifier)
    expected = loop.accumulate_meta_gradient(learner.rates(), episodes, first_order)
    assert loss == pytest.approx(float(expected), abs=1e-12)
    for name, parameter in learner.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        logits, loop.adapt(learner.rates(), episodes.support)(episodes.query.inputs), rtol=1e-9, atol=1e-12
    )


def test_first_order_equals_second_order_at_zero_steps(make_learner, make_episodes, gradient_of):
    _, second = gradient_of(make_learner("anil", norm="support", steps=0), make_episodes())
    _, first = gradient_of(make_learner("foanil", norm="support", steps=0), make_episodes())
    for name in second:
        torch.testing.assert_close(first[name], second[name])


def test_adapts_the_head_and_nothing_else(make_learner, make_episodes):
    learner, episodes = make_learner("anil"), make_episodes()
    scorer = learner.adapt(episodes.support)
    assert scorer.names == ("head.weight", "head.bias")
    assert not torch.equal(scorer.adapted[0][0], learner.classifier.head.weight)
    for kept, original in zip(
        scorer.classifier.embedding.parameters(), learner.classifier.embedding.parameters(), strict=True
    ):
        assert torch.equal(kept, original)
