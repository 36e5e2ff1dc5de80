"""Which network: the settings that travel in an experiment, and the table that builds from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fewone.errors import FewoneError
from fewone.networks.conv import ConvEmbedding
from fewone.networks.support_norm import Embedding


@dataclass(frozen=True)
class NetworkSettings:
    """architecture: a name of NETWORKS. filters: one convolution block each. norm: none, or batch norm.

    norm "support" takes its statistics from the support set; "running" is ordinary batch norm with running averages.
    norm_place: before the ReLU (conv, norm, ReLU, pool) or last (conv, ReLU, pool, norm).
    """

    architecture: str = "conv"
    filters: tuple[int, ...] = (32, 32, 32, 32)
    kernel: int = 3
    norm: Literal["none", "support", "running"] = "none"
    norm_place: Literal["before-relu", "last"] = "before-relu"


def _build_conv(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    return ConvEmbedding(shape, settings.filters, settings.kernel, settings.norm, settings.norm_place)


NETWORKS: dict[str, Callable[[NetworkSettings, tuple[int, ...]], Embedding]] = {
    "conv": _build_conv,
}


def build_embedding(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    """The embedding for inputs of this shape (channels first)."""
    if settings.architecture not in NETWORKS:
        raise FewoneError(f"no network is called {settings.architecture!r}; there are {', '.join(NETWORKS)}")
    return NETWORKS[settings.architecture](settings, shape)
