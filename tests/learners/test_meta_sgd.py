"""Meta-SGD: a rate for every parameter, within [0, 1], learned by exact gradients."""

from __future__ import annotations

import pytest
import torch

NORMS = [("none", "before-relu"), ("support", "before-relu"), ("support", "last")]


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize(("norm", "place"), NORMS)
def test_meta_gradient_equals_finite_differences(norm, place, steps, make_learner, make_episodes, finite_difference):
    learner = make_learner("metasgd", norm=norm, norm_place=place, steps=steps)
    assert finite_difference(learner, make_episodes(anomalies=1)) < 1e-6


def test_there_is_a_rate_for_every_parameter_and_it_starts_at_the_inner_rate(make_learner):
    learner = make_learner("metasgd", rate=0.25)
    shapes = [rate.shape for rate in learner.rates.rates]
    assert shapes == [parameter.shape for parameter in learner.classifier.parameters()]


def test_with_equal_rates_it_is_maml(make_learner, make_episodes, gradient_of):
    learner, maml, episodes = make_learner("metasgd"), make_learner("maml"), make_episodes()
    with torch.no_grad():
        for rate in learner.rates.rates:
            rate.fill_(0.2)
    _, gradient = gradient_of(learner, episodes)
    _, expected = gradient_of(maml, episodes)
    for name, value in expected.items():
        torch.testing.assert_close(gradient[name], value)


def test_rates_are_clipped_to_0_and_1(make_learner, make_episodes):
    learner, inside, episodes = make_learner("metasgd"), make_learner("metasgd"), make_episodes()
    with torch.no_grad():
        for outer, clipped in zip(learner.rates.rates, inside.rates.rates, strict=True):
            outer.view(-1)[::2] = -0.3
            outer.view(-1)[1::2] = 1.7
            clipped.copy_(outer.clamp(0, 1))
    logits = [one.adapt(episodes.support)(episodes.query.inputs) for one in (learner, inside)]
    assert torch.equal(*logits)


def test_a_rate_outside_moves_only_back_inside(make_learner, make_episodes, gradient_of):
    learner, episodes = make_learner("metasgd"), make_episodes()
    signs = []
    for value in (-0.1, 1.1):
        with torch.no_grad():
            for rate in learner.rates.rates:
                rate.fill_(value)
        _, gradient = gradient_of(learner, episodes)
        signs.append(
            torch.cat([gradient[f"rates.rates.{n}"].flatten() for n in range(len(learner.rates.rates))]).sign()
        )
    assert set(signs[0].tolist()) == {0.0, -1.0}, "below 0 a step against the gradient can only lead up"
    assert set(signs[1].tolist()) == {0.0, 1.0}, "above 1 it can only lead down"
