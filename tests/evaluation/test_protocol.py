"""The protocol: fixed episodes, flat batches, one decision per run."""

from dataclasses import astuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fewone.episodes import EvaluationProtocol, Examples, RowPool, Store, Task
from fewone.errors import FewoneError
from fewone.evaluation import METRICS, evaluate, measure
from fewone.learners import Scorer
from fewone.sampling import EpisodeSampler


class DistanceScorer(Scorer):
    def __init__(self, centre: Tensor, radius: float) -> None:
        super().__init__()
        self.centre, self.radius = centre, radius

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.centre[:, None]).flatten(2).norm(dim=-1) - self.radius


class Centroid(nn.Module):
    """Distance to the support's mean: enough of a learner to be judged."""

    def __init__(self, radius: float = 2.0) -> None:
        super().__init__()
        self.radius = radius
        self.supports: list[Examples] = []

    def adapt(self, support: Examples) -> Scorer:
        assert not self.training
        self.supports.append(support)
        return DistanceScorer(support.inputs.mean(1), self.radius)


def make_tasks(count: int = 5, ragged: bool = False) -> list[Task]:
    generator = torch.Generator().manual_seed(0)
    sizes = [(20 + (5 * number if ragged else 0), 15 + (3 * number if ragged else 0)) for number in range(count)]
    total = sum(normals + anomalies for normals, anomalies in sizes)
    store = Store(torch.randn(total, 1, 4, generator=generator))
    tasks, start = [], 0
    for number, (normals, anomalies) in enumerate(sizes):
        normal, anomalous = (
            torch.arange(start, start + normals),
            torch.arange(start + normals, start + normals + anomalies),
        )
        store.values[normal] += number
        store.values[anomalous] += number + 1.5
        tasks.append(Task(f"task-{number}", RowPool(store, normal), RowPool(store, anomalous)))
        start += normals + anomalies
    return tasks


SAMPLER = EpisodeSampler(support_size=4, query_size=4)


@pytest.mark.parametrize("plan", [EvaluationProtocol(3, 8, 8), EvaluationProtocol(3, None, None)])
def test_the_result_does_not_depend_on_the_batch_sizes(plan: EvaluationProtocol) -> None:
    tasks = make_tasks(ragged=plan.normals is None)
    one = evaluate(Centroid(), tasks, plan, SAMPLER, seed=1, batch_tasks=1, batch_examples=1)
    for batch_tasks, batch_examples in ((2, 7), (5, 1000), (100, 3)):
        other = evaluate(Centroid(), tasks, plan, SAMPLER, 1, batch_tasks, batch_examples)
        assert other.examples.units == one.examples.units
        assert other.examples.episodes == one.examples.episodes == 15
        for name in METRICS:
            assert getattr(other.examples, name) == pytest.approx(getattr(one.examples, name), abs=1e-6)


def test_values_per_unit_are_means_over_its_adaptation_sets() -> None:
    tasks, plan = make_tasks(), EvaluationProtocol(3, 8, 6)
    found = evaluate(Centroid().eval(), tasks, plan, SAMPLER, seed=1).examples
    for position, task in enumerate(tasks):
        accuracies = []
        for number in range(3):
            episodes = SAMPLER.draw_evaluation([task], plan, number, seed=1)
            scorer = Centroid().eval().adapt(episodes.support)
            query = episodes.query
            accuracies.append(measure(scorer(query.inputs), query.labels, query.weights).accuracy.item())
        assert found.accuracy[position] == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert found.units == tuple(task.name for task in tasks)


def test_the_support_is_one_class_unless_a_share_is_given() -> None:
    learner = Centroid()
    evaluate(learner, make_tasks(), EvaluationProtocol(1, 4, 4), SAMPLER, seed=0)
    assert all(support.labels.sum() == 0 for support in learner.supports)
    balanced = Centroid()
    evaluate(balanced, make_tasks(), EvaluationProtocol(1, 4, 4), EpisodeSampler(4, 4, normal_share=0.5), seed=0)
    assert all(bool((support.labels.sum(-1) == 2).all()) for support in balanced.supports)


def test_another_seed_draws_other_episodes_and_the_mode_is_put_back() -> None:
    learner = Centroid().train()
    first = evaluate(learner, make_tasks(), EvaluationProtocol(2, 8, 8), SAMPLER, seed=0)
    second = evaluate(learner, make_tasks(), EvaluationProtocol(2, 8, 8), SAMPLER, seed=1)
    assert learner.training
    assert astuple(first.examples) != astuple(second.examples)
    assert first.seconds > 0 and first.cpu_seconds > 0 and first.runs is None


def make_recorded_tasks(segments: int, good: int, bad: int) -> list[Task]:
    """One operation of `segments` tasks; run r of every segment is the same recording r."""
    runs = good + bad
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(segments * runs, 1, 4, generator=generator)
    recording = torch.arange(runs).repeat(segments)
    store = Store(values, recording)
    tasks = []
    for segment in range(segments):
        rows = torch.arange(segment * runs, (segment + 1) * runs)
        store.values[rows[good:]] += 0.4
        tasks.append(Task(f"op/{segment}", RowPool(store, rows[:good]), RowPool(store, rows[good:]), cluster="op"))
    return tasks


@pytest.mark.parametrize("batch_tasks", [1, 4, 6])
def test_a_run_is_decided_once_by_the_mean_over_its_segments(batch_tasks: int) -> None:
    tasks, plan = make_recorded_tasks(segments=6, good=12, bad=4), EvaluationProtocol(2, None, None)
    results = evaluate(Centroid(), tasks, plan, SAMPLER, seed=3, batch_tasks=batch_tasks)
    assert results.examples.units == ("op",) and results.examples.episodes == 12
    assert results.runs is not None and results.runs.units == ("op",) and results.runs.episodes == 2
    accuracies, aurocs = [], []
    for number in range(2):
        episodes = SAMPLER.draw_evaluation(tasks, plan, number, seed=3)
        logits = Centroid().eval().adapt(episodes.support)(episodes.query.inputs)
        recordings = tasks[0].normal.store.recording[episodes.query_rows]
        runs = sorted(set(recordings.flatten().tolist()))
        assert len(runs) == 12 - 4 + 4
        means = torch.tensor([[logits[recordings == run].mean().item() for run in runs]])
        labels = torch.tensor([[float(run >= 12) for run in runs]])
        judged = measure(means, labels, torch.full_like(labels, 1 / len(runs)))
        accuracies.append(judged.accuracy.item())
        aurocs.append(judged.auroc.item())
    assert results.runs.accuracy[0] == pytest.approx(np.mean(accuracies), abs=1e-6)
    assert results.runs.auroc[0] == pytest.approx(np.mean(aurocs), abs=1e-6)


def test_scores_that_are_not_numbers_name_the_task() -> None:
    with pytest.raises(FewoneError, match="task task-0, adaptation set 0: the scores are not finite"):
        evaluate(Centroid(float("nan")), make_tasks(), EvaluationProtocol(1, 4, 4), SAMPLER, seed=0)
    with pytest.raises(FewoneError, match="no task"):
        evaluate(Centroid(), [], EvaluationProtocol(1, 4, 4), SAMPLER, seed=0)
