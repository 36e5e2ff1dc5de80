"""What holds for everything that adapts, learners and baselines alike, in single precision, as it is used."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from fewone.baselines import BASELINES
from fewone.episodes import ClassBatch, Episodes, Examples, RowPool, Store, Task, TaskSplits, generator_for
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, MetaLearner, query_loss
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

SERIES, IMAGE = (2, 32), (1, 8, 8)
ALGORITHMS = LEARNERS | BASELINES
GRADIENT_BASED = tuple(name for name, entry in ALGORITHMS.items() if entry.gradient_based)
FOR_SERIES = ("evidence", *(name for name, entry in ALGORITHMS.items() if entry.series_only))
FITTED = tuple(name for name in BASELINES if name not in ("fb", "mtl", "mtl-all-layers", "no-support"))
"""They fit the normals of each support and have no use for known anomalies."""
UNTRAINED = tuple(name for name in FITTED if "+" not in name)


def _norms(name: str) -> tuple[str, ...]:
    return ("none", "support") if name in GRADIENT_BASED else ("running",)


CASES = [
    (name, norm, shape)
    for name in ALGORITHMS
    for norm in _norms(name)
    for shape in ((SERIES,) if name in FOR_SERIES else (SERIES, IMAGE))
]
TRAINED = [(name, norm) for name, norm, shape in CASES if name not in UNTRAINED and shape == SERIES]
# First-order methods and Reptile do not teach one-class adaptation, in the paper and here; what is fitted or fine-tuned
# learns its embedding otherwise, and the control learns without the support.
LEARN_ONE_CLASS = [case for case in TRAINED if case[0] in LEARNERS and case[0] not in ("fomaml", "foanil", "reptile")]

everything = pytest.mark.parametrize(("name", "norm", "shape"), CASES, ids=lambda value: str(value).replace(" ", ""))


def build(name: str, norm: str, shape: tuple[int, ...]) -> MetaLearner:
    torch.manual_seed(0)
    settings = ALGORITHMS[name].choose(inner_rate=0.1, inner_steps=3, dimensions=8)
    network = NetworkSettings(filters=(8, 8), norm=norm, kernels=32)  # type: ignore[arg-type]
    return ALGORITHMS[name](settings, network, shape, training_tasks=3).eval()


def draw(shape: tuple[int, ...], support: int = 6, query: int = 8, tasks: int = 3, anomalies: int = 0) -> Episodes:
    """One-class supports unless anomalies are asked for; anomalies carry a step in the second half."""
    generator = generator_for(0, "everything that adapts")
    inputs = torch.randn(tasks, support + query, *shape, generator=generator)
    inputs += torch.randn(tasks, 1, *shape, generator=generator)
    support_labels = (torch.arange(support) >= support - anomalies).float()
    labels = torch.cat([support_labels, (torch.arange(query) >= query // 2).float()]).repeat(tasks, 1)
    inputs[..., shape[-1] // 2 :] += 3 * labels.view(tasks, -1, *(1,) * len(shape))
    rows = torch.zeros(tasks, 1, dtype=torch.int64)
    task = Task("made up", *[RowPool(Store(torch.zeros(1, *shape)), torch.zeros(1, dtype=torch.int64))] * 2)
    return Episodes(
        (task,) * tasks,
        Examples.of(inputs[:, :support], labels[:, :support]),
        Examples.of(inputs[:, support:], labels[:, support:]),
        rows.expand(-1, support),
        rows.expand(-1, query),
        torch.arange(tasks),
    )


def train(learner: MetaLearner, iterations: int, anomalies: int) -> list[float]:
    """The loss before each step on one fixed batch. Learners that draw for themselves draw the same every time."""
    batch, losses = draw(SERIES, anomalies=anomalies), []
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


@everything
def test_a_query_is_scored_alone(name, norm, shape):
    learner, episodes = build(name, norm, shape), draw(shape)
    together = score(learner, episodes.support, episodes.query.inputs)
    assert together.shape == (3, 8) and together.isfinite().all()
    scorer = learner.adapt(episodes.support)
    with torch.no_grad():
        alone = torch.cat([scorer(episodes.query.inputs[:, n : n + 1]) for n in range(8)], dim=1)
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-4)


@everything
def test_tasks_in_a_batch_are_adapted_as_one_by_one(name, norm, shape):
    learner, episodes = build(name, norm, shape), draw(shape)
    together = score(learner, episodes.support, episodes.query.inputs)
    for task in range(3):
        only = slice(task, task + 1)
        alone = score(learner, episodes.support[only], episodes.query.inputs[only])
        torch.testing.assert_close(alone, together[only], rtol=1e-4, atol=1e-4)


@everything
def test_the_order_of_the_support_does_not_matter(name, norm, shape):
    learner, episodes = build(name, norm, shape), draw(shape)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = Examples.normals(episodes.support.inputs[:, order])
    torch.testing.assert_close(
        score(learner, shuffled, episodes.query.inputs),
        score(learner, episodes.support, episodes.query.inputs),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("training", [False, True])
@everything
def test_adapting_and_scoring_leave_learner_and_support_untouched(name, norm, shape, training):
    learner, episodes = build(name, norm, shape).train(training), draw(shape)
    before, inputs = copy.deepcopy(learner.state_dict()), episodes.support.inputs.clone()
    learner.adapt(episodes.support)(episodes.query.inputs)
    after = learner.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(parameter.grad is None for parameter in learner.parameters())
    assert learner.training == training
    assert torch.equal(episodes.support.inputs, inputs)


@everything
def test_a_scorer_is_a_snapshot_that_stays_when_its_learner_changes(name, norm, shape):
    learner, episodes = build(name, norm, shape), draw(shape)
    scorer = learner.adapt(episodes.support)
    with torch.no_grad():
        before = scorer(episodes.query.inputs).clone()
        for value in learner.state_dict().values():
            value.add_(1)
        learner.train()
        assert torch.equal(scorer(episodes.query.inputs), before)


@everything
def test_scores_tell_queries_apart(name, norm, shape):
    learner, episodes = build(name, norm, shape), draw(shape)
    logits = score(learner, episodes.support, episodes.query.inputs)
    assert (logits.std(dim=1) > 1e-4).all()


@everything
def test_the_support_matters_except_to_the_control(name, norm, shape):
    learner, episodes = build(name, norm, shape), draw(shape)
    other = Examples.normals(episodes.support.inputs.roll(1, 0))
    logits = [score(learner, support, episodes.query.inputs) for support in (episodes.support, other)]
    assert ((logits[0] - logits[1]).abs().max() > 1e-4) == (name != "no-support")


@everything
def test_one_or_two_normals_are_enough_and_may_be_identical(name, norm, shape):
    learner, queries = build(name, norm, shape), draw(shape).query.inputs
    for count in (1, 2):
        inputs = draw(shape).support.inputs[:, :count]
        for normals in (inputs, inputs[:, :1].expand(-1, count, *shape), torch.zeros_like(inputs)):
            assert score(learner, Examples.normals(normals), queries).isfinite().all()


@everything
def test_known_anomalies_in_the_support_are_used_or_left_aside(name, norm, shape):
    """What fits normals says the same without them; to all others their labels matter."""
    learner, episodes = build(name, norm, shape), draw(shape, anomalies=2)
    queries, support = episodes.query.inputs, episodes.support
    mixed = score(learner, support, queries)
    assert mixed.isfinite().all()
    alone = score(learner, Examples.normals(support.inputs[:, :4]), queries)
    all_normal = score(learner, Examples.normals(support.inputs), queries)
    if name in FITTED:
        torch.testing.assert_close(mixed, alone)
    if name != "no-support":
        assert (mixed - all_normal).abs().max() > 1e-5


@pytest.mark.parametrize("name", FITTED)
def test_what_fits_the_normals_refuses_a_support_without_any(name):
    inputs = draw(SERIES).support.inputs
    with pytest.raises(FewoneError, match="without a normal"):
        build(name, "running", SERIES).adapt(Examples.of(inputs, torch.ones(inputs.shape[:2])))


@pytest.mark.parametrize(("name", "norm"), TRAINED)
def test_training_moves_every_parameter_and_lowers_the_objective(name, norm):
    learner = build(name, norm, SERIES)
    before = {key: value.detach().clone() for key, value in learner.named_parameters()}
    losses = train(learner, 25, anomalies=0)
    assert min(losses[-3:]) < 0.9 * losses[0], losses
    # Some parameters say what to do with anomalies in the support.
    train(learner, 2, anomalies=2)
    assert not [key for key, value in learner.named_parameters() if torch.equal(value, before[key])]


@pytest.mark.parametrize("name", UNTRAINED)
def test_what_has_nothing_to_train_says_so(name):
    learner = build(name, "running", SERIES)
    assert not list(learner.parameters())
    with pytest.raises(FewoneError, match="nothing to train"):
        learner.accumulate_gradient(ClassBatch(torch.zeros(2, 2, *SERIES), torch.arange(2)))


@pytest.mark.parametrize("name", [name for name in FOR_SERIES if name != "evidence"])
def test_what_is_for_series_alone_refuses_images(name):
    with pytest.raises(FewoneError, match="series"):
        build(name, "running", IMAGE)


@pytest.mark.parametrize(("name", "norm"), LEARN_ONE_CLASS)
def test_training_beats_the_initialisation_on_new_tasks(name, norm, tiny_splits: TaskSplits):
    learner = build(name, norm, tiny_splits.shape)
    sampler = EpisodeSampler(6, 8, 1.0, tiny_splits.preparation)
    judged = sampler.draw(tiny_splits.test, 2, generator_for(0, "test"))

    def judge() -> tuple[float, float]:
        """Accuracy, and minus the loss: where nothing is left to win by the first, the second must gain."""
        logits = score(learner, judged.support, judged.query.inputs)
        right = (logits > 0) == (judged.query.labels > 0)
        return float(right.float().mean()), -float(query_loss(logits, judged.query))

    before = judge()
    optimizer = torch.optim.Adam(learner.parameters(), 0.01)
    learner.train()
    for iteration in range(60):
        optimizer.zero_grad()
        learner.accumulate_gradient(sampler.draw(tiny_splits.train, 4, generator_for(0, "train", iteration)))
        optimizer.step()
    learner.eval()
    assert judge() > max(before, (0.75, 0.0))
