"""What holds for every learner of the table, in single precision, as it is used."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples, TaskSplits, generator_for
from fewone.learners import LEARNERS, LearnerSettings, MetaLearner
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

SHAPE = (1, 16)
GRADIENT_BASED = ["maml", "fomaml", "anil", "foanil", "metasgd", "reptile"]
CASES = [(name, norm) for name in GRADIENT_BASED for norm in ("none", "support")] + [
    (name, "running") for name in LEARNERS if name not in GRADIENT_BASED
]
# First-order methods and Reptile do not teach one-class adaptation, in the paper and here.
LEARN_ONE_CLASS = [case for case in CASES if case[0] not in ("fomaml", "foanil", "reptile")]

every_learner = pytest.mark.parametrize(("name", "norm"), CASES)


def build(name: str, norm: str) -> MetaLearner:
    torch.manual_seed(0)
    settings = LearnerSettings(inner_rate=0.1, inner_steps=3, dimensions=8)
    return LEARNERS[name](settings, NetworkSettings(filters=(8, 8), norm=norm), SHAPE).eval()


def draw(support: int = 6, query: int = 8, tasks: int = 3, anomalies: int = 0) -> Episodes:
    """One-class supports unless anomalies are asked for; anomalies carry a step."""
    generator = generator_for(0, "every learner")
    inputs = torch.randn(tasks, support + query, *SHAPE, generator=generator)
    inputs += torch.randn(tasks, 1, *SHAPE, generator=generator)
    support_labels = (torch.arange(support) >= support - anomalies).float()
    labels = torch.cat([support_labels, (torch.arange(query) >= query // 2).float()]).repeat(tasks, 1)
    inputs[..., 8:] += 3 * labels.view(tasks, -1, 1, 1)
    rows = torch.zeros(tasks, 1, dtype=torch.int64)
    return Episodes(
        (None,) * tasks,
        Examples.of(inputs[:, :support], labels[:, :support]),
        Examples.of(inputs[:, support:], labels[:, support:]),
        rows.expand(-1, support),
        rows.expand(-1, query),
    )


def training_batch(learner: MetaLearner, anomalies: int) -> Episodes | ClassBatch:
    if learner.batch == "episodes":
        return draw(anomalies=anomalies)
    generator = generator_for(0, "classes")
    centres = 2 * torch.randn(6, 1, *SHAPE, generator=generator)
    return ClassBatch(centres + torch.randn(6, 12, *SHAPE, generator=generator), torch.arange(6))


def train(learner: MetaLearner, iterations: int, anomalies: int) -> list[float]:
    """The loss before each step on one fixed batch. Learners that draw for themselves draw the same every time."""
    batch, losses = training_batch(learner, anomalies), []
    optimizer = torch.optim.Adam(learner.parameters(), 0.01)
    learner.train()
    for _ in range(iterations):
        optimizer.zero_grad()
        torch.manual_seed(0)
        losses.append(float(learner.accumulate_gradient(batch)))
        optimizer.step()
    learner.eval()
    return losses


@torch.no_grad()
def score(learner: MetaLearner, support: Examples, inputs: Tensor) -> Tensor:
    return learner.adapt(support)(inputs)


@every_learner
def test_a_query_is_scored_alone(name, norm):
    learner, episodes = build(name, norm), draw()
    together = score(learner, episodes.support, episodes.query.inputs)
    assert together.shape == (3, 8)
    alone = torch.cat([score(learner, episodes.support, episodes.query.inputs[:, n : n + 1]) for n in range(8)], dim=1)
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-4)


@every_learner
def test_the_order_of_the_support_does_not_matter(name, norm):
    learner, episodes = build(name, norm), draw()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = Examples.normals(episodes.support.inputs[:, order])
    torch.testing.assert_close(
        score(learner, shuffled, episodes.query.inputs),
        score(learner, episodes.support, episodes.query.inputs),
        rtol=1e-4,
        atol=1e-4,
    )


@every_learner
def test_adapting_and_scoring_leave_the_learner_untouched(name, norm):
    learner, episodes = build(name, norm), draw()
    before = copy.deepcopy(learner.state_dict())
    score(learner, episodes.support, episodes.query.inputs)
    after = learner.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(parameter.grad is None for parameter in learner.parameters())


@every_learner
def test_tasks_in_a_batch_are_adapted_as_one_by_one(name, norm):
    learner, episodes = build(name, norm), draw()
    together = score(learner, episodes.support, episodes.query.inputs)
    for task in range(3):
        only = slice(task, task + 1)
        alone = score(learner, episodes.support[only], episodes.query.inputs[only])
        torch.testing.assert_close(alone, together[only], rtol=1e-4, atol=1e-4)


@every_learner
def test_scores_are_not_constant(name, norm):
    learner, episodes = build(name, norm), draw()
    logits = score(learner, episodes.support, episodes.query.inputs)
    assert (logits.std(dim=1) > 1e-4).all()
    assert torch.isfinite(logits).all()


@every_learner
def test_the_support_matters(name, norm):
    learner, episodes = build(name, norm), draw()
    other = Examples.normals(episodes.support.inputs.roll(1, 0))
    logits = [score(learner, support, episodes.query.inputs) for support in (episodes.support, other)]
    assert (logits[0] - logits[1]).abs().max() > 1e-4


@every_learner
def test_training_moves_every_parameter_and_lowers_the_objective(name, norm):
    learner = build(name, norm)
    before = {key: value.detach().clone() for key, value in learner.named_parameters()}
    losses = train(learner, 25, anomalies=0)
    assert min(losses[-3:]) < 0.9 * losses[0], losses
    # Some parameters say what to do with anomalies in the support.
    train(learner, 2, anomalies=2)
    assert not [key for key, value in learner.named_parameters() if torch.equal(value, before[key])]


@every_learner
def test_two_classes_in_the_support_are_welcome(name, norm):
    learner, episodes = build(name, norm), draw()
    labels = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]).expand(3, 6).contiguous()
    logits = score(learner, Examples.of(episodes.support.inputs, labels), episodes.query.inputs)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize(("name", "norm"), LEARN_ONE_CLASS)
def test_training_beats_the_initialisation_on_new_tasks(name, norm, tiny_splits: TaskSplits):
    learner = build(name, norm)
    sampler = EpisodeSampler(6, 8, 1.0, tiny_splits.preparation)
    judged = sampler.draw(tiny_splits.test, 2, generator_for(0, "test"))

    def accuracy() -> float:
        right = (score(learner, judged.support, judged.query.inputs) > 0) == (judged.query.labels > 0)
        return float(right.float().mean())

    before = accuracy()
    optimizer = torch.optim.Adam(learner.parameters(), 0.01)
    learner.train()
    for iteration in range(60):
        optimizer.zero_grad()
        learner.accumulate_gradient(sampler.draw(tiny_splits.train, 4, generator_for(0, "train", iteration)))
        optimizer.step()
    learner.eval()
    assert accuracy() > max(before, 0.75)
