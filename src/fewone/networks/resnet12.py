"""ResNet-12: four residual blocks of three 3x3 convolutions, each halving the image; MetaOptNet's embedding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.errors import FewoneError
from fewone.networks.conv import channels_last
from fewone.networks.embedding import Embedding
from fewone.networks.norms import RunningNorm, Statistics, SupportNorm

Norm = Literal["none", "support", "running"]
SLOPE = 0.1
NORMS_PER_BLOCK = 4


class NormedConvolution(nn.Module):
    """A convolution without bias and its norm, or, without norm, a convolution with bias."""

    def __init__(self, channels: int, filters: int, kernel: int, norm: Norm) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, filters, kernel, padding="same", bias=norm == "none")
        nn.init.kaiming_normal_(self.convolution.weight, SLOPE, mode="fan_out", nonlinearity="leaky_relu")
        self.norm: nn.Module | None = None
        if norm != "none":
            self.norm = SupportNorm(filters) if norm == "support" else RunningNorm(filters)

    def forward(self, inputs: Tensor, statistics: Statistics | None) -> tuple[Tensor, Statistics]:
        values = self.convolution(inputs)
        if self.norm is None:
            return values, ()
        normed: tuple[Tensor, Statistics] = self.norm(values, statistics)
        return normed


class ResidualBlock(nn.Module):
    """Three convolutions beside a 1x1 shortcut: inputs (n, channels, h, w) -> (n, filters, h/2, w/2)."""

    def __init__(self, channels: int, filters: int, norm: Norm) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            NormedConvolution(before, filters, 3, norm) for before in (channels, filters, filters)
        )
        self.shortcut = NormedConvolution(channels, filters, 1, norm)

    def forward(self, inputs: Tensor, given: Iterator[Statistics | None]) -> tuple[Tensor, Statistics]:
        found: list[Tensor] = []
        values = inputs
        for number, layer in enumerate(self.layers):
            values, used = layer(values if number == 0 else F.leaky_relu(values, SLOPE), next(given))
            found.extend(used)
        passed, used = self.shortcut(inputs, next(given))
        found.extend(used)
        # Max pooling and leaky ReLU commute; pooling first leaves a quarter of the work.
        return F.leaky_relu(F.max_pool2d(values + passed, 2), SLOPE), tuple(found)


class ResNet12(Embedding):
    """Images (n, channels, h, w) -> the last map, flattened (n, width).

    drop_rate: after each block, in training only, this share of the map is set to zero: single points after the first
    two blocks, squares of side drop_block after the last two (DropBlock). The masks depend on `drop_seed`, drawn with
    the initial weights, and on the number of training passes so far; both are kept with the weights, so a resumed run
    drops the same as an uninterrupted one.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        filters: tuple[int, ...] = (64, 160, 320, 640),
        norm: Norm = "running",
        drop_rate: float = 0.0,
        drop_block: int = 5,
    ) -> None:
        super().__init__()
        if len(shape) != 3 or min(shape[1:]) < 16:
            raise FewoneError(f"resnet12 needs images (channels, height, width) of 16 or more per side, not {shape}")
        if len(filters) != 4:
            raise FewoneError(f"resnet12 has 4 blocks: give 4 numbers of filters (64 160 320 640), not {filters}")
        if not 0 <= drop_rate < 1 or drop_block < 1:
            raise FewoneError(f"drop_rate is {drop_rate}, drop_block {drop_block}: in [0, 1) and at least 1 are needed")
        self.blocks = nn.ModuleList(
            ResidualBlock(before, after, norm) for before, after in pairwise((shape[0], *filters))
        )
        self.takes_statistics = norm == "support"
        self.drop_rate, self.drop_sides = drop_rate, (1, 1, drop_block, drop_block)
        self.drop_seed: Tensor
        self.drop_passes: Tensor
        self.register_buffer("drop_seed", torch.randint(2**31, ()))
        self.register_buffer("drop_passes", torch.tensor(0))
        self.width = filters[-1] * (shape[1] // 16) * (shape[2] // 16)

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        dropping = self.training and self.drop_rate > 0
        generator = torch.Generator()
        if dropping:
            generator.manual_seed((int(self.drop_seed) << 32) + int(self.drop_passes))
            self.drop_passes += 1
        given = self._deal(statistics)
        found: list[Tensor] = []
        values = channels_last(inputs)
        for block, side in zip(self.blocks, self.drop_sides, strict=True):
            values, used = block(values, given)
            found.extend(used)
            if dropping:
                values = drop_squares(values, self.drop_rate, side, generator)
        return values.flatten(1), tuple(found)

    def _deal(self, statistics: Statistics | None) -> Iterator[Statistics | None]:
        """Mean and variance for one norm after the other, in the order of the forward pass."""
        for number in range(NORMS_PER_BLOCK * len(self.blocks)):
            yield statistics[2 * number : 2 * number + 2] if self.takes_statistics and statistics else None


def drop_squares(values: Tensor, rate: float, side: int, generator: torch.Generator) -> Tensor:
    """DropBlock (Ghiasi et al. 2018): zero squares that cover about `rate` of each map, scale up what stays.

    values (n, channels, h, w); squares lie wholly inside a map, and are no larger than it.
    """
    height, width = values.shape[-2:]
    side = min(side, height, width)
    corners = (height - side + 1, width - side + 1)
    chance = rate * height * width / (side**2 * corners[0] * corners[1])
    seeds = torch.rand((*values.shape[:2], *corners), generator=generator) < chance
    dropped = F.max_pool2d(F.pad(seeds.to(values), (side - 1,) * 4), side, stride=1)
    kept = 1 - dropped
    return values * kept * (kept.numel() / kept.sum().clamp_min(1))
