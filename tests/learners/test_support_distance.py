"""The evidence against a direct computation, its limits, and that training teaches what only the support can tell."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, SupportDistanceSettings
from fewone.learners.support_distance import (
    PARAMETER_SCALE,
    PooledDeviation,
    Support,
    SupportDistance,
    SupportDistanceScorer,
    nearest,
)
from fewone.networks import NetworkSettings

SHAPE = (2, 32)
NETWORK = NetworkSettings(filters=(6, 6), norm="running", pooling="mean-max")
SPECTRAL = replace(NETWORK, front_end="log-spectrogram", window=8, hop=4, bands=4)


def build(network: NetworkSettings = NETWORK, seed: int = 0, **changes: object) -> SupportDistance:
    torch.manual_seed(seed)
    settings = replace(SupportDistanceSettings(dimensions=4, random_kernels=8), **changes)  # type: ignore[arg-type]
    learner = LEARNERS["support-distance"](settings, network, SHAPE)
    assert isinstance(learner, SupportDistance)
    return learner.eval()


def noise(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def test_hard_and_soft_nearest_distances() -> None:
    points, others = noise(2, 3, 4), noise(2, 5, 4, seed=1)
    allowed = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0]).expand(2, 1, 5)
    squares = (points[:, :, None] - others[:, None]).square().sum(-1)[..., [0, 1, 3, 4]]
    torch.testing.assert_close(nearest(points, others, allowed, None), (squares.amin(-1) + 1e-2).log())
    sharp = torch.tensor(0.7)
    soft = -(torch.exp(-0.7 * squares).mean(-1)).log() / 0.7
    torch.testing.assert_close(nearest(points, others, allowed, sharp), (soft + 1e-2).log())


def test_each_normal_is_compared_with_the_mean_of_the_others() -> None:
    front = noise(1, 4, 2, 3)
    normal = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    support = Support(front, None, normal)
    torch.testing.assert_close(support.mean()[0, 0], front[0, [0, 1, 3]].mean(0))
    torch.testing.assert_close(support.mean_of_others()[0, 1], front[0, [0, 3]].mean(0))
    single = Support(front, None, torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    torch.testing.assert_close(single.mean_of_others()[0, 0], front[0, 0])


def test_pooled_deviation_is_that_within_tasks_not_between() -> None:
    deviation = PooledDeviation(3)
    scales = torch.tensor([0.5, 1.0, 4.0])[:, None]
    for number in range(40):
        values = noise(6, 20, 3, 5, seed=number) * scales + 100.0 * noise(6, 1, 3, 5, seed=1000 + number)
        deviation.observe(values, torch.ones(6, 20))
    torch.testing.assert_close(deviation(), scales.flatten(), rtol=0.1, atol=0.0)
    before = deviation.variance.clone()
    deviation.observe(values, torch.zeros(6, 20))
    assert torch.equal(deviation.variance, before), "tasks with fewer than two normals say nothing"


@pytest.mark.parametrize("network", [NETWORK, SPECTRAL])
@pytest.mark.parametrize("residual", [True, False])
def test_the_logit_is_the_weighed_difference_to_the_supports_own_evidence(
    network: NetworkSettings, residual: bool
) -> None:
    learner = build(network, residual=residual).double()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * noise(parameter.numel()).double().view_as(parameter))
        inputs, query = noise(1, 3, *SHAPE).double(), noise(1, 1, *SHAPE, seed=1).double()
        found = learner.adapt(Examples.normals(inputs))(query)[0, 0]

        def judged(example: Tensor, by: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
            """Evidence of one example by its normals (n, *shape), whose places are given; and its own embedding."""
            front, fixed = learner.describe(torch.cat([example[None], by])[None])
            count = torch.tensor([[float(len(by))]], dtype=torch.float64)
            seen = learner.relate(front[:, :1], front[:, 1:].mean(1, keepdim=True), count)
            direct, embedding = learner.encode(seen)
            everyone = torch.ones(1, 1, len(by))
            assert fixed is not None
            assert learner.fixed_deviation is not None
            unit = learner.fixed_deviation() * math.sqrt(16)
            kinds = [
                direct[0, 0],
                nearest(embedding, places[None], everyone, (PARAMETER_SCALE * learner.log_sharpness).exp())[0, 0]
                if len(places)
                else None,
                nearest(fixed[:, :1] / unit, fixed[:, 1:] / unit, everyone, None)[0, 0],
            ]
            return torch.stack([torch.zeros_like(direct[0, 0]) if k is None else k for k in kinds]), embedding[0, 0]

        rest = [[1, 2], [0, 2], [0, 1]]
        places = torch.stack([judged(inputs[0, i], inputs[0, rest[i]], inputs[0, :0])[1] for i in range(3)])
        own = torch.stack([judged(inputs[0, i], inputs[0, rest[i]], places[rest[i]])[0] for i in range(3)]).mean(0)
        strength = (PARAMETER_SCALE * learner.log_strength).exp()
        own = (3 * own + strength * PARAMETER_SCALE * learner.prior) / (3 + strength)
        weight = torch.nn.functional.softplus(PARAMETER_SCALE * (learner.weight[0] + learner.weight[1] / 3))
        strange = judged(query[0, 0], inputs[0], places)[0]
        expected = ((strange - own) * weight).sum() + PARAMETER_SCALE * (learner.bias[0] + learner.bias[1] / 3)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("count", [1, 2, 30])
def test_identical_normals_give_finite_logits_and_gradients(count: int) -> None:
    learner = build()
    support, queries = (
        torch.ones(1, count, *SHAPE),
        torch.cat([torch.ones(1, 1, *SHAPE), 100.0 * noise(1, 1, *SHAPE)], 1),
    )
    assert learner.adapt(Examples.normals(support))(queries).isfinite().all()
    # As in training, where a scorer is no snapshot.
    logits = SupportDistanceScorer(learner, Support(*learner.describe(support), torch.ones(1, count)))(queries)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in learner.parameters())


def test_known_anomalies_change_nothing() -> None:
    learner = build()
    inputs, query = noise(2, 4, *SHAPE), noise(2, 3, *SHAPE, seed=1)
    labels = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(2, 4)
    with_them = learner.adapt(Examples.of(inputs, labels))(query)
    torch.testing.assert_close(with_them, learner.adapt(Examples.normals(inputs[:, :2]))(query))


def test_a_query_does_not_see_the_other_queries_even_in_training_mode() -> None:
    learner = build().train()
    scorer = learner.adapt(Examples.normals(noise(2, 3, *SHAPE)))
    queries = noise(2, 4, *SHAPE, seed=1)
    torch.testing.assert_close(scorer(queries)[:, :1], scorer(queries[:, :1]), rtol=1e-4, atol=1e-5)


def episodes(number: int, tasks: int = 8) -> Episodes:
    """Each task has a tone of its own; anomalies have another. Over tasks every tone is as often normal as not."""
    generator = torch.Generator().manual_seed(number)
    time = torch.arange(32.0)

    def tones(kind: Tensor) -> Tensor:
        phase = 2 * math.pi * torch.rand(*kind.shape, 2, 1, generator=generator)
        waves = torch.sin((0.4 + 0.5 * kind)[..., None, None] * time + phase)
        return waves + 0.3 * torch.randn(waves.shape, generator=generator)

    own = torch.randint(4, (tasks, 1), generator=generator)
    other = (own + torch.randint(1, 4, (tasks, 4), generator=generator)) % 4
    query = torch.cat([own.expand(tasks, 4), other], 1)
    labels = torch.cat([torch.zeros(tasks, 4), torch.ones(tasks, 4)], 1)
    rows = torch.zeros(tasks, 4, dtype=torch.int64)
    support = Examples.normals(tones(own.expand(tasks, 4)))
    return Episodes((None,) * tasks, support, Examples.of(tones(query), labels), rows, rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("residual", [False, True])
def test_training_teaches_what_only_the_support_can_tell(residual: bool) -> None:
    learner = build(SPECTRAL, residual=residual, random_kernels=0).train()
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}
    optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-2)
    for number in range(150):
        optimizer.zero_grad()
        learner.accumulate_gradient(episodes(number))
        optimizer.step()
    judged = episodes(999, 40)
    right = (learner.adapt(judged.support)(judged.query.inputs) > 0).float() == judged.query.labels
    assert right.float().mean() > 0.85
    assert all(not torch.equal(value, before[name]) for name, value in learner.named_parameters())
    assert int(learner.deviation.seen) == 150


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_a_scorer_exports(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    with torch.no_grad():
        scorer = build(SPECTRAL).adapt(Examples.normals(noise(1, 3, *SHAPE))).eval()
        queries = noise(1, 5, *SHAPE, seed=1)
        expected = scorer(queries)
        torch.onnx.export(scorer, (queries,), tmp_path / "scorer.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "scorer.onnx")
    found = session.run(None, {session.get_inputs()[0].name: queries.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-3, atol=1e-3)


def test_wrong_use_is_told() -> None:
    with pytest.raises(FewoneError, match='"running" or "none"'):
        LEARNERS["support-distance"](LEARNERS["support-distance"].choose(), replace(NETWORK, norm="support"), SHAPE)
    with pytest.raises(FewoneError, match="episodes"):
        build().accumulate_gradient(ClassBatch(noise(2, 3, *SHAPE), torch.arange(2)))
