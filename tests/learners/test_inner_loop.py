"""The derivatives written out equal the plain autograd loop, however tasks are grouped, chunked and threaded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fewone.conv_adjoint import convolution, derivatives
from fewone.conv_adjoint.derivatives import logit_gradient
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, Anil, Maml, MetaSgd, Reptile, task_groups
from fewone.learners.adjoint import AdjointLoop
from fewone.learners.inner_loop import AutogradLoop, inner_loop_of
from fewone.networks import (
    Classifier,
    ConvEmbedding,
    Embedding,
    NetworkSettings,
    Statistics,
)

NORMS = [("none", "before-relu"), ("support", "before-relu"), ("support", "last")]
SHAPES = [(1, 8, 9), (3, 11, 8), (2, 21)]


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    scale = max(float(value.abs().max()) for value in other.values())
    return max(float((one[name] - other[name]).abs().max()) for name in one) / scale


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("norm", "place"), NORMS)
@pytest.mark.parametrize(
    ("name", "tasks"), [("maml", 3), ("maml", 1), ("fomaml", 1), ("metasgd", 2), ("reptile", 1), ("reptile", 2)]
)
def test_written_out_derivatives_equal_autograd(
    name, tasks, norm, place, shape, make_learner, make_episodes, gradient_of, monkeypatch
):
    # One task alone goes through torch's own convolution, as large maps do.
    monkeypatch.setattr(convolution, "VERY_FEW_PLACES", 0)
    monkeypatch.setattr(convolution, "FEW_PLACES", 0)
    learner = make_learner(name, shape, norm, place)
    episodes = make_episodes(shape, tasks=tasks, anomalies=1)
    assert isinstance(inner_loop_of(learner.classifier), AdjointLoop)
    loss, gradient = gradient_of(learner, episodes)
    logits = learner.adapt(episodes.support)(episodes.query.inputs)
    monkeypatch.setattr(derivatives.ConvDerivatives, "can_differentiate", staticmethod(lambda _: False))
    assert isinstance(inner_loop_of(learner.classifier), AutogradLoop)
    plain_loss, plain_gradient = gradient_of(learner, episodes)
    assert loss == pytest.approx(plain_loss, abs=1e-12)
    assert largest_difference(gradient, plain_gradient) < 1e-10
    torch.testing.assert_close(logits, learner.adapt(episodes.support)(episodes.query.inputs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(1, 7, 9), (2, 21)], ids=str)
@pytest.mark.parametrize(("norm", "place"), NORMS)
@pytest.mark.parametrize("name", ["maml", "fomaml", "metasgd", "anil", "reptile"])
def test_derivatives_equal_autograd_where_odd_maps_keep_their_last_place(
    name, norm, place, shape, make_learner, make_episodes, gradient_of, monkeypatch
):
    learner = make_learner(name, shape, norm, place, halving="ceil")
    episodes = make_episodes(shape, tasks=2, anomalies=1)
    loss, gradient = gradient_of(learner, episodes)
    logits = learner.adapt(episodes.support)(episodes.query.inputs)
    monkeypatch.setattr(derivatives.ConvDerivatives, "can_differentiate", staticmethod(lambda _: False))
    # anil asks when it is built.
    plain = make_learner(name, shape, norm, place, halving="ceil")
    plain_loss, plain_gradient = gradient_of(plain, episodes)
    assert loss == pytest.approx(plain_loss, abs=1e-12)
    assert largest_difference(gradient, plain_gradient) < 1e-10
    torch.testing.assert_close(logits, plain.adapt(episodes.support)(episodes.query.inputs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("norm", "place"), NORMS)
@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("maml", {"query_statistics": True}),
        ("fomaml", {"query_statistics": True}),
        ("reptile", {"query_statistics": True}),
        ("reptile", {"balanced_step": False}),
    ],
)
def test_the_authors_switches_equal_autograd_and_change_what_they_say(
    name, switches, norm, place, make_learner, make_episodes, gradient_of, monkeypatch
):
    episodes = make_episodes(tasks=2)
    _, paper = gradient_of(make_learner(name, norm=norm, norm_place=place), episodes)
    learner = make_learner(name, norm=norm, norm_place=place, **switches)
    loss, gradient = gradient_of(learner, episodes)
    monkeypatch.setattr(derivatives.ConvDerivatives, "can_differentiate", staticmethod(lambda _: False))
    plain_loss, plain_gradient = gradient_of(learner, episodes)
    assert loss == pytest.approx(plain_loss, abs=1e-12)
    assert largest_difference(gradient, plain_gradient) < 1e-10
    changes = "balanced_step" in switches or norm != "none"
    assert (largest_difference(gradient, paper) > 1e-3) == changes


@pytest.mark.parametrize(("norm", "place"), NORMS)
@pytest.mark.parametrize("name", ["maml", "fomaml", "anil", "foanil"])
def test_learned_rates_get_autograds_gradient(name, norm, place, make_learner, make_episodes, gradient_of, monkeypatch):
    episodes = make_episodes(anomalies=2)
    learner = make_learner(name, norm=norm, norm_place=place, learn_rates=True)
    _, gradient = gradient_of(learner, episodes)
    monkeypatch.setattr(derivatives.ConvDerivatives, "can_differentiate", staticmethod(lambda _: False))
    plain = make_learner(name, norm=norm, norm_place=place, learn_rates=True)
    plain.load_state_dict(learner.state_dict())
    _, plain_gradient = gradient_of(plain, episodes)
    assert "rates.rates" in gradient
    assert largest_difference(gradient, plain_gradient) < 1e-10


@pytest.mark.parametrize(("norm", "place"), NORMS[:2])
@pytest.mark.parametrize("name", ["maml", "anil"])
def test_groups_chunks_and_threads_change_nothing(
    name, norm, place, make_learner, make_episodes, gradient_of, monkeypatch
):
    learner, episodes = make_learner(name, norm=norm), make_episodes(tasks=5)
    loss, gradient = gradient_of(learner, episodes)
    logits = learner.adapt(episodes.support)(episodes.query.inputs)
    monkeypatch.setattr(convolution, "VERY_FEW_PLACES", 0)
    for group, chunk, number in [(1, 2**20, 1), (2, 300, 1), (8, 100, 2), (1, 2**20, 2)]:
        monkeypatch.setattr(task_groups, "LARGEST_GROUP", group)
        monkeypatch.setattr(derivatives, "LARGEST_MAP", chunk)
        task_groups.use_threads(number)
        try:
            other_loss, other = gradient_of(learner, episodes)
            adapted = learner.adapt(episodes.support)(episodes.query.inputs)
        finally:
            task_groups.use_threads(1)
        assert other_loss == pytest.approx(loss, abs=1e-12)
        assert largest_difference(other, gradient) < 1e-12
        torch.testing.assert_close(adapted, logits, rtol=1e-11, atol=1e-11)


def test_gradients_are_added_to_what_is_there(make_learner, make_episodes, gradient_of):
    learner, episodes = make_learner("maml"), make_episodes()
    _, once = gradient_of(learner, episodes)
    learner.accumulate_gradient(episodes)
    for name, parameter in learner.named_parameters():
        torch.testing.assert_close(parameter.grad, 2 * once[name])


class Averaging(Embedding):
    """A network that is not written out."""

    def __init__(self) -> None:
        super().__init__()
        self.width, self.takes_statistics = 5, False
        self.layer = nn.Linear(64, 5)

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        return torch.tanh(self.layer(inputs.flatten(1))), ()


class Subclass(ConvEmbedding):
    """A conv net that may do something else."""


@pytest.mark.parametrize("embedding", [Averaging(), Subclass((1, 8, 8), (3, 4)), ConvEmbedding((1, 8, 8), (3,), 4)])
def test_any_other_network_is_left_to_autograd(embedding):
    assert isinstance(inner_loop_of(Classifier(embedding)), AutogradLoop)


@pytest.mark.parametrize("make", [Maml, Anil, MetaSgd, Reptile])
def test_any_other_network_can_be_learned_with(make, make_episodes):
    learner = make(Averaging(), inner_rate=0.1).double()
    episodes = make_episodes()
    before = float(learner.accumulate_gradient(episodes))
    optimizer = torch.optim.Adam(learner.parameters(), 0.01)
    for _ in range(20):
        optimizer.zero_grad()
        loss = learner.accumulate_gradient(episodes)
        optimizer.step()
    assert float(loss) < before


@pytest.mark.parametrize("name", ["maml", "fomaml", "anil", "foanil", "metasgd", "reptile"])
def test_running_averages_are_refused(name):
    with pytest.raises(FewoneError, match="running"):
        LEARNERS[name](LEARNERS[name].choose(), NetworkSettings(norm="running"), (1, 32, 32))


def test_the_logits_gradient_does_not_cancel_in_single_precision():
    logits = torch.tensor([[18.0, 18.0, -18.0, -18.0]])
    labels = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    weights = torch.full((1, 4), 0.25)
    single = logit_gradient(logits, labels, weights).double()
    double = (torch.sigmoid(logits.double()) - labels) * 0.25
    torch.testing.assert_close(single, double, rtol=1e-5, atol=0)
