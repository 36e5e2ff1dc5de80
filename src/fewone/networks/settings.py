"""Which network: the settings that travel in an experiment, and the table that builds from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fewone.documents import Limit, Positive, at_least
from fewone.errors import FewoneError
from fewone.networks.conv import ConvEmbedding
from fewone.networks.efficientnet_lite import FROZEN, FrozenPictures
from fewone.networks.embedding import Embedding
from fewone.networks.front_ends import LogSpectrogram
from fewone.networks.norms import RunningNorm, Statistics
from fewone.networks.random_convolution import RandomConvolution
from fewone.networks.resnet12 import ResNet12


@dataclass(frozen=True)
class NetworkSettings:
    """architecture: a name of NETWORKS. filters: one convolution block each. norm: none, or batch norm.

    norm "support" takes its statistics from the support set; "running" is ordinary batch norm with running averages.
    norm_place: before the ReLU (conv, norm, ReLU, pool) or last (conv, ReLU, pool, norm).
    halving: when a map of odd size is pooled, its last row and column are dropped (floor) or kept (ceil, as in the
    authors' program, whose norm_place is "last": on 28 x 28 images the last map is then 2 x 2 instead of 1 x 1).
    pooling: the last map flattened, or the mean and the maximum of each of its channels.
    front_end: a fixed transform of series before the network; window, hop (samples) and bands: the log-spectrogram's.
    kernels: how many of random-convolution.
    drop_rate, drop_block: resnet12, in training: the share of each block's output that is dropped, in squares of this
    side. efficientnet-lite0 is frozen and takes pictures of every size; it reads the norm alone, "running" or "none".
    resnet12 takes four filters (64, 160, 320, 640 in the literature) and the norm; kernel and places are fixed.
    """

    architecture: str = "conv"
    filters: Annotated[
        tuple[int, ...],
        Limit(lambda value: len(value) > 0 and min(value) >= 1, "a list of whole numbers of at least 1"),
    ] = (32, 32, 32, 32)
    kernel: Annotated[int, Limit(lambda value: value >= 1 and value % 2 == 1, "an odd whole number")] = 3
    norm: Literal["none", "support", "running"] = "none"
    norm_place: Literal["before-relu", "last"] = "before-relu"
    halving: Literal["floor", "ceil"] = "floor"
    pooling: Literal["flatten", "mean-max"] = "flatten"
    front_end: Literal["none", "log-spectrogram"] = "none"
    window: Annotated[int, at_least(2, "a whole number")] = 256
    hop: Positive = 128
    bands: Positive = 32
    kernels: Positive = 256
    drop_rate: Annotated[float, Limit(lambda value: 0 <= value < 1, "a number from 0 to below 1")] = 0.0
    drop_block: Positive = 5


class FrontEndEmbedding(Embedding):
    """A front end, each of its channels centred and scaled over the training inputs, then the network."""

    def __init__(self, front_end: LogSpectrogram, body: Embedding) -> None:
        super().__init__()
        self.front_end, self.body = front_end, body
        self.norm = RunningNorm(front_end.shape[0], affine=False)
        self.width = body.width
        self.takes_statistics = body.takes_statistics

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        normed, _ = self.norm(self.front_end(inputs))
        features, found = self.body(normed, statistics)
        return features, found


class IdentityEmbedding(Embedding):
    """The inputs themselves, flattened: for plain tables of any width."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.width = math.prod(shape)
        self.takes_statistics = False

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        return inputs.flatten(1), ()


def _build_conv(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    return ConvEmbedding(
        shape,
        settings.filters,
        settings.kernel,
        settings.norm,
        settings.norm_place,
        settings.pooling,
        settings.halving,
    )


def _build_resnet12(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    return ResNet12(shape, settings.filters, settings.norm, settings.drop_rate, settings.drop_block)


def _build_identity(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    return IdentityEmbedding(shape)


def _build_random_convolution(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    return RandomConvolution(shape, settings.kernels)


def _build_frozen(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    return FrozenPictures(settings.norm)


NETWORKS: dict[str, Callable[[NetworkSettings, tuple[int, ...]], Embedding]] = {
    "conv": _build_conv,
    "resnet12": _build_resnet12,
    "identity": _build_identity,
    "random-convolution": _build_random_convolution,
    FROZEN: _build_frozen,
}


def build_front_end(settings: NetworkSettings, shape: tuple[int, ...]) -> LogSpectrogram | None:
    """The front end that the settings ask for, or None."""
    if settings.front_end == "none":
        return None
    return LogSpectrogram(shape, settings.window, settings.hop, settings.bands)


def build_embedding(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    """The embedding for inputs of this shape (channels first)."""
    if settings.architecture not in NETWORKS:
        raise FewoneError(f"no network is called {settings.architecture!r}; there are {', '.join(NETWORKS)}")
    build = NETWORKS[settings.architecture]
    front_end = build_front_end(settings, shape)
    return (
        build(settings, shape) if front_end is None else FrontEndEmbedding(front_end, build(settings, front_end.shape))
    )
