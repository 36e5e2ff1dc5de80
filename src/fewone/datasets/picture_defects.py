"""Defects made in code: pure functions of a picture, where its material is, and a generator.

Each gives the picture with the defect and the mask of the pixels that it changed visibly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.special import expit

from fewone.datasets.synthetic_products import Image, Picture, smooth_noise

Mask = NDArray[np.bool_]
VISIBLE = 0.03
"""A pixel belongs to the mask where any colour changed by more than this."""


def add_defect(picture: Picture, kind: str, rng: Generator) -> tuple[Image, Mask]:
    """The pixels with a defect of this kind of DEFECTS, and its mask (side, side).

    Drawn again, at most twenty times, while nothing visible came of it (a blur on a plain place).

    Examples
    --------
    >>> import numpy as np
    >>> from fewone.datasets.picture_defects import add_defect
    >>> from fewone.datasets.synthetic_products import draw_products
    >>> pixels, mask = add_defect(draw_products("grain", 0, 1, side=64)[0], "scratch", np.random.default_rng(0))
    >>> pixels.shape, bool(mask.any())
    ((64, 64, 3), True)
    """
    for _ in range(20):
        pixels = np.clip(DEFECTS[kind](picture, rng), 0.0, 1.0)
        mask = np.abs(pixels - picture.pixels).max(-1) > VISIBLE
        if mask.sum() >= 8:
            break
    return pixels, mask


def _place(picture: Picture, rng: Generator) -> tuple[int, int]:
    """A pixel of the material."""
    rows, columns = np.nonzero(picture.material)
    number = rng.integers(len(rows))
    return int(rows[number]), int(columns[number])


def _distance(picture: Picture, row: float, column: float) -> tuple[Image, Image]:
    """Rows and columns from a place, in shares of the side."""
    side = len(picture.pixels)
    line = np.arange(side)
    return (line[:, None] - row) / side, (line[None, :] - column) / side


def _spot(picture: Picture, rng: Generator, small: float, large: float, rough: float = 0.25) -> Image:
    """A soft irregular spot on the material, 1 inside and 0 outside, of a radius between two shares of the side."""
    rows, columns = _distance(picture, *_place(picture, rng))
    angle, ratio, radius = rng.uniform(0, math.pi), rng.uniform(1.0, 2.5), rng.uniform(small, large)
    along = columns * math.cos(angle) + rows * math.sin(angle)
    across = rows * math.cos(angle) - columns * math.sin(angle)
    reach = np.hypot(along / math.sqrt(ratio), across * math.sqrt(ratio)) / radius
    reach = reach * (1 + rough * smooth_noise(rng, len(picture.pixels), 1.8))
    spot: Image = expit((1.0 - reach) * 12) * picture.material
    return spot


def _mix(pixels: Image, other: Image, share: Image) -> Image:
    return pixels + (other - pixels) * share[..., None]


def _stroke(picture: Picture, rng: Generator, length: float, thickness: float, bend: float) -> Image:
    """A line that wanders, 1 inside and 0 outside."""
    rows, columns = _distance(picture, *_place(picture, rng))
    angle = rng.uniform(0, 2 * math.pi)
    along = columns * math.cos(angle) + rows * math.sin(angle)
    across = rows * math.cos(angle) - columns * math.sin(angle)
    across = across - bend * along**2 - 0.01 * np.sin(along * rng.uniform(5, 30))
    line = np.exp(-((across / thickness) ** 2)) * (np.abs(along) < length / 2)
    return line * picture.material


def _cut_paste(picture: Picture, rng: Generator) -> Image:
    """A piece of the picture turned and laid elsewhere."""
    side = len(picture.pixels)
    height, width = (max(4, int(side * rng.uniform(0.05, 0.2))) for _ in range(2))
    top, left = (int(rng.integers(0, side - size + 1)) for size in (height, width))
    piece = picture.pixels[top : top + height, left : left + width]
    piece = np.rot90(piece, int(rng.integers(1, 4)))
    piece = np.clip(
        (piece - piece.mean((0, 1))) * rng.uniform(0.7, 1.3) + piece.mean((0, 1)) + rng.normal(0, 0.05), 0, 1
    )
    row, column = _place(picture, rng)
    row, column = (
        min(max(0, at - size // 2), side - size) for at, size in zip((row, column), piece.shape, strict=False)
    )
    pixels = picture.pixels.copy()
    pixels[row : row + piece.shape[0], column : column + piece.shape[1]] = piece
    return pixels


def _scratch(picture: Picture, rng: Generator) -> Image:
    line = _stroke(picture, rng, rng.uniform(0.15, 0.6), rng.uniform(0.003, 0.009), rng.uniform(-0.5, 0.5))
    tone = np.full(3, rng.choice([rng.uniform(0.0, 0.2), rng.uniform(0.8, 1.0)]))
    return _mix(picture.pixels, tone, line * rng.uniform(0.4, 0.9))


def _blob(picture: Picture, rng: Generator) -> Image:
    colour = np.clip(
        picture.pixels.mean((0, 1)) + rng.choice([-1, 1]) * rng.uniform(0.15, 0.4) + rng.normal(0, 0.1, 3), 0, 1
    )
    return _mix(picture.pixels, colour, _spot(picture, rng, 0.015, 0.06))


def _stain(picture: Picture, rng: Generator) -> Image:
    """Large and faint: the material shows through."""
    spot = _spot(picture, rng, 0.06, 0.18, rough=0.5)
    return picture.pixels * (1 - spot[..., None] * rng.uniform(0.15, 0.45, 3))


def _blur(picture: Picture, rng: Generator) -> Image:
    sigma = len(picture.pixels) * rng.uniform(0.008, 0.03)
    smooth = gaussian_filter(picture.pixels, (sigma, sigma, 0))
    return _mix(picture.pixels, smooth, _spot(picture, rng, 0.08, 0.2))


def _hole(picture: Picture, rng: Generator) -> Image:
    """A dark pit with a bright rim below it."""
    spot = _spot(picture, rng, 0.01, 0.04, rough=0.1)
    rim = np.clip(np.roll(spot, 2, axis=0) - spot, 0, 1)
    dark = _mix(picture.pixels, np.full(3, rng.uniform(0.0, 0.12)), spot)
    return dark + 0.4 * rim[..., None]


def _colour_shift(picture: Picture, rng: Generator) -> Image:
    shift = rng.normal(0, 1, 3)
    shift *= rng.uniform(0.08, 0.2) / np.abs(shift).max()
    return picture.pixels + shift * _spot(picture, rng, 0.08, 0.25)[..., None]


def _missing_part(picture: Picture, rng: Generator) -> Image:
    """A piece broken off the rim: the ground shows; what fills the picture breaks off at its edge, before black."""
    side = len(picture.pixels)
    rows, columns = np.arange(side)[:, None], np.arange(side)[None, :]
    inner = picture.material & ((rows > 0) & (rows < side - 1) & (columns > 0) & (columns < side - 1))
    rim = picture.material & (gaussian_filter(inner.astype(float), 2.0) < 0.9)
    row, column = _place(Picture(picture.pixels, rim if rim.any() else picture.material), rng)
    down, right = _distance(picture, row, column)
    reach = np.hypot(down, right) * (1 + 0.2 * smooth_noise(rng, side, 1.6)) / rng.uniform(0.04, 0.13)
    share = expit((1.0 - reach) * 25) * picture.material
    outside = ~picture.material
    ground = picture.pixels[outside].mean(0) if outside.any() else np.full(3, 0.03)
    return _mix(picture.pixels, ground, share)


def _crack(picture: Picture, rng: Generator) -> Image:
    """A thin dark line with branches."""
    share = np.zeros(picture.material.shape)
    for _ in range(int(rng.integers(2, 4))):
        share = np.maximum(
            share, _stroke(picture, rng, rng.uniform(0.1, 0.3), rng.uniform(0.002, 0.005), rng.normal(0, 2))
        )
    return _mix(picture.pixels, np.full(3, rng.uniform(0.0, 0.15)), share * rng.uniform(0.5, 0.9))


def _bump(picture: Picture, rng: Generator) -> Image:
    """A dent: what lies there is displaced and one side is lit."""
    side = len(picture.pixels)
    row, column = _place(picture, rng)
    down, right = _distance(picture, row, column)
    radius = rng.uniform(0.04, 0.12)
    weight = np.exp(-((np.hypot(down, right) / radius) ** 2))
    pull = rng.uniform(-0.7, 0.7) * radius * side
    rows = np.clip(np.arange(side)[:, None] + pull * weight, 0, side - 1).astype(int)
    columns = np.clip(np.arange(side)[None, :] + pull * weight, 0, side - 1).astype(int)
    lit = rng.uniform(0.1, 0.3) * (down * math.cos(pull) + right * math.sin(pull)) / radius * weight
    moved = picture.pixels[rows, columns] + lit[..., None]
    return np.where(picture.material[..., None], moved, picture.pixels)


DEFECTS: dict[str, Callable[[Picture, Generator], Image]] = {
    "cut-paste": _cut_paste,
    "scratch": _scratch,
    "blob": _blob,
    "stain": _stain,
    "blur": _blur,
    "hole": _hole,
    "colour-shift": _colour_shift,
    "missing-part": _missing_part,
    "crack": _crack,
    "bump": _bump,
}
