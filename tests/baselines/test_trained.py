"""The baselines that learn by gradient: what they are taught, and that it moves them."""

import copy

import pytest
import torch
import torch.nn.functional as F

from fewone.baselines import BASELINES
from fewone.baselines.finetuned import FineTuned, label_classes
from fewone.baselines.multitask import MultiTask
from fewone.baselines.no_support import NoSupport
from fewone.baselines.random_convolution import PooledConvolutions
from fewone.baselines.shallow import ShallowLearner
from fewone.episodes import ClassBatch, Episodes, Examples, RowPool, Store, Task, generator_for
from fewone.errors import FewoneError
from fewone.learners import MetaLearner
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

SHAPE = (1, 16)


def make_tasks(count: int = 4) -> list[Task]:
    """Task i: normals around i, anomalies around i + 2 with a spike."""
    generator = torch.Generator().manual_seed(0)
    store = Store(torch.randn(count * 40, *SHAPE, generator=generator) * 0.3)
    tasks = []
    for number in range(count):
        rows = torch.arange(number * 40, (number + 1) * 40)
        store.values[rows] += number
        store.values[rows[20:], :, 5] += 4
        tasks.append(Task(f"task-{number}", RowPool(store, rows[:20]), RowPool(store, rows[20:])))
    return tasks


def draw(number: int, count: int = 4) -> Episodes:
    return EpisodeSampler(4, 8).draw(make_tasks(), count, generator_for(0, number))


def build(name: str, batch: str = "episodes", norm: str = "none") -> MetaLearner:
    torch.manual_seed(0)
    settings = BASELINES[name].choose(inner_rate=0.1, inner_steps=5, head_width=8, batch=batch)
    return BASELINES[name](settings, NetworkSettings(filters=(4, 4), norm=norm), SHAPE, training_tasks=4)  # type: ignore[arg-type]


def train(learner: MetaLearner, steps: int = 60) -> list[float]:
    optimizer = torch.optim.Adam(learner.parameters(), 0.01)
    learner.train()
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        losses.append(float(learner.accumulate_gradient(draw(step))))
        optimizer.step()
    learner.eval()
    return losses


@pytest.mark.parametrize("name", ["fb", "mtl", "no-support", "fb+oc-svm", "mtl+iforest"])
@pytest.mark.parametrize("norm", ["none", "support"])
def test_training_moves_the_embedding_and_lowers_the_loss(name: str, norm: str) -> None:
    learner = build(name, norm=norm)
    before = copy.deepcopy(learner.state_dict())
    losses = train(learner)
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    moved = [key for key, value in learner.state_dict().items() if not torch.equal(value, before[key])]
    assert any("embedding.blocks.0.weight" in key for key in moved)


def test_the_plain_examples_of_episodes_are_two_classes_per_task() -> None:
    episodes = draw(0)
    inputs, truth, weights = label_classes(episodes)
    assert inputs.shape == (4 * 12, *SHAPE) and float(weights.sum()) == pytest.approx(1)
    assert episodes.task_index is not None
    for position, number in enumerate(episodes.task_index.tolist()):
        own = truth.view(4, 12)[position]
        assert own[:8].tolist() == [2 * number] * 8 and own[8:].tolist() == [2 * number + 1] * 4
        assert episodes.tasks[position].name == f"task-{number}"


def test_padding_has_no_weight_among_the_plain_examples() -> None:
    episodes = draw(0)
    query = episodes.query
    weights = query.weights.clone()
    weights[:, -2:] = 0
    padded = Episodes(
        episodes.tasks,
        episodes.support,
        Examples(query.inputs, query.labels, weights),
        episodes.support_rows,
        episodes.query_rows,
        episodes.task_index,
    )
    assert label_classes(padded)[2].view(4, 12)[:, -2:].sum() == 0


