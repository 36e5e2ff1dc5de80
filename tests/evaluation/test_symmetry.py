"""Equation 5 where both sides are known, and where only chance makes them differ."""

from __future__ import annotations

import pytest
import torch

from fewone.episodes import Examples, RowPool, Store, Task
from fewone.errors import FewoneError
from fewone.evaluation.symmetry import find_product, measure_symmetry
from fewone.learners import LEARNERS, MetaLearner
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

SAMPLER = EpisodeSampler(4, 4)


def build() -> MetaLearner:
    """Logistic regression: gradient (p - y) x and Hessian p (1 - p) x x', x with a 1 for the bias."""
    torch.manual_seed(0)
    return LEARNERS["maml"](LEARNERS["maml"].choose(), NetworkSettings(architecture="identity"), (1, 3)).double()


def make_tasks(noise: float, count: int = 6) -> list[Task]:
    generator = torch.Generator().manual_seed(1)
    tasks = []
    for number in range(count):
        normal, anomalous = torch.randn(2, 1, 1, 3, generator=generator, dtype=torch.float64).unbind()
        spread = noise * torch.randn(40, 1, 3, generator=generator, dtype=torch.float64)
        store = Store(torch.cat([normal.expand(20, 1, 3), anomalous.expand(20, 1, 3)]) + spread)
        rows = torch.arange(40)
        tasks.append(Task(f"task {number}", RowPool(store, rows[:20]), RowPool(store, rows[20:])))
    return tasks


def write_out(learner: MetaLearner, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """H1 g2 and H2 g1 of K times the one normal against a balanced batch of the one normal and the one anomaly."""
    head = learner.classifier.head
    gradients, hessians = [], []
    for pool, label in ((task.normal, 0.0), (task.anomalous, 1.0)):
        x = torch.cat(
            [pool.store.values[pool.rows()[0]].flatten().float().double(), torch.ones(1, dtype=torch.float64)]
        )
        p = torch.sigmoid(x[:3] @ head.weight[0] + head.bias)[0].detach()
        gradients.append((p - label) * x)
        hessians.append(p * (1 - p) * torch.outer(x, x))
    balanced_gradient, balanced_hessian = sum(gradients) / 2, sum(hessians) / 2
    return hessians[0] @ balanced_gradient, balanced_hessian @ gradients[0]


def test_hessian_times_gradient_is_that_of_logistic_regression() -> None:
    learner, (task, *_) = build(), make_tasks(0.0)
    normal = task.normal.store.values[:1].float().double()
    anomalous = task.normal.store.values[-1:].float().double()
    ones = Examples.of(normal[None], torch.zeros(1, 1, dtype=torch.float64))[0]
    both = Examples.of(torch.cat([normal, anomalous])[None], torch.tensor([[0.0, 1.0]], dtype=torch.float64))[0]
    first, second = write_out(learner, task)
    torch.testing.assert_close(find_product(learner.classifier, ones, both), first)
    torch.testing.assert_close(find_product(learner.classifier, both, ones), second)


def test_where_both_sides_are_known_their_difference_is_found() -> None:
    """Without noise every pair of a task is the same: the expectation is over tasks alone."""
    learner, tasks = build().float(), make_tasks(0.0)
    known = [write_out(learner.double(), task) for task in tasks]
    first, second = (torch.stack(side) for side in zip(*known, strict=True))
    found = measure_symmetry(learner.float(), tasks, SAMPLER, 1.0, pairs=2, seed=0)

    def squared_length(vectors: torch.Tensor) -> float:
        products = vectors @ vectors.T
        return float((products.sum() - products.trace()) / (len(vectors) * (len(vectors) - 1)))

    expected = squared_length(first - second) / squared_length(first + second)
    assert found.difference.mean == pytest.approx(expected, rel=1e-4)
    cosine = torch.cosine_similarity(first.mean(0), second.mean(0), dim=0)
    assert found.cosine == pytest.approx(float(cosine), rel=1e-4)
    balanced = measure_symmetry(learner, tasks, SAMPLER, 0.5, pairs=2, seed=0)
    assert balanced.difference.mean == pytest.approx(0, abs=1e-9) and balanced.cosine == pytest.approx(1)


def test_with_noise_the_same_share_is_equal_within_its_interval_and_another_is_not() -> None:
    learner, tasks = build().float(), make_tasks(0.5, count=12)
    same = measure_symmetry(learner, tasks, SAMPLER, 0.5, pairs=30, seed=0).difference
    other = measure_symmetry(learner, tasks, SAMPLER, 1.0, pairs=30, seed=0).difference
    assert same.low is not None and same.high is not None and same.low <= 0 <= same.high
    assert abs(same.mean) < 0.02 < other.mean
    assert same.units == 12


def test_an_expectation_over_two_tasks_is_refused() -> None:
    with pytest.raises(FewoneError, match="at least 3"):
        measure_symmetry(build(), make_tasks(0.1)[:2], SAMPLER, 1.0, pairs=1, seed=0)
