"""The layers of the conv net's chain rule. Each runs forward when it is made and knows three derivatives of itself.

vjp: gradient of the outputs -> of the inputs and of its parameters. jvp: tangents of inputs and parameters -> tangent
of the outputs. vjp_tangent: how `vjp` moves along those tangents (forward over reverse). In this order: each keeps what
the next one needs. Values are channels last with a leading task axis, (T, n, h, w, c); parameters have it too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import torch
from torch import Tensor

from fewone.conv_adjoint.convolution import Convolution

Pieces = list[Tensor]
"""One tensor for each parameter of a layer, in the order in which the layer takes them."""


class Layer(ABC):
    """outputs: what the forward pass gave."""

    outputs: Tensor

    @abstractmethod
    def vjp(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]: ...

    @abstractmethod
    def jvp(self, inputs: Tensor | None, direction: Pieces) -> Tensor: ...

    @abstractmethod
    def vjp_tangent(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]: ...


class Convolved(Layer):
    """A convolution. first: its inputs are the network's, they have no tangent and need no gradient."""

    def __init__(
        self, convolution: Convolution, prepared: Tensor, size: tuple[int, ...], weight: Tensor, first: bool
    ) -> None:
        self.convolution, self.prepared, self.size, self.weight, self.first = convolution, prepared, size, weight, first
        self.outputs = convolution.convolve(prepared, weight, size)

    def vjp(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        weights = self.convolution.weight_gradient(self.prepared, gradient)
        if self.first:
            return None, [weights]
        self.gradient = gradient
        return self.convolution.input_gradient(gradient, self.weight), [weights]

    def jvp(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        (self.direction,) = direction
        outputs = self.convolution.convolve(self.prepared, self.direction, self.size)
        if inputs is not None:
            self.moved = self.convolution.prepare(inputs)
            self.convolution.convolve(self.moved, self.weight, self.size, onto=outputs)
        return outputs

    def vjp_tangent(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        weights = self.convolution.weight_gradient(self.prepared, gradient)
        if self.first:
            return None, [weights]
        weights = weights + self.convolution.weight_gradient(self.moved, self.gradient)
        inputs = self.convolution.input_gradient(gradient, self.weight)
        return self.convolution.input_gradient(self.gradient, self.direction, onto=inputs), [weights]


class Rectified(Layer):
    """A bias (where there is one) and a ReLU, in place of the values."""

    def __init__(self, values: Tensor, bias: Pieces) -> None:
        self.has_bias = bool(bias)
        self.outputs = self._shift(values, bias).relu_()

    def _shift(self, values: Tensor, bias: Pieces) -> Tensor:
        return values.add_(_by_channel(bias[0])) if bias else values

    def vjp(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        passed = self._let_through(gradient)
        return passed, [passed.flatten(1, 3).sum(1)] if self.has_bias else []

    def jvp(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        assert inputs is not None
        return self._let_through(self._shift(inputs, direction))

    def vjp_tangent(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        return self.vjp(gradient)

    def _let_through(self, values: Tensor) -> Tensor:
        passed: Tensor = torch.ops.aten.threshold_backward(values, self.outputs, 0)
        return passed


class Pooled(Layer):
    """A max pool by 2 in every direction that has more than one place. ceil: odd sizes keep their last place."""

    def __init__(self, values: Tensor, ceil: bool) -> None:
        self.inside = values.shape
        self.outputs, self.index = max_pool(values, ceil)

    def vjp(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        values = gradient.new_zeros(self.inside)
        values.view(-1).scatter_(0, self.index, gradient.reshape(-1))
        return values, []

    def jvp(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        assert inputs is not None
        return inputs.view(-1).index_select(0, self.index).view(self.outputs.shape)

    def vjp_tangent(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        return self.vjp(gradient)


def max_pool(values: Tensor, ceil: bool) -> tuple[Tensor, Tensor]:
    """(T, n, h, w, c) -> the pooled values, and where each was in the flattened values."""
    tasks, number, height, width, channels = values.shape
    window = (1 if height == 1 else 2, 2)
    images = values.flatten(0, 1).permute(0, 3, 1, 2)
    pooled, places = torch.ops.aten.max_pool2d_with_indices(images, window, window, 0, 1, ceil)
    pooled, places = pooled.permute(0, 2, 3, 1).contiguous(), places.permute(0, 2, 3, 1)
    index = torch.add(_offsets(tasks * number, height * width, channels, values.device), places, alpha=channels)
    return pooled.view(tasks, number, *pooled.shape[1:]), index.reshape(-1)


@lru_cache(maxsize=64)
def _offsets(number: int, places: int, channels: int, device: torch.device) -> Tensor:
    """Where each channel of each image begins in the flattened values: (number, 1, 1, channels)."""
    images = torch.arange(number, device=device).mul_(places * channels).view(-1, 1, 1, 1)
    return images + torch.arange(channels, device=device)


def _by_channel(values: Tensor) -> Tensor:
    """(T, c) -> (T, 1, 1, 1, c)."""
    return values.view(len(values), 1, 1, 1, -1)
