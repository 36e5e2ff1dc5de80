"""The machines against scikit-learn's, and the learner around them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.svm import SVC, OneClassSVM
from torch import Tensor

from fewone.episodes import Episodes, Examples, TaskSplits, generator_for
from fewone.errors import FewoneError
from fewone.evaluation.hyperparameters import select_hyperparameter
from fewone.evaluation.protocol import evaluate
from fewone.evaluation.validation_plan import plan_validation
from fewone.learners import LEARNERS, MetaLearner, MetaOptNetSettings
from fewone.learners.metaoptnet import NUS, Kernel, Machine
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

SETTINGS = MetaOptNetSettings(nu=0.3, penalty=0.5)
NETWORK = NetworkSettings(filters=(4, 4), norm="running")


def build(settings: MetaOptNetSettings = SETTINGS, network: NetworkSettings = NETWORK, seed: int = 0) -> MetaLearner:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LEARNERS["metaoptnet"](settings, network, (1, 16))


def draw_episodes(
    splits: TaskSplits, normal_share: float = 1.0, support: int = 6, number: int = 0, count: int = 3
) -> Episodes:
    sampler = EpisodeSampler(support, 8, normal_share, splits.preparation)
    return sampler.draw(splits.train, count, generator_for(0, "test", number))


def draw_features(tasks: int, size: int, seed: int = 0) -> Tensor:
    """On a grid of eighths, so that libsvm's float32 kernels are exact."""
    values = torch.randn(tasks, size, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (values * 8).round() / 8


def with_ridge(kernel: Tensor) -> np.ndarray:
    return kernel.numpy() + np.eye(kernel.shape[-1])


@pytest.mark.parametrize("size", [2, 5, 12])
@pytest.mark.parametrize("nu", [0.1, 0.5, 0.9])
def test_one_class_support_gives_the_one_class_machine(size: int, nu: float) -> None:
    features, queries = draw_features(20, size), draw_features(20, 7, seed=1)
    kernel, toward = Kernel("linear")(features, features), Kernel("linear")(queries, features)
    fitted = Machine(nu, penalty=1.0, ridge=1.0).fit(kernel, torch.zeros(20, size))
    for task in range(20):
        judge = OneClassSVM(kernel="precomputed", nu=nu, tol=1e-10).fit(with_ridge(kernel[task]))
        theirs = judge.decision_function(toward[task].numpy()) / (nu * size)
        weights = -fitted.coefficients[task]
        if ((weights > 1e-4) & (weights < 1 / (nu * size) - 1e-4)).any():
            assert np.abs(fitted.decide(toward)[task].numpy() + theirs).max() < 1e-6
        else:
            # Without margin vector libsvm takes the middle too, where the interval has two ends.
            assert weights.min() < 1e-6
            assert np.abs(fitted.decide(toward)[task].numpy() + theirs).max() < 1e-6


@pytest.mark.parametrize("penalty", [0.001, 0.1, 10.0])
def test_two_class_support_gives_the_binary_machine(penalty: float) -> None:
    """The smallest box leaves no margin vector: then the bias is the middle of its interval, as in libsvm."""
    features, queries = draw_features(20, 8), draw_features(20, 7, seed=1)
    labels = (torch.arange(8) % 2).expand(20, 8).float()
    kernel, toward = Kernel("linear")(features, features), Kernel("linear")(queries, features)
    fitted = Machine(0.1, penalty, ridge=1.0).fit(kernel, labels)
    for task in range(20):
        judge = SVC(kernel="precomputed", C=penalty, tol=1e-10).fit(with_ridge(kernel[task]), labels[task].numpy())
        theirs = judge.decision_function(toward[task].numpy())
        assert np.abs(fitted.decide(toward)[task].numpy() - theirs).max() < 1e-6
    assert bool((fitted.coefficients.abs() > 0.999 * penalty).all()) == (penalty == 0.001)


def test_rho_without_margin_vector_is_the_similarity_of_the_most_typical_normal() -> None:
    """All weights at their upper bound (nu = 1): every rho from there up is optimal, the least is taken."""
    features = draw_features(3, 5)
    kernel = Kernel("linear")(features, features)
    fitted = Machine(nu=1.0, penalty=1.0, ridge=1.0).fit(kernel, torch.zeros(3, 5))
    similarity = (kernel + torch.eye(5)).mean(-1)
    assert torch.allclose(fitted.bias, similarity.amax(-1))


def test_a_batch_may_mix_supports_of_one_and_of_two_classes() -> None:
    features = draw_features(2, 6)
    labels = torch.tensor([[0.0] * 6, [0.0] * 4 + [1.0] * 2])
    kernel, machine = Kernel("rbf")(features, features), Machine(0.3, 0.5, 1.0)
    together = machine.fit(kernel.detach(), labels)
    for task in range(2):
        alone = machine.fit(kernel[task : task + 1].detach(), labels[task : task + 1])
        assert torch.allclose(together.coefficients[task], alone.coefficients[0], atol=1e-12)
        assert torch.allclose(together.bias[task], alone.bias[0], atol=1e-12)
    assert (together.coefficients[0] <= 0).all()
    assert torch.allclose(together.coefficients.sum(-1), torch.tensor([-1.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_query_far_from_the_normals_scores_higher(kernel: str) -> None:
    normals = draw_features(1, 5) * 0.1 + 1
    queries = torch.cat([torch.ones(1, 1, 8), -torch.ones(1, 1, 8)], dim=1)
    similar = Kernel(kernel)  # type: ignore[arg-type]
    with torch.no_grad():
        fitted = Machine(0.1, 1.0, 0.01).fit(similar(normals, normals), torch.zeros(1, 5))
        near, far = fitted.decide(similar(queries, normals))[0]
    assert far > near
    assert far > 0


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("normal_share", [1.0, 0.5])
@pytest.mark.parametrize("norm", ["none", "support", "running"])
def test_meta_gradient_reaches_every_parameter_and_agrees_with_finite_differences(
    tiny_splits: TaskSplits, kernel: str, normal_share: float, norm: str, slopes_of: Callable
) -> None:
    settings = MetaOptNetSettings(nu=0.3, penalty=0.5, kernel=kernel)  # type: ignore[arg-type]
    learner = build(settings, NetworkSettings(filters=(4, 4), norm=norm)).double()  # type: ignore[arg-type]
    slopes = slopes_of(learner, draw_episodes(tiny_splits, normal_share))
    assert slopes.keys() == dict(learner.named_parameters()).keys()
    for accumulated, measured in slopes.values():
        assert accumulated == pytest.approx(measured, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("norm", ["none", "support", "running"])
def test_a_score_depends_on_no_other_query_and_on_no_mode(tiny_splits: TaskSplits, norm: str) -> None:
    learner = build(network=NetworkSettings(filters=(4, 4), norm=norm))  # type: ignore[arg-type]
    episodes = draw_episodes(tiny_splits)
    learner.accumulate_gradient(episodes)
    before = copy.deepcopy(learner.state_dict())
    learner.train()
    scorer = learner.adapt(episodes.support)
    logits = scorer(episodes.query.inputs)
    assert logits.shape == (3, 8)
    assert logits.dtype == torch.float32
    assert logits.std() > 0
    assert torch.allclose(scorer(episodes.query.inputs[:, 2:3]), logits[:, 2:3], atol=1e-5)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    support = episodes.support
    shuffled = Examples(support.inputs[:, order], support.labels[:, order], support.weights[:, order])
    assert torch.allclose(learner.adapt(shuffled)(episodes.query.inputs), logits, atol=1e-4)
    learner.eval()
    assert torch.equal(learner.adapt(support)(episodes.query.inputs), logits)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())


def test_one_example_and_equal_examples_can_be_a_support(tiny_splits: TaskSplits) -> None:
    learner = build()
    episodes = draw_episodes(tiny_splits)
    single = Examples.normals(episodes.support.inputs[:, :1])
    equal = Examples.normals(episodes.support.inputs[:, :1].expand(-1, 5, -1, -1).clone())
    assert learner.adapt(single)(episodes.query.inputs).isfinite().all()
    assert learner.adapt(equal)(episodes.query.inputs).isfinite().all()


def test_training_one_class_beats_the_initialisation(tiny_splits: TaskSplits) -> None:
    learner = build(MetaOptNetSettings(), NetworkSettings(filters=(32, 32), norm="running"))
    optimizer = torch.optim.Adam(learner.parameters(), 0.003)
    before = measure_accuracy(learner, tiny_splits)
    start = copy.deepcopy(dict(learner.named_parameters()))
    for number in range(50):
        optimizer.zero_grad()
        learner.accumulate_gradient(draw_episodes(tiny_splits, number=number))
        optimizer.step()
    assert measure_accuracy(learner, tiny_splits) > max(0.8, before + 0.1)
    assert all(not torch.equal(parameter, start[name]) for name, parameter in learner.named_parameters())


def measure_accuracy(learner: MetaLearner, splits: TaskSplits) -> float:
    sampler = EpisodeSampler(6, 8, 1.0, splits.preparation)
    with torch.no_grad():
        right = [
            (learner.adapt(e.support)(e.query.inputs) > 0) == (e.query.labels > 0.5)
            for number in range(5)
            for e in [sampler.draw_evaluation(splits.validation, splits.plan, number, seed=0)]
        ]
    return float(torch.stack(right).float().mean())


@pytest.mark.parametrize(
    "settings", [MetaOptNetSettings(nu=0.0), MetaOptNetSettings(nu=1.5), MetaOptNetSettings(penalty=0.0)]
)
def test_settings_without_meaning_are_refused(settings: MetaOptNetSettings) -> None:
    with pytest.raises(FewoneError, match=r"nu is|penalty is"):
        build(settings)


@pytest.mark.parametrize("kernel", ["linear", "cosine", "rbf"])
def test_nu_is_chosen_on_validation_tasks_and_saved_with_the_learner(kernel: str, tiny_splits: TaskSplits) -> None:
    learner = build(MetaOptNetSettings(nu=0.3, kernel=kernel))  # type: ignore[arg-type]
    sampler = EpisodeSampler(6, 8, 1.0, tiny_splits.preparation)
    before = learner.state_dict()["share.nu"].item()
    chosen = select_hyperparameter(learner, tiny_splits.validation, sampler, seed=0)
    assert before == 0.3 and chosen in NUS

    def judge(nu: float) -> tuple[float, float]:
        other = build(MetaOptNetSettings(nu=nu, kernel=kernel))  # type: ignore[arg-type]
        plan = plan_validation(tiny_splits.validation, sampler, sets=60 // len(tiny_splits.validation))
        found = evaluate(other, tiny_splits.validation, plan, sampler, 0).examples.summarize()
        return found.accuracy.mean, found.auroc.mean

    assert judge(chosen) == max(map(judge, NUS))
    again = build(MetaOptNetSettings(nu=0.3, kernel=kernel))  # type: ignore[arg-type]
    again.load_state_dict(learner.state_dict())
    episodes = draw_episodes(tiny_splits)
    scores = learner.adapt(episodes.support)(episodes.query.inputs)
    torch.testing.assert_close(again.adapt(episodes.support)(episodes.query.inputs), scores)


def test_the_cosine_kernel_does_not_see_how_large_a_feature_is() -> None:
    features = draw_features(2, 5)
    sizes = torch.rand(2, 5, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 0.5
    torch.testing.assert_close(Kernel("cosine")(features * sizes, features), Kernel("cosine")(features, features))
    torch.testing.assert_close(
        Kernel("cosine")(features, features).diagonal(dim1=1, dim2=2), torch.ones_like(sizes[..., 0])
    )


def test_a_narrow_resnet12_serves_as_embedding() -> None:
    network = NetworkSettings(architecture="resnet12", filters=(4, 8, 8, 16), norm="running")
    learner = LEARNERS["metaoptnet"](LEARNERS["metaoptnet"].choose(kernel="cosine"), network, (3, 32, 32))
    assert sum(parameter.numel() for parameter in learner.parameters()) < 20_000
    support = Examples.of(torch.randn(2, 4, 3, 32, 32), torch.zeros(2, 4))
    assert learner.adapt(support)(torch.randn(2, 3, 3, 32, 32)).shape == (2, 3)
