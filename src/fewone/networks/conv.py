"""The paper's convolution nets, 1-D and 2-D from one definition: blocks of conv, (norm), ReLU, pool 2."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.errors import FewoneError
from fewone.networks.embedding import Embedding
from fewone.networks.norms import RunningNorm, Statistics, SupportNorm


def channels_last(inputs: Tensor) -> Tensor:
    """Images laid out with their channels innermost, in which torch convolves and pools them twice as fast."""
    # Not `contiguous`: one channel counts as either layout, and would be left in the slow one.
    return inputs.to(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


class ConvBlock(nn.Module):
    """One block: inputs (n, channels, *space) -> (n, filters, *space/2)."""

    def __init__(
        self, channels: int, filters: int, kernel: int, dimensions: int, norm: str, norm_place: str, halving: str
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(filters, channels, *(kernel,) * dimensions))
        # A norm right behind the convolution takes any bias away again.
        has_bias = norm == "none" or norm_place == "last"
        self.bias = nn.Parameter(torch.zeros(filters)) if has_bias else None
        nn.init.xavier_uniform_(self.weight)
        self.norm: nn.Module | None = {"none": None, "support": SupportNorm(filters), "running": RunningNorm(filters)}[
            norm
        ]
        self.norm_place, self.halving = norm_place, halving
        self.dimensions = dimensions

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        convolve, pool = (F.conv1d, F.max_pool1d) if self.dimensions == 1 else (F.conv2d, F.max_pool2d)
        found: Statistics = ()
        before = self.norm is not None and self.norm_place == "before-relu"
        known: tuple[Tensor, Tensor] | None = None
        if before and isinstance(self.norm, SupportNorm) and statistics is not None:
            known, found = self.norm.scale_and_shift(statistics), statistics
        elif before and isinstance(self.norm, RunningNorm) and not self.norm.training:
            known = self.norm.scale_and_shift()
        if known is not None:
            # A known norm is a part of the convolution: no pass of its own over the largest map.
            scale, shift = known
            weight = self.weight * scale.view(-1, *(1,) * (self.weight.dim() - 1))
            values = convolve(inputs, weight, shift, padding="same")
        else:
            values = convolve(inputs, self.weight, self.bias, padding="same")
            if before and self.norm is not None:
                values, found = self.norm(values, statistics)
        # Max pooling and ReLU commute; pooling first leaves the ReLU a quarter of the work.
        values = F.relu(pool(values, 2, ceil_mode=self.halving == "ceil"))
        if self.norm is not None and self.norm_place == "last":
            values, found = self.norm(values, statistics)
        return values, found


class ConvEmbedding(Embedding):
    """A stack of blocks: inputs (n, *shape) -> features (n, width).

    pooling: the last map is flattened, or each channel's mean and maximum are taken (then the place is forgotten).
    halving: a map of odd size loses its last row and column when it is pooled (floor), or keeps them (ceil).
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        filters: tuple[int, ...],
        kernel: int = 3,
        norm: Literal["none", "support", "running"] = "none",
        norm_place: Literal["before-relu", "last"] = "before-relu",
        pooling: Literal["flatten", "mean-max"] = "flatten",
        halving: Literal["floor", "ceil"] = "floor",
    ) -> None:
        super().__init__()
        channels, *space = shape
        if len(space) not in (1, 2) or min(space) < 2 ** len(filters):
            raise FewoneError(
                f"a conv net with {len(filters)} blocks needs (channels, length) or (channels, height, width)"
                f" of at least {2 ** len(filters)} per side, the input shape is {shape}; use fewer filters"
            )
        widths = (channels, *filters)
        self.blocks = nn.ModuleList(
            ConvBlock(before, after, kernel, len(space), norm, norm_place, halving)
            for before, after in pairwise(widths)
        )
        self.takes_statistics = norm == "support"
        self.statistics_per_block = 2 if norm == "support" else 0
        size = 1
        for side in space:
            size *= -(-side >> len(filters)) if halving == "ceil" else side >> len(filters)
        self.pooling = pooling
        self.width = filters[-1] * (size if pooling == "flatten" else 2)

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        found: list[Tensor] = []
        values = channels_last(inputs)
        for number, block in enumerate(self.blocks):
            start = number * self.statistics_per_block
            given = None if statistics is None else statistics[start : start + self.statistics_per_block]
            values, used = block(values, given)
            found.extend(used)
        if self.pooling == "mean-max":
            flat = values.flatten(2)
            return torch.cat([flat.mean(-1), flat.amax(-1)], -1), tuple(found)
        return values.flatten(1), tuple(found)
