"""Reptile's outer gradient is the mean way back from where SGD ends; the last step is on the query."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call

from fewone.learners.meta_learner import query_loss

NORMS = [("none", "before-relu"), ("support", "before-relu"), ("support", "last")]


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize(("norm", "place"), NORMS)
def test_gradient_is_the_mean_way_from_the_adapted_to_the_initial_parameters(
    norm, place, steps, make_learner, make_episodes, gradient_of
):
    learner, episodes = make_learner("reptile", norm=norm, norm_place=place, steps=steps), make_episodes(query=4)
    classifier, rate = learner.classifier, 0.2
    loss, gradient = gradient_of(learner, episodes)
    ways, losses = [], []
    for task in range(2):
        support, query = episodes.support[task], episodes.query[task]
        values = {name: value.detach().clone() for name, value in classifier.named_parameters()}
        for step in range(steps):
            leaves = {name: value.requires_grad_() for name, value in values.items()}
            logits, statistics = functional_call(classifier, leaves, (support.inputs,))
            examples = support
            if step == steps - 1:
                logits, _ = functional_call(classifier, leaves, (query.inputs, statistics))
                examples = query
            objective = query_loss(logits, examples)
            found = torch.autograd.grad(objective, list(leaves.values()))
            values = {
                name: (value - rate * slope).detach()
                for (name, value), slope in zip(leaves.items(), found, strict=True)
            }
        losses.append(float(objective.detach()))
        ways.append({name: value.detach() - values[name] for name, value in classifier.named_parameters()})
    assert loss == pytest.approx(sum(losses) / 2, abs=1e-12)
    for name in ways[0]:
        torch.testing.assert_close(gradient[f"classifier.{name}"], (ways[0][name] + ways[1][name]) / 2)


def test_the_query_matters_through_the_last_step_alone(make_learner, make_episodes, gradient_of):
    one, other = make_episodes(query=4, seed=0), make_episodes(query=4, seed=1)
    learner = make_learner("reptile", steps=3)
    mixed = type(one)(one.tasks, one.support, other.query, one.support_rows, one.query_rows)
    _, first = gradient_of(learner, one)
    _, second = gradient_of(learner, mixed)
    assert any(not torch.allclose(first[name], second[name]) for name in first)
    assert torch.equal(learner.adapt(one.support)(one.query.inputs), learner.adapt(mixed.support)(one.query.inputs))
