"""The closed form against a direct computation, its limits, and that training teaches it something."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, PldaSettings
from fewone.learners.plda import PARAMETER_SCALE, Gaussian, Plda, PosteriorScorer, predict, spread_sizes
from fewone.networks import NetworkSettings

SHAPE = (1, 16)
NETWORK = NetworkSettings(filters=(8, 8), norm="running")


def build(seed: int = 0, training_classes: int = 0, **changes: object) -> Plda:
    torch.manual_seed(seed)
    settings = replace(PldaSettings(dimensions=5), **changes)  # type: ignore[arg-type]
    learner = LEARNERS["plda"](settings, NETWORK, SHAPE, training_classes=training_classes)
    assert isinstance(learner, Plda)
    return learner.eval()


def randomized(seed: int = 0, **changes: object) -> Plda:
    """A learner in float64 with nothing at its initial value."""
    learner = build(seed, **changes).double()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return learner


def joint_log_density(points: Tensor, within: Tensor) -> Tensor:
    """log p of examples (n, D) of ONE class with its mean integrated out, by the full joint normal of n values."""
    count = len(points)
    total = points.new_zeros(())
    for values, w in zip(points.T, within, strict=True):
        covariance = w * torch.eye(count, dtype=points.dtype) + (1 - w) * torch.ones(count, count, dtype=points.dtype)
        total = total + MultivariateNormal(torch.zeros(count, dtype=points.dtype), covariance).log_prob(values)
    return total


@pytest.mark.parametrize("count", [0, 1, 2, 10, 100])
def test_predictive_density_is_that_of_the_joint_normal(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    support = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    query = torch.randn(4, generator=generator, dtype=torch.float64)
    within = torch.tensor([0.02, 0.3, 0.7, 0.99], dtype=torch.float64)
    given = joint_log_density(support, within) if count else torch.zeros((), dtype=torch.float64)
    expected = joint_log_density(torch.cat([support, query[None]]), within) - given
    predictive = predict(support.sum(0), torch.tensor([float(count)], dtype=torch.float64), within)
    found = predictive.log_density(query[None])[0]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("anomalies", [0, 1, 3])
def test_logit_is_the_scaled_log_ratio_of_direct_densities(anomalies: int) -> None:
    learner = randomized(seed=anomalies)
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(2, 6, *SHAPE, generator=generator, dtype=torch.float64)
    labels = torch.zeros(2, 6, dtype=torch.float64)
    labels[:, 6 - anomalies :] = 1
    queries = torch.randn(2, 3, *SHAPE, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        found = learner.adapt(Examples.of(inputs, labels))(queries)
        support, points, within = learner.embed(inputs), learner.embed(queries), learner.within()
        concentration = (PARAMETER_SCALE * learner.log_concentration).exp()
        for task in range(2):
            normals, known = support[task, : 6 - anomalies], support[task, 6 - anomalies :]
            scale, bias = learner.scale_and_bias(torch.tensor([6.0 - anomalies], dtype=torch.float64))
            for number, point in enumerate(points[task]):
                log_normal = joint_log_density(torch.cat([normals, point[None]]), within) - joint_log_density(
                    normals, within
                )
                density = concentration * joint_log_density(point[None], within).exp()
                for anomaly in known:
                    pair = joint_log_density(torch.stack([anomaly, point]), within)
                    density = density + (pair - joint_log_density(anomaly[None], within)).exp()
                log_anomalous = (density / (concentration + anomalies)).log()
                expected = scale * (log_anomalous - log_normal) + bias
                torch.testing.assert_close(found[task, number], expected[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_identical_support_points_and_far_queries_give_finite_logits_and_gradients(count: int) -> None:
    learner = build()
    with torch.no_grad():
        learner.within_logit.fill_(-40.0)
    support = torch.ones(1, count, *SHAPE)
    queries = torch.cat([torch.ones(1, 1, *SHAPE), 1e3 * torch.ones(1, 1, *SHAPE)], 1)
    assert learner.adapt(Examples.normals(support))(queries).isfinite().all()
    # As in training, where a scorer is no snapshot.
    normal = torch.ones(1, count)
    logits = PosteriorScorer(learner, learner.embed(support), normal, 1.0 - normal).score(learner.embed(queries))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in learner.parameters())


def test_a_known_anomaly_raises_its_like_and_leaves_the_rest() -> None:
    learner = build(seed=1)
    with torch.no_grad():
        learner.within_logit.fill_(-0.3)
    generator = torch.Generator().manual_seed(3)
    normals = torch.randn(1, 4, *SHAPE, generator=generator)
    anomaly = torch.randn(1, 1, *SHAPE, generator=generator)
    other = torch.randn(1, 1, *SHAPE, generator=generator)
    labels = torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]])
    with torch.no_grad():
        # Untrained running averages do not give unit variance: take them from data first.
        learner.last_norm.running_mean.copy_(learner.projection(learner.embedding(normals[0])[0]).mean(0))
        learner.last_norm.running_variance.copy_(learner.projection(learner.embedding(normals[0])[0]).var(0))
        without = learner.adapt(Examples.normals(normals))
        with_one = learner.adapt(Examples.of(torch.cat([normals, anomaly], 1), labels))
        assert with_one(anomaly) > without(anomaly)
        # At most the prior weight of a new class is lost: c / (c + 1) of the density, here a half.
        lost = (without(other) - with_one(other)) / with_one.scale
        assert lost <= torch.log(torch.tensor(2.0)) + 1e-5


def test_support_without_normals_scores_by_the_prior() -> None:
    """No normal known: p(q | normal) is that of any class, so only the known anomalies speak, each for its like."""
    learner = randomized()
    support = torch.randn(1, 2, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scorer = learner.adapt(Examples.of(support, torch.ones(1, 2, dtype=torch.float64)))
    prior = MultivariateNormal(torch.zeros(5, dtype=torch.float64), torch.eye(5, dtype=torch.float64))
    with torch.no_grad():
        latent = learner.embed(support)
        expected = scorer.scale * (scorer._anomalous(latent) - prior.log_prob(latent)) + scorer.bias
        torch.testing.assert_close(scorer(support), expected)


def test_a_query_does_not_see_the_other_queries_even_in_training_mode() -> None:
    learner = build().train()
    generator = torch.Generator().manual_seed(0)
    support = Examples.normals(torch.randn(2, 3, *SHAPE, generator=generator))
    queries = torch.randn(2, 4, *SHAPE, generator=generator)
    scorer = learner.adapt(support)
    torch.testing.assert_close(scorer(queries)[:, :1], scorer(queries[:, :1]))


def test_sizes_cover_one_to_the_largest() -> None:
    assert spread_sizes(10, 10).tolist() == list(range(10, 0, -1))
    assert spread_sizes(4, 10).tolist() == [10, 7, 4, 1]
    assert spread_sizes(1, 10).tolist() == [10]


def class_batch(number: int, classes: int = 6, examples: int = 6) -> ClassBatch:
    """Classes are random directions; examples are noisy copies of them."""
    generator = torch.Generator().manual_seed(number)
    centres = torch.randn(20, 1, *SHAPE, generator=torch.Generator().manual_seed(99))
    chosen = torch.randperm(20, generator=generator)[:classes]
    return ClassBatch(centres[chosen] + 0.7 * torch.randn(classes, examples, *SHAPE, generator=generator), chosen)


def episodes_of(batch: ClassBatch) -> Episodes:
    """The first class of a pair is normal, the second anomalous; three of each are judged."""
    normal, other = batch.inputs[::2], batch.inputs[1::2]
    query = torch.cat([normal[:, 3:], other[:, 3:]], 1)
    labels = torch.cat([torch.zeros(3, 3), torch.ones(3, 3)], 1)
    rows = torch.zeros(3, 3, dtype=torch.int64)
    return Episodes((), Examples.normals(normal[:, :3]), Examples.of(query, labels), rows, rows)


@pytest.mark.parametrize("kind", ["classes", "episodes"])
def test_training_lowers_the_loss_and_moves_every_parameter(kind: str) -> None:
    learner = build(batch=kind, training_classes=20).train()
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}
    optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-2)
    losses = []
    for number in range(200):
        batch = class_batch(number)
        optimizer.zero_grad()
        losses.append(float(learner.accumulate_gradient(batch if kind == "classes" else _episodes(batch))))
        optimizer.step()
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    unmoved = [name for name, value in learner.named_parameters() if torch.equal(value, before[name])]
    assert unmoved == ["log_concentration"], "only the weight of known anomalies, of which there were none"


def _episodes(batch: ClassBatch) -> Episodes:
    episodes = episodes_of(batch)
    return Episodes((None,) * 3, episodes.support, episodes.query, episodes.support_rows, episodes.query_rows)  # type: ignore[arg-type]


def test_the_class_loss_is_the_mean_over_tasks_adapted_one_by_one() -> None:
    """Without batch statistics the batch of classes equals adapting and judging every class on its own."""
    torch.manual_seed(0)
    settings = PldaSettings(dimensions=5, batch="classes", largest_support=4)
    learner = LEARNERS["plda"](settings, NetworkSettings(filters=(8, 8)), SHAPE)
    assert isinstance(learner, Plda)
    batch = class_batch(0)
    learner.last_norm.momentum = 1.0
    loss = learner.accumulate_gradient(batch)  # leaves the batch's own statistics as running averages
    number = batch.inputs.shape[0] * batch.inputs.shape[1]
    learner.last_norm.running_variance.mul_((number - 1) / number)
    losses = []
    for own, size in enumerate(spread_sizes(6, 4).tolist()):
        scorer = learner.adapt(Examples.normals(batch.inputs[own : own + 1, :size]))
        normals = scorer(batch.inputs[own : own + 1, size:])
        others = torch.cat([batch.inputs[:own], batch.inputs[own + 1 :]]).flatten(0, 1)[None]
        losses.append(
            0.5 * torch.nn.functional.softplus(normals).mean()
            + 0.5 * torch.nn.functional.softplus(-scorer(others)).mean()
        )
    torch.testing.assert_close(loss, torch.stack(losses).mean().detach(), rtol=1e-4, atol=1e-5)


def test_wrong_use_is_told_in_one_line() -> None:
    with pytest.raises(FewoneError, match='"running" or "none"'):
        LEARNERS["plda"](LEARNERS["plda"].choose(), NetworkSettings(filters=(8,), norm="support"), SHAPE)
    with pytest.raises(FewoneError, match="at least 2"):
        build(batch="classes").accumulate_gradient(class_batch(0, classes=1))


def test_log_density_of_a_gaussian_matches_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, variance = torch.randn(3, 5, generator=generator), torch.rand(3, 5, generator=generator) + 0.1
    points = torch.randn(3, 4, 5, generator=generator)
    expected = torch.distributions.Normal(mean[:, None], variance.sqrt()[:, None]).log_prob(points).sum(-1)
    torch.testing.assert_close(Gaussian(mean, variance).log_density(points), expected, rtol=1e-5, atol=1e-5)
