"""What every baseline must do, run over the whole table."""

import copy

import pytest
import torch

from fewone.baselines import BASELINES
from fewone.episodes import ClassBatch, Examples
from fewone.errors import FewoneError
from fewone.learners import LearnerSettings, MetaLearner
from fewone.networks import NetworkSettings

SERIES, IMAGE = (2, 32), (1, 8, 8)
ONE_LINERS = {"max-diff", "energy", "log-fft-nn", "rocket-nn"}
CASES = [(name, SERIES) for name in BASELINES] + [(name, IMAGE) for name in BASELINES if name not in ONE_LINERS]


def build(name: str, shape: tuple[int, ...], norm: str = "support") -> MetaLearner:
    torch.manual_seed(0)
    network = NetworkSettings(filters=(4, 4), norm=norm, kernels=32)  # type: ignore[arg-type]
    settings = LearnerSettings(inner_rate=0.1, inner_steps=3, training_tasks=3)
    return BASELINES[name](settings, network, shape).eval()


def draw(tasks: int, count: int, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(tasks, count, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_score_depends_on_its_query_and_its_task_alone(name: str, shape: tuple[int, ...]) -> None:
    learner = build(name, shape)
    support, queries = Examples.normals(draw(3, 5, shape)), draw(3, 8, shape, seed=1)
    together = learner.adapt(support)(queries)
    assert together.shape == (3, 8) and together.isfinite().all()
    for task in range(3):
        scorer = learner.adapt(support[task : task + 1])
        for query in range(8):
            alone = scorer(queries[task : task + 1, query : query + 1])
            torch.testing.assert_close(alone[0, 0], together[task, query], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_order_of_the_support_does_not_matter(name: str, shape: tuple[int, ...]) -> None:
    learner = build(name, shape)
    inputs, queries = draw(2, 6, shape), draw(2, 8, shape, seed=1)
    there = learner.adapt(Examples.normals(inputs))(queries)
    back = learner.adapt(Examples.normals(inputs.flip(1)))(queries)
    torch.testing.assert_close(there, back, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_adapting_leaves_learner_and_support_as_they_were(name: str, shape: tuple[int, ...]) -> None:
    learner = build(name, shape).train()
    support = Examples.normals(draw(2, 5, shape))
    before, inputs = copy.deepcopy(learner.state_dict()), support.inputs.clone()
    learner.adapt(support)(draw(2, 8, shape, seed=1))
    assert torch.equal(support.inputs, inputs) and learner.training
    for key, value in learner.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_one_or_two_normals_are_enough_and_may_be_identical(name: str, shape: tuple[int, ...], count: int) -> None:
    learner = build(name, shape)
    queries = draw(2, 4, shape, seed=1)
    for inputs in (draw(2, count, shape), draw(2, 1, shape).expand(2, count, *shape), torch.zeros(2, count, *shape)):
        assert learner.adapt(Examples.normals(inputs))(queries).isfinite().all()


SHALLOW = [name for name in BASELINES if name not in ("fb", "mtl", "mtl-all-layers", "no-support")]


@pytest.mark.parametrize("name", SHALLOW)
def test_shallow_methods_leave_the_supports_anomalies_aside(name: str) -> None:
    learner = build(name, SERIES)
    inputs, queries = draw(2, 4, SERIES), draw(2, 8, SERIES, seed=1)
    labels = torch.tensor([[0.0, 0, 0, 0, 1, 1]] * 2)
    mixed = Examples.of(torch.cat([inputs, 5 + draw(2, 2, SERIES, seed=2)], 1), labels)
    torch.testing.assert_close(learner.adapt(mixed)(queries), learner.adapt(Examples.normals(inputs))(queries))
    with pytest.raises(FewoneError, match="without a normal"):
        learner.adapt(Examples.of(inputs, torch.ones(2, 4)))


@pytest.mark.parametrize("name", [name for name in SHALLOW if "+" not in name])
def test_shallow_methods_say_that_there_is_nothing_to_train(name: str) -> None:
    learner = build(name, SERIES)
    assert not list(learner.parameters())
    with pytest.raises(FewoneError, match="nothing to train"):
        learner.accumulate_gradient(ClassBatch(draw(2, 2, SERIES), torch.arange(2)))


@pytest.mark.parametrize("name", sorted(ONE_LINERS))
def test_one_liners_refuse_images(name: str) -> None:
    with pytest.raises(FewoneError, match="series"):
        build(name, IMAGE)


@pytest.mark.parametrize(
    "name", ["oc-svm", "iforest", "knn", "mahalanobis", "max-diff", "energy", "log-fft-nn", "rocket-nn"]
)
def test_every_shallow_method_ranks_gross_anomalies_above_normals(name: str) -> None:
    time = torch.arange(64) / 4
    phases = torch.rand(30, 1, 1, generator=torch.Generator().manual_seed(0))
    waves = torch.sin(time + phases).expand(30, 2, 64) + 0.05 * draw(1, 30, (2, 64))[0]
    broken = waves.clone()
    broken[20:, :, 20:40] += 3 * draw(1, 10, (2, 20), seed=3)[0]
    learner = BASELINES[name](LearnerSettings(), NetworkSettings(kernels=64), (2, 64))
    scores = learner.adapt(Examples.normals(waves[None, :10]))(broken[None, 10:])[0]
    auroc = (scores[:10, None] < scores[10:]).float().mean()
    # The forest sees the normals' principal components alone, and most of the damage is at right angles to them.
    assert auroc >= (0.7 if name == "iforest" else 0.98)
