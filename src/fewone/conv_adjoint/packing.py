"""All parameters of a conv classifier as one row of numbers, channels last, so that a step is one subtraction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class PackedTensor:
    """One parameter: its name and shape in the module.

    folded: that shape with every axis by itself; order: those axes as they are packed, channels last.
    """

    name: str
    shape: tuple[int, ...]
    folded: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return tuple(self.folded[axis] for axis in self.order)

    def fold(self, value: Tensor) -> Tensor:
        """A parameter as the module has it -> channels last."""
        return value.reshape(self.folded).permute(self.order)

    def unfold(self, values: Tensor) -> Tensor:
        """The way back, for (T, ...)."""
        inverse = [0] + [1 + self.order.index(axis) for axis in range(len(self.order))]
        return values.view(len(values), *self.packed_shape).permute(inverse).reshape(len(values), *self.shape)


class ParameterPacking:
    """Parameters by name <-> rows (P,) or (T, P)."""

    def __init__(self, tensors: Sequence[PackedTensor]) -> None:
        self.tensors = tuple(tensors)
        self.sizes = [prod(tensor.shape) for tensor in self.tensors]

    @property
    def body(self) -> tuple[PackedTensor, ...]:
        """All but the head's weight and bias, which come last."""
        return self.tensors[:-2]

    def pack(self, values: Mapping[str, Tensor]) -> Tensor:
        """Parameters, or one number for each -> a row (P,); what is missing is 0."""
        some = next(iter(values.values()))
        return torch.cat([self._pack_one(tensor, values, some) for tensor in self.tensors])

    def _pack_one(self, tensor: PackedTensor, values: Mapping[str, Tensor], some: Tensor) -> Tensor:
        value = values.get(tensor.name)
        if value is None:
            return some.new_zeros(prod(tensor.shape))
        if value.dim() == 0:
            return value.expand(prod(tensor.shape))
        return tensor.fold(value).reshape(-1)

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows (T, P) -> views (T, *packed shape), one per parameter."""
        return [
            piece.view(len(rows), *tensor.packed_shape)
            for piece, tensor in zip(torch.split(rows, self.sizes, dim=1), self.tensors, strict=True)
        ]

    def unpack(self, rows: Tensor) -> dict[str, Tensor]:
        """Rows (T, P) -> parameters (T, *shape) by name, as the module has them."""
        return {tensor.name: tensor.unfold(piece) for piece, tensor in zip(self.split(rows), self.tensors, strict=True)}
