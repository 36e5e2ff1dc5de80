"""Kinds of evidence for pictures (3, side, side) in 0..255: what a frozen network sees of them, at two sizes.

A picture is seen in patches. For a place of the query the nearest patch of a normal is looked for, anywhere in it
(surfaces, parts that lie anyhow) or around the same place (parts that lie alike); the worst places count. Beside them
stand what the network says of the whole picture, and its texture.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.learners.evidence_kinds.kind import EvidenceKind, Features, View
from fewone.learners.evidence_kinds.series import pair_up
from fewone.networks.efficientnet_lite import Maps, load_backbone

PLACES, COARSE, DEEP = 28, 14, 10
"""Patches a side: of low and middle layers, of high ones, and of the last one."""
LARGE = 320
"""The side at which pictures are seen a second time: the network tells more of things that fill more of its sight."""
AROUND = 1
"""So many deep places to each side are the same place: no part lies exactly as the others do."""
WORST, WORST_COARSE = 0.02, 0.04
"""The worst place is the mean over this share of the places: one patch alone is often an accident of a surface."""
WIDTHS = {"low": 24, "middle": 40, "high": 112, "deep": 320, "last": 320, "pooled": 1280}
"""Channels of what the network gives."""


class Photographs(View):
    """What EfficientNet-Lite0 sees, each channel in units of its deviation over pictures of many kinds.

    Patches of low (n, 784, 24), middle (n, 784, 152) and high layers (n, 196, 112); seen large, of the last one
    (n, 100, 320), the whole (n, 1280) and (n, 320); seen as it is, the whole (n, 320) and texture (n, 224). The units
    come with a model's weights.
    """

    low_unit: Tensor
    middle_unit: Tensor
    high_unit: Tensor
    deep_unit: Tensor
    last_unit: Tensor
    pooled_unit: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.network = load_backbone()
        for name, width in WIDTHS.items():
            self.register_buffer(f"{name}_unit", torch.ones(width))

    def forward(self, inputs: Tensor) -> Features:
        if torch.compiler.is_compiling():
            return self._see(inputs)
        # One picture at a time stays in the cache: twice as fast as all of them together.
        seen = [self._see(one) for one in torch.split(inputs, 1)]
        return tuple(torch.cat(parts) for parts in zip(*seen, strict=True))

    def _see(self, inputs: Tensor) -> Features:
        maps: Maps = self.network(inputs)
        large: Maps = self.network(F.interpolate(inputs, (LARGE, LARGE), mode="bilinear", align_corners=False))
        low, middle, high, deep = (
            found / unit.view(-1, 1, 1)
            for found, unit in (
                (maps.low, self.low_unit),
                (maps.middle, self.middle_unit),
                (maps.high, self.high_unit),
                (large.deep, self.deep_unit),
            )
        )
        grown = F.interpolate(high, size=(PLACES, PLACES), mode="bilinear", align_corners=False)
        return (
            as_patches(F.avg_pool2d(_smooth(low), 2)),
            as_patches(torch.cat([_smooth(middle), grown], 1)),
            as_patches(high),
            as_patches(deep),
            large.pooled / self.pooled_unit,
            large.last / self.last_unit,
            maps.last / self.last_unit,
            _find_moments(high),
        )


def as_patches(maps: Tensor) -> Tensor:
    """(n, width, rows, columns) -> (n, places, width)."""
    return maps.flatten(2).transpose(1, 2)


def _smooth(maps: Tensor) -> Tensor:
    return F.avg_pool2d(maps, 3, 1, 1, count_include_pad=False)


def _find_moments(maps: Tensor) -> Tensor:
    """Mean and deviation of each channel over the places."""
    mean = maps.mean((-2, -1))
    centred = maps - mean[..., None, None]
    return torch.cat([mean, centred.square().mean((-2, -1)).sqrt()], -1)


def compare_anywhere(number: int) -> Callable[[Features, Features], Tensor]:
    """Feature `number`: each patch of a query against all patches of each normal, (T, n, K, places)."""

    def compare(queries: Features, normals: Features) -> Tensor:
        return match(queries[number], normals[number])

    return compare


def compare_in_place(number: int) -> Callable[[Features, Features], Tensor]:
    """Feature `number`: each patch of a query against those around the same place of each normal, (T, n, K, places)."""

    def compare(queries: Features, normals: Features) -> Tensor:
        return match_in_place(queries[number], normals[number])

    return compare


def match(queries: Tensor, normals: Tensor) -> Tensor:
    """Mean squared distance of patches (T, n, P, D) to the nearest patch of each of (T, K, P, D): (T, n, K, P)."""
    middle = normals.mean((1, 2), keepdim=True)
    left, right = queries - middle, (normals - middle).transpose(-1, -2)
    lengths = right.square().sum(-2)  # (T, K, P)
    if torch.compiler.is_compiling():
        nearest = (lengths[:, None, :, None] - 2.0 * (left.unsqueeze(2) @ right.unsqueeze(1))).amin(-1)
    else:
        tasks = zip(left, right, lengths, strict=True)
        nearest = torch.stack([torch.stack([_find_nearest(one, *normal) for one in ones]) for ones, *normal in tasks])
    squares = nearest + left.square().sum(-1).unsqueeze(2)
    return squares.clamp_min(0.0) / queries.shape[-1]


def _find_nearest(one: Tensor, others: Tensor, lengths: Tensor) -> Tensor:
    """Patches (P, D) and those of K pictures (K, D, P): least of |other|^2 - 2 one . other, (K, P).

    Picture by picture: the distances of all patches of two pictures stay in the cache.
    """
    pairs = zip(others, lengths, strict=True)
    return torch.stack([torch.addmm(length, one, other, alpha=-2.0).amin(-1) for other, length in pairs])


def match_in_place(queries: Tensor, normals: Tensor) -> Tensor:
    """The same within AROUND places to each side: (T, n, P, D), (T, K, P, D) -> (T, n, K, P)."""
    tasks, size = normals.shape[:2]
    grid = torch.unflatten(normals.flatten(0, 1).transpose(1, 2), -1, (DEEP, DEEP))
    padded = F.pad(grid, (AROUND,) * 4, mode="replicate")
    found: Tensor | None = None
    for down in range(2 * AROUND + 1):
        for right in range(2 * AROUND + 1):
            moved = padded[..., down : down + DEEP, right : right + DEEP].flatten(2).transpose(1, 2)
            others = torch.unflatten(moved, 0, (tasks, size)).unsqueeze(1)
            squares = (queries.unsqueeze(2) - others).square().mean(-1)
            found = squares if found is None else torch.minimum(found, squares)
    assert found is not None
    return found


def compare_feature(number: int) -> Callable[[Features, Features], Tensor]:
    """Feature `number` as it is: (T, n, K, 1)."""

    def compare(queries: Features, normals: Features) -> Tensor:
        return pair_up(queries[number], normals[number])

    return compare


PICTURE_VIEWS: dict[str, Callable[[], View]] = {"photographs": Photographs}

FINE_GRID, COARSE_GRID, DEEP_GRID = (PLACES, PLACES), (COARSE, COARSE), (DEEP, DEEP)
PICTURE_KINDS = {
    "patches": EvidenceKind("worst place", "photographs", compare_anywhere(1), worst=True, share=WORST, grid=FINE_GRID),
    "fine-patches": EvidenceKind(
        "worst place of the fine structure", "photographs", compare_anywhere(0), worst=True, share=WORST, grid=FINE_GRID
    ),
    "coarse-patches": EvidenceKind(
        "worst place of the coarse structure",
        "photographs",
        compare_anywhere(2),
        worst=True,
        share=WORST_COARSE,
        grid=COARSE_GRID,
    ),
    "in-place": EvidenceKind(
        "worst place, where it lies", "photographs", compare_in_place(3), worst=True, grid=DEEP_GRID
    ),
    "whole": EvidenceKind("the whole picture", "photographs", compare_feature(4)),
    "object": EvidenceKind("what is shown", "photographs", compare_feature(5)),
    "glance": EvidenceKind("what is shown, seen from afar", "photographs", compare_feature(6)),
    "surface": EvidenceKind("texture of the picture", "photographs", compare_feature(7)),
}