def test_fb_is_a_softmax_over_the_training_classes() -> None:
    learner = build("fb", batch="classes")
    assert isinstance(learner, FineTuned) and learner.batch == "classes"
    inputs = torch.randn(3, 5, *SHAPE, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([2, 0, 3])
    loss = learner.accumulate_gradient(ClassBatch(inputs, index))
    logits = learner.classes(learner.embedding(inputs.flatten(0, 1))[0])
    torch.testing.assert_close(loss, F.cross_entropy(logits, index.repeat_interleave(5)).detach())
    with pytest.raises(FewoneError, match="build it for their number"):
        learner.accumulate_gradient(ClassBatch(inputs, torch.tensor([2, 0, 4])))


def test_each_task_trains_its_own_head_in_mtl() -> None:
    learner = build("mtl")
    assert isinstance(learner, MultiTask)
    episodes = EpisodeSampler(4, 8).draw(make_tasks()[:2], 2, generator_for(0))
    loss = learner.accumulate_gradient(episodes)
    touched = learner.heads.weight.grad.flatten(1).abs().sum(-1) > 0  # type: ignore[union-attr]
    assert touched.tolist() == [True, True, False, False]
    expected = []
    assert episodes.task_index is not None
    for position, number in enumerate(episodes.task_index.tolist()):
        features = learner.embedding(episodes.query.inputs[position])[0]
        hidden = F.relu(features @ learner.heads.hidden_weight[number] + learner.heads.hidden_bias[number])
        logits = (hidden @ learner.heads.weight[number] + learner.heads.bias[number]).flatten()
        expected.append(F.binary_cross_entropy_with_logits(logits, episodes.query.labels[position]))
    torch.testing.assert_close(loss, torch.stack(expected).mean().detach())


@pytest.mark.parametrize(("name", "all_layers"), [("fb", True), ("mtl", False), ("mtl-all-layers", True)])
def test_fine_tuning_is_plain_sgd_from_the_same_new_head(name: str, all_layers: bool) -> None:
    """FB adapts everything, MTL the new head alone, its variant everything."""
    learner = build(name)
    assert isinstance(learner, FineTuned | MultiTask)
    support = Examples.of(
        torch.randn(1, 4, *SHAPE, generator=torch.Generator().manual_seed(0)), torch.tensor([[0.0, 0, 1, 1]])
    )
    embedding = copy.deepcopy(learner.embedding)
    head = torch.nn.Linear(embedding.width, 1)
    torch.nn.init.zeros_(head.bias)
    head.weight.data.copy_(learner.tuning.weight)
    optimizer = torch.optim.SGD([*head.parameters(), *(embedding.parameters() if all_layers else ())], 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        logits = head(embedding(support.inputs[0])[0]).squeeze(-1)
        F.binary_cross_entropy_with_logits(logits, support.labels[0]).backward()
        optimizer.step()
    queries = torch.randn(1, 6, *SHAPE, generator=torch.Generator().manual_seed(1))
    expected = head(embedding(queries[0])[0]).squeeze(-1)
    torch.testing.assert_close(learner.adapt(support)(queries)[0], expected.detach(), rtol=1e-4, atol=1e-5)
    learner.tuning.choose(20)
    assert not torch.allclose(learner.adapt(support)(queries)[0], expected.detach())


def test_the_control_gives_the_same_scores_whatever_the_support() -> None:
    learner = build("no-support", norm="support")
    train(learner, steps=20)
    assert isinstance(learner, NoSupport)
    queries = torch.randn(2, 6, *SHAPE, generator=torch.Generator().manual_seed(1))
    one = learner.adapt(Examples.normals(torch.zeros(2, 3, *SHAPE)))(queries)
    two = learner.adapt(Examples.normals(torch.ones(2, 5, *SHAPE)))(queries)
    assert torch.equal(one, two)


def test_training_on_leaves_an_adapted_scorer_as_it_was() -> None:
    learner = build("no-support")
    queries = torch.randn(1, 6, *SHAPE, generator=torch.Generator().manual_seed(1))
    scorer = learner.adapt(Examples.normals(torch.zeros(1, 3, *SHAPE)))
    before = scorer(queries)
    train(learner, steps=5)
    assert torch.equal(scorer(queries), before)


def test_the_pooled_scale_is_the_deviation_within_tasks() -> None:
    learner = build("rocket-nn")
    assert isinstance(learner, ShallowLearner) and isinstance(learner.features, PooledConvolutions)
    convolution = learner.features.convolution
    variances = []
    for number in range(3):
        episodes = draw(number)
        learner.observe(episodes)
        for task in range(4):
            normals = torch.cat([episodes.support.inputs[task], episodes.query.inputs[task][:4]])
            variances.append(convolution(normals)[0].double().var(0))
    deviation = torch.stack(variances).mean(0).sqrt()
    expected = deviation.clamp_min(float(0.1 * deviation.median()))
    inputs = torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(learner.features(inputs), convolution(inputs)[0] / expected.float())
