"""A scorer and inputs -> where the anomaly is: a map of the shape of each input. Works for every scorer.

Asks what the scorer would say if a patch of the input looked like the normals; needs no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

Logits = Callable[[Tensor], Tensor]
"""inputs (n, *shape) -> anomaly logits (n,)."""

NEAREST = 3
"""How many normals a patch is repaired from."""
PARTS = (64, 32, 16)
"""Patches are these parts of a series' length (of a picture's sides: the last two), each half overlapping the next."""
BLOCK_VALUES = 1 << 20


@torch.inference_mode()
def explain(score: Logits, inputs: Tensor, normals: Tensor) -> Tensor:
    """How much of each input's logit each place carries: inputs (n, *shape), normals (K, *shape) -> (n, *shape).

    A patch is repaired (replaced by what the nearest normals have there, or by a straight line across it) and the
    input scored again: the drop of the logit by the best repair counts for the patch, the more the smaller it is.
    Series and tables are repaired one channel at a time, pictures all channels at once.
    """
    if not len(inputs):
        return torch.zeros_like(inputs)
    masks = torch.stack(list(_patches(tuple(inputs.shape[1:])))).to(inputs.device)
    return torch.stack([_explain_one(score, one, normals, masks) for one in inputs])


def _explain_one(score: Logits, one: Tensor, normals: Tensor, masks: Tensor) -> Tensor:
    """one (*shape), masks (m, *shape) -> (*shape)."""
    order = (normals - one).flatten(1).square().sum(1).argsort()
    nearest = normals[order[:NEAREST]]
    whole = score(one[None])[0]
    relevance, cover = torch.zeros_like(one), torch.zeros_like(one)
    for block in torch.split(masks, max(1, BLOCK_VALUES // ((len(nearest) + 1) * one.numel()))):
        smooth = _bridge(one, block) if one.dim() == 2 else torch.where(block, normals.mean(0), one)
        repaired = torch.stack([smooth, *(torch.where(block, normal, one) for normal in nearest)])
        logits = score(repaired.flatten(0, 1)).view(repaired.shape[:2])
        drop = (whole - logits.amin(0)).clamp_min(0.0)
        share = 1.0 / block.flatten(1).sum(1).to(one.dtype)
        relevance += ((drop * share).view(-1, *(1,) * one.dim()) * block).sum(0)
        cover += (share.view(-1, *(1,) * one.dim()) * block).sum(0)
    return relevance / cover


def _patches(shape: tuple[int, ...]) -> Iterator[Tensor]:
    """Masks (*shape) that together cover every place: of each channel of a table or series, of a whole picture."""
    channels, *space = shape
    groups: list[slice] = [slice(0, channels)] if len(space) > 1 else [slice(c, c + 1) for c in range(channels)]
    for part in PARTS if len(space) == 1 else PARTS[-2:] if space else (1,):
        places = [_places(side, max(1, side // part)) for side in space]
        for group, place in product(groups, product(*places)):
            mask = torch.zeros(shape, dtype=torch.bool)
            mask[(group, *place)] = True
            yield mask


def _places(side: int, size: int) -> list[slice]:
    """Stretches of `size` that overlap by half and end where the side ends."""
    starts = {*range(0, side - size + 1, max(1, size // 2)), side - size}
    return [slice(start, start + size) for start in sorted(starts)]


def _bridge(one: Tensor, masks: Tensor) -> Tensor:
    """one (channels, length) with each mask's stretch replaced by the line between its edges, (m, channels, length)."""
    length = one.shape[-1]
    step = torch.arange(length, device=one.device)
    # The last place before a stretch and the first after it; at the ends of the series the inner one stands for both.
    before = torch.where(masks, -1, step).cummax(-1).values
    after = torch.where(masks, length, step).flip(-1).cummin(-1).values.flip(-1)
    before, after = torch.where(before < 0, after, before), torch.where(after >= length, before, after)
    before, after = before.clamp(0, length - 1), after.clamp(0, length - 1)
    values = one.expand(masks.shape)
    left, right = values.gather(-1, before), values.gather(-1, after)
    share = (step - before) / (after - before).clamp_min(1)
    return torch.where(masks, left + (right - left) * share, values)
