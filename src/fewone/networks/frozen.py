"""A frozen network as an embedding: pictures, or what it saw of them before, -> features. Nothing of it is trained."""

from __future__ import annotations

import torch
from torch import Tensor

from fewone.errors import FewoneError
from fewone.networks.efficientnet_lite import Maps, load_backbone
from fewone.networks.embedding import Embedding, Statistics
from fewone.networks.norms import RunningNorm

FROZEN = "efficientnet-lite0"
"""Its name among the networks."""
WIDTH = 1280 + 320 + 2 * (112 + 40 + 24)


def see_pictures(pictures: Tensor) -> Tensor:
    """Pictures (n, 3, side, side) in 0..255 -> features (n, WIDTH): the whole, and the mean and the deviation over the
    places of each channel of three layers."""
    if torch.compiler.is_compiling():
        return _see(pictures)
    # One picture at a time stays in the cache.
    return torch.cat([_see(one) for one in torch.split(pictures, 1)]) if len(pictures) else pictures.new_zeros(0, WIDTH)


def _see(pictures: Tensor) -> Tensor:
    maps: Maps = load_backbone()(pictures)
    layers = [_find_moments(one) for one in (maps.high, maps.middle, maps.low)]
    return torch.cat([maps.pooled, maps.last, *layers], -1)


def _find_moments(maps: Tensor) -> Tensor:
    mean = maps.mean((-2, -1))
    return torch.cat([mean, (maps - mean[..., None, None]).square().mean((-2, -1)).sqrt()], -1)


class FrozenPictures(Embedding):
    """Pictures (n, 3, side, side), or their features (n, WIDTH) as `see_pictures` gave them before.

    norm: "running" centres and scales every feature over the training pictures, "none" leaves them.
    """

    takes_statistics = False

    def __init__(self, norm: str = "running") -> None:
        super().__init__()
        if norm == "support":
            raise FewoneError(f'the frozen network {FROZEN} has no norm of its own: set norm to "running" or "none"')
        load_backbone()
        self.width = WIDTH
        self.norm = RunningNorm(WIDTH, affine=False) if norm == "running" else None

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        features = inputs if inputs.dim() == 2 else see_pictures(inputs)
        return (features if self.norm is None else self.norm(features)[0]), ()
