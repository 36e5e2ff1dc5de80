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


class ParameterPacking:
    """Parameters by name <-> rows (P,) or (T, P)."""

    def __init__(self, tensors: Sequence[PackedTensor]) -> None:
        self.tensors = tuple(tensors)
        self.sizes = [prod(tensor.shape) for tensor in self.tensors]

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
        return value.reshape(tensor.folded).permute(tensor.order).reshape(-1)

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows (T, P) -> views (T, *packed shape), one per parameter."""
        return [
            piece.view(len(rows), *tensor.packed_shape)
            for piece, tensor in zip(torch.split(rows, self.sizes, dim=1), self.tensors, strict=True)
        ]

    def unpack(self, rows: Tensor) -> dict[str, Tensor]:
        """Rows (T, P) -> parameters (T, *shape) by name, as the module has them."""
        result = {}
        for piece, tensor in zip(self.split(rows), self.tensors, strict=True):
            inverse = [0] + [1 + tensor.order.index(axis) for axis in range(len(tensor.order))]
            result[tensor.name] = piece.permute(inverse).reshape(len(rows), *tensor.shape)
        return result
