"""The links of the conv net's chain rule. Each runs forward when it is made and knows three derivatives of itself.

backward: gradient of the outputs -> of the inputs and of its parameters. push: how the outputs move when inputs and
parameters move. pull: how `backward` moves then. In this order: each keeps what the next one needs.
Values are channels last with a leading task axis, (T, n, h, w, c); parameters have it too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import torch
from torch import Tensor

from fewone.networks.convolution import Convolution

Pieces = list[Tensor]
"""One tensor for each parameter of a link, in the order in which the link takes them."""


class Link(ABC):
    """outputs: what the forward pass gave."""

    outputs: Tensor

    @abstractmethod
    def backward(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]: ...

    @abstractmethod
    def push(self, inputs: Tensor | None, direction: Pieces) -> Tensor: ...

    @abstractmethod
    def pull(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]: ...


class Convolved(Link):
    """A convolution. first: its inputs are the network's, they neither move nor want a gradient."""

    def __init__(
        self, convolution: Convolution, prepared: Tensor, size: tuple[int, ...], weight: Tensor, first: bool
    ) -> None:
        self.convolution, self.prepared, self.size, self.weight, self.first = convolution, prepared, size, weight, first
        self.outputs = convolution.convolve(prepared, weight, size)

    def backward(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        weights = self.convolution.weight_gradient(self.prepared, gradient)
        if self.first:
            return None, [weights]
        self.gradient = gradient
        return self.convolution.input_gradient(gradient, self.weight), [weights]

    def push(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        (self.direction,) = direction
        outputs = self.convolution.convolve(self.prepared, self.direction, self.size)
        if inputs is not None:
            self.moved = self.convolution.prepare(inputs)
            self.convolution.convolve(self.moved, self.weight, self.size, onto=outputs)
        return outputs

    def pull(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        weights = self.convolution.weight_gradient(self.prepared, gradient)
        if self.first:
            return None, [weights]
        weights = weights + self.convolution.weight_gradient(self.moved, self.gradient)
        inputs = self.convolution.input_gradient(gradient, self.weight)
        return self.convolution.input_gradient(self.gradient, self.direction, onto=inputs), [weights]


class Rectified(Link):
    """A bias (where there is one) and a ReLU, in place of the values."""

    def __init__(self, values: Tensor, bias: Pieces) -> None:
        self.has_bias = bool(bias)
        self.outputs = self._shift(values, bias).relu_()

    def _shift(self, values: Tensor, bias: Pieces) -> Tensor:
        return values.add_(_by_channel(bias[0])) if bias else values

    def backward(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        passed = self._let_through(gradient)
        return passed, [passed.flatten(1, 3).sum(1)] if self.has_bias else []

    def push(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        assert inputs is not None
        return self._let_through(self._shift(inputs, direction))

    def pull(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        return self.backward(gradient)

    def _let_through(self, values: Tensor) -> Tensor:
        passed: Tensor = torch.ops.aten.threshold_backward(values, self.outputs, 0)
        return passed


class Pooled(Link):
    """A max pool by 2 in every direction that has more than one place."""

    def __init__(self, values: Tensor) -> None:
        self.inside = values.shape
        self.outputs, self.index = max_pool(values)

    def backward(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        values = gradient.new_zeros(self.inside)
        values.view(-1).scatter_(0, self.index, gradient.reshape(-1))
        return values, []

    def push(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        assert inputs is not None
        return inputs.view(-1).index_select(0, self.index).view(self.outputs.shape)

    def pull(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        return self.backward(gradient)


def max_pool(values: Tensor) -> tuple[Tensor, Tensor]:
    """(T, n, h, w, c) -> the pooled values, and where each was in the flattened values."""
    tasks, number, height, width, channels = values.shape
    window = (1 if height == 1 else 2, 2)
    pooled, places = torch.ops.aten.max_pool2d_with_indices(values.flatten(0, 1).permute(0, 3, 1, 2), window)
    pooled, places = pooled.permute(0, 2, 3, 1).contiguous(), places.permute(0, 2, 3, 1)
    index = torch.add(_offsets(tasks * number, height * width, channels), places, alpha=channels)
    return pooled.view(tasks, number, *pooled.shape[1:]), index.reshape(-1)


@lru_cache(maxsize=64)
def _offsets(number: int, places: int, channels: int) -> Tensor:
    """Where each channel of each image begins in the flattened values: (number, 1, 1, channels)."""
    images = torch.arange(number).mul_(places * channels).view(-1, 1, 1, 1)
    return images + torch.arange(channels)


def _by_channel(values: Tensor) -> Tensor:
    """(T, c) -> (T, 1, 1, 1, c)."""
    return values.view(len(values), 1, 1, 1, -1)
