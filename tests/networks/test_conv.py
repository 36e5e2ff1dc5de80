"""The conv nets: one definition for series and images, and norms whose statistics travel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fewone.errors import FewoneError
from fewone.networks import Classifier, ConvEmbedding
from fewone.networks.norms import SupportNorm


def jitter(module: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


@pytest.mark.parametrize(
    ("shape", "filters", "kernel", "width"),
    [((1, 128), (32, 32, 32), 5, 512), ((1, 28, 28), (32,) * 4, 3, 32), ((3, 84, 84), (32,) * 4, 3, 800)],
)
def test_odd_maps_lose_their_last_place_unless_told_to_keep_it(shape, filters, kernel, width):
    network = ConvEmbedding(shape, filters, kernel)
    features, statistics = network(torch.randn(2, *shape))
    assert features.shape == (2, width) == (2, network.width)
    assert statistics == ()


@pytest.mark.parametrize(
    ("shape", "filters", "width"),
    [((1, 28, 28), (32,) * 4, 128), ((1, 28, 28), (64,) * 4, 256), ((1, 128), (32,) * 3, 512), ((2, 21), (3, 3), 18)],
)
def test_the_authors_networks_have_their_sizes_with_ceil(shape, filters, width):
    """28, 14, 7, 4, 2: what `padding="same"` gives in the authors' program."""
    network = ConvEmbedding(shape, filters, norm="support", norm_place="last", halving="ceil")
    features, _ = network(torch.randn(2, *shape))
    assert features.shape == (2, width) == (2, network.width)


def test_a_series_is_an_image_of_height_one():
    torch.manual_seed(0)
    series = ConvEmbedding((2, 16), (3, 4), kernel=3)
    image = F.conv2d(torch.zeros(1, 2, 1, 16), torch.zeros(3, 2, 1, 3), padding="same")
    assert image.shape == (1, 3, 1, 16)
    inputs = torch.randn(5, 2, 16)
    values = inputs.unsqueeze(2)
    for block in series.blocks:
        values = F.conv2d(values, block.weight.unsqueeze(2), block.bias, padding="same")
        values = F.max_pool2d(F.relu(values), (1, 2))
    torch.testing.assert_close(series(inputs)[0], values.flatten(1))


@pytest.mark.parametrize("place", ["before-relu", "last"])
def test_blocks_follow_the_stated_order(place):
    torch.manual_seed(0)
    network = ConvEmbedding((2, 9, 8), (3,), norm="support", norm_place=place).double()
    jitter(network)
    (block,) = network.blocks
    inputs = torch.randn(4, 2, 9, 8, dtype=torch.float64)

    def norm(values):
        return F.batch_norm(values, None, None, block.norm.gamma, block.norm.beta, training=True, eps=1e-3)

    values = F.conv2d(inputs, block.weight, block.bias, padding=1)
    if place == "before-relu":
        assert block.bias is None
        values = F.max_pool2d(F.relu(norm(values)), 2)
    else:
        values = norm(F.max_pool2d(F.relu(values), 2))
    torch.testing.assert_close(network(inputs)[0], values.flatten(1))


@pytest.mark.parametrize("place", ["before-relu", "last"])
def test_given_statistics_make_examples_independent(place):
    torch.manual_seed(0)
    network = Classifier(ConvEmbedding((1, 16), (3, 4), norm="support", norm_place=place)).double()
    jitter(network)
    support, query = torch.randn(6, 1, 16, dtype=torch.float64), torch.randn(5, 1, 16, dtype=torch.float64)
    own, statistics = network(support)
    assert len(statistics) == 4
    torch.testing.assert_close(network(support, statistics)[0], own)
    together, passed = network(query, statistics)
    alone = torch.cat([network(example[None], statistics)[0] for example in query])
    torch.testing.assert_close(together, alone)
    assert all(torch.equal(one, other) for one, other in zip(passed, statistics, strict=True))


def test_statistics_are_mean_and_biased_variance_and_carry_gradients():
    norm = SupportNorm(2).double()
    inputs = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    _, (mean, variance) = norm(inputs)
    torch.testing.assert_close(mean, inputs.transpose(0, 1).flatten(1).mean(1))
    torch.testing.assert_close(variance, inputs.transpose(0, 1).flatten(1).var(1, correction=0))
    assert torch.autograd.grad((mean + variance).sum(), inputs)[0].abs().min() > 0


@pytest.mark.parametrize("shape", [(1, 7), (1, 28, 7), (1,), (1, 2, 3, 4)])
def test_inputs_too_small_or_of_another_kind_are_refused(shape):
    with pytest.raises(FewoneError, match=r"needs \(channels, length\)"):
        ConvEmbedding(shape, (4, 4, 4))


@pytest.mark.parametrize("dimensions", [1, 2])
def test_a_running_norm_outside_of_training_is_a_part_of_the_convolution(dimensions: int) -> None:
    generator = torch.Generator().manual_seed(0)
    network = ConvEmbedding((3, *(8,) * dimensions), (4,), 3, "running")
    norm = network.blocks[0].norm
    inputs = torch.randn(5, 3, *(8,) * dimensions, generator=generator)
    with torch.no_grad():
        for value in (norm.gamma, norm.beta, norm.running_mean):
            value.copy_(torch.randn(4, generator=generator))
        norm.running_variance.copy_(0.5 + torch.rand(4, generator=generator))
        network.eval()
        found, _ = network(inputs)
        convolve, pool = ((F.conv1d, F.max_pool1d), (F.conv2d, F.max_pool2d))[dimensions - 1]
        apart, _ = norm(convolve(inputs, network.blocks[0].weight, padding="same"))
    torch.testing.assert_close(found, F.relu(pool(apart, 2)).flatten(1))
