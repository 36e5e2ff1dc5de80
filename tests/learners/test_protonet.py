"""Prototypes by hand, the origin for an absent class, and why the last norm never sees a one-class support alone."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fewone.episodes import Episodes, Examples, TaskSplits, generator_for
from fewone.learners import LEARNERS, query_loss
from fewone.learners.protonet import ProtoNet, compare_distances, find_prototypes
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

NETWORK = NetworkSettings(filters=(8, 8), norm="running")
NORMS = ["none", "support", "running"]


def build(network: NetworkSettings = NETWORK) -> ProtoNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        learner = LEARNERS["protonet"](LEARNERS["protonet"].choose(), network, (1, 16))
    assert isinstance(learner, ProtoNet)
    return learner


def draw_episodes(splits: TaskSplits, normal_share: float = 1.0, number: int = 0) -> Episodes:
    sampler = EpisodeSampler(6, 8, normal_share, splits.preparation)
    return sampler.draw(splits.train, 3, generator_for(0, "test", number))


def draw_features(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_prototypes_are_the_means_of_both_classes() -> None:
    features = draw_features(2, 4, 3)
    labels = torch.tensor([[0.0, 1, 0, 1], [1, 1, 0, 1]], dtype=torch.float64)
    prototypes = find_prototypes(features, Examples.of(features, labels))
    assert torch.allclose(prototypes[0, 0], features[0, [0, 2]].mean(0))
    assert torch.allclose(prototypes[0, 1], features[0, [1, 3]].mean(0))
    assert torch.allclose(prototypes[1, 0], features[1, 2])
    assert torch.allclose(prototypes[1, 1], features[1, [0, 1, 3]].mean(0))


def test_a_class_that_the_support_lacks_is_the_origin() -> None:
    features = draw_features(1, 4, 3)
    prototypes = find_prototypes(features, Examples.normals(features))
    assert torch.allclose(prototypes[0, 0], features[0].mean(0))
    assert torch.equal(prototypes[0, 1], torch.zeros(3, dtype=torch.float64))


def test_padding_counts_for_nothing() -> None:
    features = draw_features(1, 4, 3)
    weights = torch.tensor([[0.5, 0.5, 0, 0]], dtype=torch.float64)
    prototypes = find_prototypes(features, Examples(features, torch.zeros_like(weights), weights))
    assert torch.allclose(prototypes[0, 0], features[0, :2].mean(0))


def test_a_query_is_anomalous_where_the_origin_is_nearer_than_the_normals() -> None:
    prototypes = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]])
    queries = torch.tensor([[[2.0, 0.0], [1.0, 5.0], [0.5, 0.0]]])
    assert torch.allclose(compare_distances(queries, prototypes), torch.tensor([[-2.0, 0.0, 1.0]]))


@pytest.mark.parametrize("normal_share", [1.0, 0.5])
@pytest.mark.parametrize("norm", NORMS)
def test_meta_gradient_reaches_every_parameter_and_agrees_with_finite_differences(
    tiny_splits: TaskSplits, normal_share: float, norm: str, slopes_of: Callable
) -> None:
    learner = build(NetworkSettings(filters=(4, 4), norm=norm)).double()  # type: ignore[arg-type]
    slopes = slopes_of(learner, draw_episodes(tiny_splits, normal_share))
    assert slopes.keys() == dict(learner.named_parameters()).keys()
    for accumulated, measured in slopes.values():
        assert accumulated == pytest.approx(measured, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_features_of_a_training_batch_are_centred_at_the_origin(tiny_splits: TaskSplits, norm: str) -> None:
    learner = build(NetworkSettings(filters=(8, 8), norm=norm))  # type: ignore[arg-type]
    episodes = draw_episodes(tiny_splits)
    with torch.no_grad():
        support, query = learner.embedding.embed_episodes(episodes.support.inputs, episodes.query.inputs)
    together = torch.cat([support, query], dim=1).flatten(0, 1)
    assert together.mean(0).abs().max() < 1e-5
    assert together.std(0, correction=0).max() < 1.01


@pytest.mark.parametrize("norm", NORMS)
def test_the_normal_prototype_does_not_vanish_under_any_norm(tiny_splits: TaskSplits, norm: str) -> None:
    """Statistics of a one-class support in the last norm would move its mean, the prototype, onto the origin."""
    learner = build(NetworkSettings(filters=(8, 8), norm=norm, norm_place="last"))  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(learner.parameters(), 0.01)
    for number in range(20):
        optimizer.zero_grad()
        learner.accumulate_gradient(draw_episodes(tiny_splits, number=number))
        optimizer.step()
    normal, absent = learner.adapt(draw_episodes(tiny_splits).support).prototypes.unbind(1)
    assert normal.square().mean() > 0.01
    assert torch.equal(absent, torch.zeros_like(absent))


@pytest.mark.parametrize("norm", NORMS)
def test_a_score_depends_on_no_other_query_and_on_no_mode(tiny_splits: TaskSplits, norm: str) -> None:
    learner = build(NetworkSettings(filters=(8, 8), norm=norm))  # type: ignore[arg-type]
    episodes = draw_episodes(tiny_splits)
    learner.accumulate_gradient(episodes)
    before = copy.deepcopy(learner.state_dict())
    learner.train()
    scorer = learner.adapt(episodes.support)
    logits = scorer(episodes.query.inputs)
    assert logits.shape == (3, 8)
    assert torch.allclose(scorer(episodes.query.inputs[:, 2:3]), logits[:, 2:3], atol=1e-5)
    one = learner.adapt(episodes.support[1:2])(episodes.query.inputs[1:2])
    assert torch.allclose(one, logits[1:2], atol=1e-5)
    learner.eval()
    assert torch.equal(learner.adapt(episodes.support)(episodes.query.inputs), logits)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())


def test_only_meta_training_moves_the_running_averages(tiny_splits: TaskSplits) -> None:
    learner = build()
    episodes = draw_episodes(tiny_splits)
    assert learner.embedding.centre is not None
    start = learner.embedding.centre.running_mean.clone()
    learner.train()
    learner.adapt(episodes.support)(episodes.query.inputs)
    assert torch.equal(learner.embedding.centre.running_mean, start)
    learner.accumulate_gradient(episodes)
    assert not torch.equal(learner.embedding.centre.running_mean, start)


@pytest.mark.parametrize("normal_share", [1.0, 0.5])
def test_training_beats_the_initialisation(tiny_splits: TaskSplits, normal_share: float) -> None:
    """In the form it is trained for: judged on new tasks with one-class supports, or with both classes."""
    learner = build()
    optimizer = torch.optim.Adam(learner.parameters(), 0.01)
    loss, accuracy = judge(learner, tiny_splits, normal_share)
    start = copy.deepcopy(dict(learner.named_parameters()))
    for number in range(60):
        optimizer.zero_grad()
        learner.accumulate_gradient(draw_episodes(tiny_splits, normal_share, number))
        optimizer.step()
    trained_loss, trained_accuracy = judge(learner, tiny_splits, normal_share)
    assert trained_loss < 0.6 * loss
    assert trained_accuracy > 0.85
    # With an anomaly in the support this task is solved before any training.
    assert trained_accuracy > accuracy or normal_share < 1
    assert all(not torch.equal(parameter, start[name]) for name, parameter in learner.named_parameters())


def judge(learner: ProtoNet, splits: TaskSplits, normal_share: float) -> tuple[float, float]:
    """Mean loss and accuracy on the validation tasks."""
    sampler = EpisodeSampler(6, 8, normal_share, splits.preparation)
    losses, right = [], []
    with torch.no_grad():
        for number in range(5):
            episodes = sampler.draw_evaluation(splits.validation, splits.plan, number, seed=0)
            logits = learner.adapt(episodes.support)(episodes.query.inputs)
            losses.append(query_loss(logits, episodes.query))
            right.append(((logits > 0) == (episodes.query.labels > 0.5)).float())
    return float(torch.stack(losses).mean()), float(torch.stack(right).mean())
