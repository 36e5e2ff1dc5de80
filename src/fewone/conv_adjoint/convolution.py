"""The three products of a convolution layer: forward, towards its weights, towards its inputs.

Everything is channels last with a leading task axis: values (T, n, h, w, c), weights (T, f, kh, kw, c), each task with
weights of its own. Two ways to the same numbers: torch's convolution for one task, and patches times matrices for
many small tasks at once. Inputs enter prepared, because several products share them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

VERY_FEW_PLACES, FEW_PLACES = 256, 640
"""Places (images times pixels) up to which patches are the faster way for one task: for all products, for weights."""


def choose_convolution(channels: int, filters: int, kernel: tuple[int, int], size: tuple[int, ...]) -> Convolution:
    """The faster way for inputs of size (T, n, h, w). torch's convolution is slow for one channel and small maps."""
    tasks, *places = size
    patched = tasks > 1 or channels == 1 or prod(places) <= VERY_FEW_PLACES
    return (PatchConvolution if patched else PlainConvolution)(channels, filters, kernel)


class Convolution(ABC):
    """A convolution with odd kernel, stride 1 and as much padding as keeps the size."""

    def __init__(self, channels: int, filters: int, kernel: tuple[int, int]) -> None:
        self.channels, self.filters, self.kernel = channels, filters, kernel
        self.padding = (kernel[0] // 2, kernel[1] // 2)

    @abstractmethod
    def prepare(self, values: Tensor) -> Tensor:
        """Inputs (T, n, h, w, c) in the form in which the products take them."""

    @abstractmethod
    def convolve(self, prepared: Tensor, weight: Tensor, size: tuple[int, ...], onto: Tensor | None = None) -> Tensor:
        """Inputs and weights -> outputs (T, n, h, w, f), added in place to `onto`; size is (T, n, h, w)."""

    @abstractmethod
    def weight_gradient(self, prepared: Tensor, gradient: Tensor) -> Tensor:
        """Inputs and the gradient of the outputs -> gradient of the weights (T, f, kh, kw, c)."""

    @abstractmethod
    def input_gradient(self, gradient: Tensor, weight: Tensor, onto: Tensor | None = None) -> Tensor:
        """The gradient of the outputs and the weights -> of the inputs (T, n, h, w, c), added in place to `onto`."""


class PatchConvolution(Convolution):
    """Patches times matrices, all tasks in one batch of products: inputs are prepared as their patches."""

    def prepare(self, values: Tensor) -> Tensor:
        return patches(values, self.kernel)

    def convolve(self, prepared: Tensor, weight: Tensor, size: tuple[int, ...], onto: Tensor | None = None) -> Tensor:
        return _multiply(prepared, weight.flatten(2).transpose(1, 2), (*size, self.filters), onto)

    def weight_gradient(self, prepared: Tensor, gradient: Tensor) -> Tensor:
        outputs = gradient.flatten(1, 3)
        shape = (len(outputs), self.filters, *self.kernel, self.channels)
        if prepared.shape[2] >= self.filters:
            return torch.bmm(outputs.transpose(1, 2), prepared).view(shape)
        # Matrix libraries want the longer side of a flat product first.
        return torch.bmm(prepared.transpose(1, 2), outputs).transpose(1, 2).reshape(shape)

    def input_gradient(self, gradient: Tensor, weight: Tensor, onto: Tensor | None = None) -> Tensor:
        turned = weight.flip(2, 3).permute(0, 2, 3, 1, 4).reshape(len(weight), -1, self.channels)
        return _multiply(patches(gradient, self.kernel), turned, (*gradient.shape[:4], self.channels), onto)


class PlainConvolution(Convolution):
    """torch's own convolution, channels last, for one task: T is 1."""

    def prepare(self, values: Tensor) -> Tensor:
        return values

    def convolve(self, prepared: Tensor, weight: Tensor, size: tuple[int, ...], onto: Tensor | None = None) -> Tensor:
        outputs = _from_torch(torch.conv2d(_to_torch(prepared), _to_torch(weight), padding=self.padding))
        return outputs if onto is None else onto.add_(outputs)

    def weight_gradient(self, prepared: Tensor, gradient: Tensor) -> Tensor:
        if self.kernel[0] == 1 or gradient[..., 0].numel() <= FEW_PLACES:
            # In one dimension, and on small maps, patches cost little and the matrix product is the faster kernel.
            product = torch.mm(gradient.flatten(0, 3).t(), patches(prepared, self.kernel)[0])
            return product.view(1, self.filters, *self.kernel, self.channels)
        # Of the weights only the shape is looked at.
        like = gradient.new_empty(()).expand(self.filters, self.channels, *self.kernel)
        return _from_torch(self._backward(gradient, prepared, like, (False, True, False))[1])

    def input_gradient(self, gradient: Tensor, weight: Tensor, onto: Tensor | None = None) -> Tensor:
        like = gradient
        if self.channels != self.filters:
            like = gradient.new_empty(()).expand(*gradient.shape[:4], self.channels)
        inputs = _from_torch(self._backward(gradient, like, _to_torch(weight), (True, False, False))[0])
        return inputs if onto is None else onto.add_(inputs)

    def _backward(
        self, gradient: Tensor, inputs: Tensor, weight: Tensor, mask: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        result: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            _to_torch(gradient), _to_torch(inputs), weight, None, (1, 1), self.padding, (1, 1), False, (0, 0), 1, mask
        )
        return result


def patches(values: Tensor, kernel: tuple[int, int]) -> Tensor:
    """The neighbourhood of each position: (T, n, h, w, c) -> (T, n*h*w, kh*kw*c)."""
    tasks, number, height, width, channels = values.shape
    top, left = kernel[0] // 2, kernel[1] // 2
    padded = F.pad(values, (0, 0, left, left, top, top))
    if channels == 1:
        # Whole rows of the image are copied instead of a few neighbours at a time.
        shifted = [padded[:, :, i : i + height, j : j + width, 0] for i in range(kernel[0]) for j in range(kernel[1])]
        return torch.stack(shifted, 1).flatten(2).transpose(1, 2)
    by_task, by_number, by_row, by_column, _ = padded.stride()
    return padded.as_strided(
        (tasks, number, height, width, *kernel, channels),
        (by_task, by_number, by_row, by_column, by_row, by_column, 1),
    ).reshape(tasks, number * height * width, -1)


def _multiply(left: Tensor, right: Tensor, shape: tuple[int, ...], onto: Tensor | None) -> Tensor:
    """The products of T pairs of matrices, as `shape`, added in place to `onto`."""
    if onto is None:
        return torch.bmm(left, right).view(shape)
    sums = onto.view(len(left), -1, shape[-1])
    torch.baddbmm(sums, left, right, out=sums)
    return onto


def _to_torch(values: Tensor) -> Tensor:
    """(1, n, h, w, c) -> (n, c, h, w) over the same memory: what torch calls channels last."""
    return values[0].permute(0, 3, 1, 2)


def _from_torch(values: Tensor) -> Tensor:
    """The way back; copies only where torch answered in another layout."""
    return values.permute(0, 2, 3, 1).contiguous().unsqueeze(0)
