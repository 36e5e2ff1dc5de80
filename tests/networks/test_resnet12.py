"""ResNet-12: its size is the literature's, its norms are the house's, its DropBlock is reproducible."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from fewone.episodes import Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import LEARNERS
from fewone.networks import NetworkSettings, build_embedding
from fewone.networks.resnet12 import ResNet12, drop_squares

TINY = (4, 6, 8, 10)
GENERATOR_SEED = 0


def draw_images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(GENERATOR_SEED))


def test_standard_widths_have_the_parameters_of_the_literature() -> None:
    """12.4 million: three 3x3 convolutions and a 1x1 shortcut per block, gamma and beta for each of the four."""
    filters, channels, expected = (64, 160, 320, 640), 3, 0
    network = ResNet12((3, 84, 84), filters)
    for width in filters:
        expected += 9 * width * (channels + 2 * width) + channels * width + 4 * 2 * width
        channels = width
    assert sum(parameter.numel() for parameter in network.parameters()) == expected == 12_424_320
    assert network.width == 640 * 5 * 5


@pytest.mark.parametrize("norm", ["none", "support", "running"])
@pytest.mark.parametrize(("channels", "side", "width"), [(3, 32, 40), (1, 28, 10), (3, 84, 250)])
def test_features_have_the_promised_width(norm: str, channels: int, side: int, width: int) -> None:
    settings = NetworkSettings("resnet12", TINY, norm=norm)  # type: ignore[arg-type]
    network = build_embedding(settings, (channels, side, side))
    with torch.no_grad():
        features, statistics = network(draw_images(2, channels, side, side))
    assert network.width == width
    assert features.shape == (2, width)
    assert len(statistics) == (32 if norm == "support" else 0)


def test_support_statistics_travel_to_the_queries() -> None:
    network = ResNet12((1, 16, 16), TINY, norm="support")
    images = draw_images(5, 1, 16, 16)
    with torch.no_grad():
        features, statistics = network(images)
        alone, used = network(images[:1], statistics)
        own, _ = network(images[:1])
    assert torch.allclose(alone, features[:1], atol=1e-5)
    assert all(torch.equal(one, other) for one, other in zip(used, statistics, strict=True))
    assert not torch.allclose(own, features[:1], atol=1e-2)


@pytest.mark.parametrize("norm", ["none", "support", "running"])
def test_every_parameter_gets_a_gradient(norm: str) -> None:
    network = ResNet12((1, 16, 16), TINY, norm, drop_rate=0.1)  # type: ignore[arg-type]
    network(draw_images(6, 1, 16, 16))[0].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in network.parameters())


def test_blocks_compute_what_they_say() -> None:
    network = ResNet12((1, 16, 16), TINY, norm="none")
    images = draw_images(2, 1, 16, 16)
    values = images
    for block in network.blocks:
        passed = block.shortcut.convolution(values)
        for number, layer in enumerate(block.layers):
            values = F.conv2d(values, layer.convolution.weight, layer.convolution.bias, padding=1)
            values = values if number == 2 else F.leaky_relu(values, 0.1)
        values = F.max_pool2d(F.leaky_relu(values + passed, 0.1), 2)
    assert torch.allclose(network(images)[0], values.flatten(1), atol=1e-5)


def test_drop_block_drops_whole_squares_and_about_the_asked_share() -> None:
    kept = drop_squares(torch.ones(40, 20, 10, 10), 0.2, 3, torch.Generator().manual_seed(0))
    dropped = (kept == 0).float()
    assert 0.14 < float(dropped.mean()) < 0.22
    assert float(kept.mean()) == pytest.approx(1.0, abs=1e-4)
    # Opening with the square leaves a union of squares as it is.
    eroded = 1 - F.max_pool2d(1 - dropped, 3, stride=1)
    opened = F.max_pool2d(F.pad(eroded, (2, 2, 2, 2)), 3, stride=1)
    assert torch.equal(opened, dropped)


def test_drop_block_is_off_when_judging_and_differs_from_pass_to_pass_in_training() -> None:
    network = ResNet12((1, 16, 16), TINY, norm="none", drop_rate=0.3)
    images = draw_images(3, 1, 16, 16)
    with torch.no_grad():
        first, second = network(images)[0], network(images)[0]
        network.eval()
        calm, again = network(images)[0], network(images)[0]
    assert not torch.equal(first, second)
    assert torch.equal(calm, again)
    assert int(network.drop_passes) == 2


def test_a_restored_network_drops_the_same_as_one_that_was_never_interrupted() -> None:
    network = ResNet12((1, 16, 16), TINY, drop_rate=0.3)
    images = draw_images(3, 1, 16, 16)
    with torch.no_grad():
        network(images)
        restored = ResNet12((1, 16, 16), TINY, drop_rate=0.3)
        restored.load_state_dict(copy.deepcopy(network.state_dict()))
        torch.rand(7)
        assert torch.equal(network(images)[0], restored(images)[0])


@pytest.mark.parametrize("learner_name", ["metaoptnet", "protonet"])
def test_an_embedding_learner_takes_a_training_step_on_it_and_judges_without_dropping(learner_name: str) -> None:
    settings = NetworkSettings("resnet12", TINY, norm="running", drop_rate=0.1, drop_block=2)
    learner = LEARNERS[learner_name](LEARNERS[learner_name].choose(), settings, (3, 32, 32))
    inputs = draw_images(2, 9, 3, 32, 32)
    labels = torch.tensor([0.0, 0, 1, 1]).expand(2, 4)
    episodes = Episodes(
        (), Examples.normals(inputs[:, :5]), Examples.of(inputs[:, 5:], labels), torch.zeros(2, 5), torch.zeros(2, 4)
    )
    before = copy.deepcopy(dict(learner.named_parameters()))
    optimizer = torch.optim.SGD(learner.parameters(), 0.1, momentum=0.9, nesterov=True)
    loss = learner.accumulate_gradient(episodes)
    optimizer.step()
    assert loss.isfinite()
    assert all(not torch.equal(parameter, before[name]) for name, parameter in learner.named_parameters())
    learner.train()
    scorer = learner.adapt(episodes.support)
    assert torch.equal(scorer(inputs[:, 5:]), scorer(inputs[:, 5:]))


@pytest.mark.parametrize(
    ("shape", "filters", "rate"),
    [((3, 128), TINY, 0.0), ((3, 8, 8), TINY, 0.0), ((3, 32, 32), (4, 4), 0.0), ((3, 32, 32), TINY, 1.0)],
)
def test_what_it_cannot_be_built_for_is_refused(shape: tuple[int, ...], filters: tuple[int, ...], rate: float) -> None:
    with pytest.raises(FewoneError, match=r"resnet12|drop_rate"):
        build_embedding(NetworkSettings("resnet12", filters, drop_rate=rate), shape)
