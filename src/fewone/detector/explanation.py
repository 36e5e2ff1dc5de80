"""A scorer and inputs -> where the anomaly is: a map of the shape of each input. Works for every scorer.

Asks what the scorer would say if a patch of the input looked like the normals; needs no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

Logits = Callable[[Tensor], Tensor]
"""inputs (n, *shape) -> anomaly logits (n,)."""

SERIES_PARTS, PICTURE_PARTS = (32, 16, 8), (8, 4)
"""Patches are these parts of a series' length, of a picture's sides."""
NEAREST = 3
"""How many normals a patch of a picture or table is repaired from."""
BLOCK_VALUES = 1 << 20


@torch.inference_mode()
def explain(score: Logits, inputs: Tensor, normals: Tensor) -> Tensor:
    """How much of each input's logit each place carries: inputs (n, *shape), normals (K, *shape) -> (n, *shape).

    Every patch is repaired, that is replaced by what normals have there, and the input scored again: a place counts
    with the mean drop of the logit over the patches that hold it. Small patches say where, but may leave a part of the
    anomaly standing; large ones take all of it away, but blur: the map is the geometric mean over the sizes. Series and
    tables are repaired one channel at a time, pictures all channels at once.
    """
    maps = [_explain_one(score, one, normals) for one in inputs]
    return torch.stack(maps) if maps else torch.zeros_like(inputs)


def _explain_one(score: Logits, one: Tensor, normals: Tensor) -> Tensor:
    """one (*shape) -> (*shape)."""
    whole = score(one[None])[0]
    logs = []
    for masks, repaired in _repairs(one, normals):
        logits = _score_blocks(score, repaired.flatten(0, 1)).view(repaired.shape[:2])
        drop = (whole - logits.amin(0)).clamp_min(0.0)
        relevance = torch.tensordot(drop, masks.to(one.dtype), 1) / masks.sum(0)
        # A size that sees nothing at a place must not silence the others altogether.
        logs.append((relevance + 1e-3 * relevance.max() + torch.finfo(one.dtype).tiny).log())
    return torch.stack(logs).mean(0).exp()


def _score_blocks(score: Logits, inputs: Tensor) -> Tensor:
    at_once = max(1, BLOCK_VALUES // inputs[0].numel())
    return torch.cat([score(block) for block in torch.split(inputs, at_once)])


def _repairs(one: Tensor, normals: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Size by size: masks (m, *shape) of the patches, which cover every place, and repaired inputs (r, m, *shape)."""
    channels, *space = one.shape
    if len(space) == 1:
        for size in _sizes(space[0], SERIES_PARTS):
            yield _repair_series(one, normals, size)
        return
    order = (normals - one).flatten(1).square().sum(1).argsort()
    fills = torch.cat([normals[order[:NEAREST]], normals.mean(0, keepdim=True)])
    for masks in _picture_masks(channels, space) if space else [torch.eye(channels, dtype=torch.bool)]:
        yield masks, torch.where(masks, fills.unsqueeze(1), one)


def _sizes(side: int, parts: tuple[int, ...]) -> list[int]:
    return sorted({-(-side // part) for part in parts})


def _starts(side: int, size: int, overlaps: int) -> list[int]:
    """Where segments of `size` begin, one every size / overlaps; the last ends where the side ends."""
    return sorted({*range(0, side - size + 1, max(1, size // overlaps)), side - size})


def _picture_masks(channels: int, space: list[int]) -> Iterator[Tensor]:
    for part in PICTURE_PARTS:
        sizes = [-(-side // part) for side in space]
        starts = [_starts(side, size, 2) for side, size in zip(space, sizes, strict=True)]
        places = list(product(*starts))
        masks = torch.zeros((len(places), channels, *space), dtype=torch.bool)
        for mask, (top, left) in zip(masks, places, strict=True):
            mask[:, top : top + sizes[0], left : left + sizes[1]] = True
        yield masks


def _repair_series(one: Tensor, normals: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Segments of each channel of (channels, length), filled twice: from a normal that fits around, and straight."""
    channels, length = one.shape
    starts = torch.tensor(_starts(length, size, 4))
    count = len(starts)
    masks = torch.zeros((channels, count, channels, length), dtype=torch.bool)
    repaired = one.expand(2, channels, count, channels, length).clone()
    inside = starts[:, None] + torch.arange(size)
    rows = torch.arange(count)[:, None]
    for channel in range(channels):
        masks[channel, rows, channel, inside] = True
        repaired[0, channel, rows, channel, inside] = _find_filling(one[channel], normals[:, channel], starts, size)
        repaired[1, channel, rows, channel, inside] = _bridge(one[channel], starts, size)
    return masks.flatten(0, 1), repaired.flatten(1, 2)


def _find_filling(line: Tensor, normals: Tensor, starts: Tensor, size: int) -> Tensor:
    """The segment of any normal (K, length), at any time, whose surroundings are nearest to each segment's: (m, size).

    At any time, because a signal's phase is arbitrary: what the same time steps of another window hold fits nowhere.
    """
    around = min(max(4, size), (len(line) - size) // 2)
    window = torch.arange(size + 2 * around)
    padded, known = (F.pad(values, (around, around)) for values in (line, torch.ones_like(line)))
    seen = padded[starts[:, None] + window]
    counts = known[starts[:, None] + window]
    counts[:, around : around + size] = 0.0
    choice = normals.unfold(1, len(window), 1).flatten(0, 1)
    distances = counts @ choice.square().T - 2.0 * (counts * seen) @ choice.T
    return choice[distances.argmin(1), around : around + size]


def _bridge(line: Tensor, starts: Tensor, size: int) -> Tensor:
    """A straight line between what lies before and after each segment, (m, size); level at the ends of the series."""
    last = len(line) - 1
    before, after = starts - 1, starts + size
    left = line[torch.where(before < 0, after.clamp_max(last), before)]
    right = line[torch.where(after > last, before.clamp_min(0), after)]
    share = torch.arange(1, size + 1) / (size + 1)
    return left[:, None] + (right - left)[:, None] * share.to(line.dtype)
