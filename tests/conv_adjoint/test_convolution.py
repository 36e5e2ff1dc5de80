"""Both ways of convolving give autograd's products, and are chosen where they are the faster ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fewone.conv_adjoint import convolution
from fewone.conv_adjoint.convolution import PatchConvolution, PlainConvolution, choose_convolution

SIZES = [
    ((1, 4, 7, 6), (3, 3), 5, 6),
    ((1, 3, 5, 8), (3, 5), 1, 4),
    ((1, 2, 1, 9), (1, 5), 3, 3),
    ((1, 2, 6, 6), (3, 3), 4, 4),
]


@pytest.mark.parametrize("way", [PatchConvolution, PlainConvolution])
@pytest.mark.parametrize("few", [0, 10**6], ids=["torch's kernel for weights", "patches for weights"])
@pytest.mark.parametrize(("size", "kernel", "channels", "filters"), SIZES)
def test_products_equal_autograd(way, few, size, kernel, channels, filters, monkeypatch):
    monkeypatch.setattr(convolution, "FEW_PLACES", few)
    generator = torch.Generator().manual_seed(0)
    values, weight, slope = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((*size, channels), (1, filters, *kernel, channels), (*size, filters))
    )
    inputs, weights = values[0].permute(0, 3, 1, 2).requires_grad_(), weight[0].permute(0, 3, 1, 2).requires_grad_()
    expected = F.conv2d(inputs, weights, padding=(kernel[0] // 2, kernel[1] // 2))
    by_inputs, by_weights = torch.autograd.grad(expected, (inputs, weights), slope[0].permute(0, 3, 1, 2))
    made = way(channels, filters, kernel)
    prepared = made.prepare(values.detach())
    outputs = made.convolve(prepared, weight, size)
    torch.testing.assert_close(outputs[0].permute(0, 3, 1, 2), expected.detach())
    torch.testing.assert_close(made.weight_gradient(prepared, slope)[0].permute(0, 3, 1, 2), by_weights)
    found = made.input_gradient(slope, weight)
    torch.testing.assert_close(found[0].permute(0, 3, 1, 2), by_inputs)
    assert outputs.is_contiguous() and found.is_contiguous()
    twice = made.convolve(prepared, weight, size, onto=outputs.clone())
    torch.testing.assert_close(twice, 2 * outputs)
    torch.testing.assert_close(made.input_gradient(slope, weight, onto=found.clone()), 2 * found)


def test_each_task_has_its_own_weights():
    generator = torch.Generator().manual_seed(0)
    values, weight = torch.randn(3, 2, 4, 5, 2, generator=generator), torch.randn(3, 6, 3, 3, 2, generator=generator)
    together = PatchConvolution(2, 6, (3, 3))
    alone = PlainConvolution(2, 6, (3, 3))
    outputs = together.convolve(together.prepare(values), weight, (3, 2, 4, 5))
    for task in range(3):
        one = slice(task, task + 1)
        torch.testing.assert_close(outputs[one], alone.convolve(values[one], weight[one], (1, 2, 4, 5)))


def test_patches_are_for_many_tasks_single_channels_and_small_maps():
    assert isinstance(choose_convolution(32, 32, (3, 3), (1, 10, 14, 14)), PlainConvolution)
    assert isinstance(choose_convolution(32, 32, (3, 3), (2, 10, 14, 14)), PatchConvolution)
    assert isinstance(choose_convolution(1, 32, (3, 3), (1, 10, 28, 28)), PatchConvolution)
    assert isinstance(choose_convolution(32, 32, (3, 3), (1, 10, 3, 3)), PatchConvolution)
