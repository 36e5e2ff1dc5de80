"""Products made in code: surfaces and objects of many families, each picture a little different. Needs no data.

A product is a family and a seed: `style` draws what all its pictures share, `each` what makes one differ (position,
rotation, lighting, noise). Used to choose between options of picture models without touching a real product.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import PIL.Image
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import expit

Image = NDArray[np.float64]
"""(side, side, 3) in 0..1, or one plane of it."""


class Picture(NamedTuple):
    """pixels (side, side, 3) in 0..1; material (side, side) bool: where the product is, and not its background."""

    pixels: Image
    material: NDArray[np.bool_]


def draw_products(family: str, seed: int, count: int, side: int = 224, first: int = 0) -> list[Picture]:
    """Pictures number `first` and on of one product.

    Examples
    --------
    >>> from fewone.datasets.synthetic_products import draw_products
    >>> draw_products("weave", seed=0, count=2, side=64)[0].pixels.shape
    (64, 64, 3)
    """
    found = []
    for number in range(first, first + count):
        key = [seed, sum(family.encode())]
        style, each = default_rng(key), default_rng([*key, 1 + number])
        found.append(_photograph(FAMILIES[family](style, each, side), style, each))
    return found


def smooth_noise(rng: Generator, side: int, exponent: float, stretch: float = 1.0, angle: float = 0.0) -> Image:
    """Noise whose amplitude falls with frequency as f ** -exponent, drawn out `stretch` times along `angle`.

    (side, side) with mean 0 and deviation 1.
    """
    rows, columns = np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None, :]
    along = columns * math.cos(angle) + rows * math.sin(angle)
    across = rows * math.cos(angle) - columns * math.sin(angle)
    frequency = np.hypot(along * stretch, across)
    frequency[0, 0] = 1.0
    weight = np.maximum(frequency, 1.0 / side) ** -exponent
    weight[0, 0] = 0.0
    field = np.fft.ifft2(np.fft.fft2(rng.standard_normal((side, side))) * weight).real
    scaled: Image = (field - field.mean()) / (field.std() + 1e-12)
    return scaled


def _photograph(picture: Picture, style: Generator, each: Generator) -> Picture:
    """Light from a side that wanders a little, exposure, noise of the sensor."""
    side = len(picture.pixels)
    slope, exposure, noise = style.uniform(0.0, 0.12), style.uniform(0.01, 0.05), style.uniform(0.004, 0.015)
    angle = style.uniform(0, 2 * math.pi) + each.normal(0, 0.2)
    rows, columns = _grid(side)
    light = 1.0 + slope * (columns * math.cos(angle) + rows * math.sin(angle)) + each.normal(0, exposure)
    pixels = picture.pixels * light[..., None] + noise * each.standard_normal((side, side, 1))
    return Picture(np.clip(pixels, 0.0, 1.0), picture.material)


def photograph_by_hand(pixels: Image, style: Generator, each: Generator) -> NDArray[np.uint8]:
    """Pixels (side, side, 3) in 0..1 as a hand and a cheap camera give them, (side, side, 3) in whole numbers.

    Turned and shifted a little, in other light from another side, with more noise, through JPEG; of half of the
    products grey. style: what all pictures of a product share; each: what makes one differ.
    """
    grey, side = style.random() < 0.5, len(pixels)
    turn, shift, gain, slope = (style.uniform(low, high) for low, high in ((0, 4), (0, 4), (0.02, 0.12), (0.02, 0.15)))
    noise, quality = style.uniform(0.002, 0.02), int(style.uniform(50, 92))
    if grey:
        pixels = np.repeat(pixels.mean(-1, keepdims=True), 3, -1)
    laid = np.asarray(_lay(_as_image(pixels), each.normal(0, turn), each.normal(0, shift, 2))) / 255.0
    rows, columns = _grid(side)
    angle = each.uniform(0, 2 * math.pi)
    tilt = rows * math.cos(angle) + columns * math.sin(angle)
    light = 1.0 + each.normal(0, gain) + each.normal(0, slope) * tilt
    lit = laid * light[..., None] + noise * each.standard_normal((side, side, 1))
    content = io.BytesIO()
    _as_image(lit).save(content, "JPEG", quality=quality)
    return np.asarray(PIL.Image.open(content).convert("RGB"))


def _as_image(pixels: Image) -> PIL.Image.Image:
    return PIL.Image.fromarray(np.rint(255 * np.clip(pixels, 0.0, 1.0)).astype(np.uint8))


def _lay(image: PIL.Image.Image, degrees: float, shift: NDArray[np.float64]) -> PIL.Image.Image:
    """Turned about its middle and moved by `shift` pixels; what comes in has the colour of the corners."""
    pixels = np.asarray(image)
    corners = pixels[[0, -1, 0, -1], [0, 0, -1, -1]].mean(0)
    ground = (int(corners[0]), int(corners[1]), int(corners[2]))
    moved = (round(float(shift[0])), round(float(shift[1])))
    return image.rotate(degrees, PIL.Image.Resampling.BILINEAR, translate=moved, fillcolor=ground)


def _grid(side: int) -> tuple[Image, Image]:
    """Rows (side, 1) and columns (1, side) from -1 to 1."""
    line = np.linspace(-1, 1, side)
    return line[:, None], line[None, :]


def _placed(side: int, each: Generator, turn: float, shift: float) -> tuple[Image, Image]:
    """Coordinates of an object that lies turned by up to `turn` and shifted by up to `shift`: along, across."""
    rows, columns = _grid(side)
    angle = each.uniform(-turn, turn)
    rows, columns = rows - each.uniform(-shift, shift), columns - each.uniform(-shift, shift)
    return (
        columns * math.cos(angle) + rows * math.sin(angle),
        rows * math.cos(angle) - columns * math.sin(angle),
    )


def _colour(style: Generator, low: float = 0.15, high: float = 0.85) -> Image:
    """Mostly greyish, as materials are."""
    grey = style.uniform(low, high)
    colour: Image = np.clip(grey + style.normal(0, 0.08, 3), 0.02, 0.98)
    return colour


def _blend(first: Image, second: Image, share: Image) -> Image:
    """Between two colours (3,) by share (side, side) in 0..1."""
    return first + (second - first) * np.clip(share, 0.0, 1.0)[..., None]


def _surface(pixels: Image) -> Picture:
    return Picture(pixels, np.ones(pixels.shape[:2], bool))


def _grain(style: Generator, each: Generator, side: int) -> Picture:
    exponent, contrast = style.uniform(0.4, 1.6), style.uniform(0.04, 0.15)
    one, two = _colour(style), _colour(style)
    return _surface(_blend(one, two, 0.5 + contrast * 2 * smooth_noise(each, side, exponent)))


def _brushed(style: Generator, each: Generator, side: int) -> Picture:
    angle, stretch = style.uniform(0, math.pi), style.uniform(10, 60)
    one, two = _colour(style, 0.35, 0.6), _colour(style, 0.55, 0.9)
    field = smooth_noise(each, side, style.uniform(0.3, 0.9), stretch, angle + each.normal(0, 0.02))
    return _surface(_blend(one, two, 0.5 + style.uniform(0.1, 0.25) * field))


def _weave(style: Generator, each: Generator, side: int) -> Picture:
    threads, angle = style.uniform(12, 36), style.uniform(0, math.pi) + each.normal(0, 0.02)
    one, two = _colour(style), _colour(style)
    rows, columns = _grid(side)
    wobble = style.uniform(0.2, 0.8)
    u = (columns * math.cos(angle) + rows * math.sin(angle)) * threads * math.pi / 2
    v = (rows * math.cos(angle) - columns * math.sin(angle)) * threads * math.pi / 2
    u = u + wobble * smooth_noise(each, side, 1.8) + each.uniform(0, 2 * math.pi)
    v = v + wobble * smooth_noise(each, side, 1.8) + each.uniform(0, 2 * math.pi)
    over = np.sign(np.sin(u / 2) * np.sin(v / 2))
    share = 0.5 + 0.25 * np.abs(np.sin(u)) * (over > 0) - 0.25 * np.abs(np.sin(v)) * (over <= 0)
    return _surface(_blend(one, two, share + 0.06 * smooth_noise(each, side, 0.3)))


def _wood(style: Generator, each: Generator, side: int) -> Picture:
    angle, rings = style.uniform(0, math.pi), style.uniform(4, 12)
    one, two = np.array([0.75, 0.55, 0.35]) * style.uniform(0.7, 1.2), np.array([0.45, 0.28, 0.15])
    rows, columns = _grid(side)
    across = rows * math.cos(angle) - columns * math.sin(angle)
    bend = style.uniform(0.1, 0.3) * smooth_noise(each, side, 2.0, 6.0, angle)
    stripes = 0.5 + 0.35 * np.sin(rings * math.pi * (across + bend) + each.uniform(0, 6))
    fibres = 0.12 * smooth_noise(each, side, 0.5, 40.0, angle)
    return _surface(_blend(one, two, stripes + fibres))


def _lattice(style: Generator, each: Generator, side: int) -> Picture:
    pitch, size, angle = style.uniform(9, 22), style.uniform(0.2, 0.38), style.choice([0.0, math.pi / 6, math.pi / 4])
    one, two = _colour(style, 0.45, 0.9), _colour(style, 0.05, 0.35)
    along, across = _placed(side, each, 0.03, 0.1)
    u = (along * math.cos(angle) + across * math.sin(angle)) * pitch / 2
    v = (across * math.cos(angle) - along * math.sin(angle)) * pitch / 2
    distance = np.hypot(u - np.round(u), v - np.round(v))
    share = expit((size - distance) * 40)
    return _surface(_blend(one, two, share + 0.04 * smooth_noise(each, side, 0.8)))


def _leather(style: Generator, each: Generator, side: int) -> Picture:
    """Cells around random points: the crease between two cells is dark."""
    count, depth = int(style.integers(60, 220)), style.uniform(0.3, 0.7)
    one = _colour(style, 0.25, 0.7)
    points = each.uniform(-1.1, 1.1, (count, 2))
    rows, columns = _grid(side)
    places = np.stack(np.broadcast_arrays(rows, columns), axis=-1)
    near = cKDTree(points).query(places, k=2)[0]
    crease = (near[..., 1] - near[..., 0]) * math.sqrt(count)
    share = depth * np.exp(-((crease / 0.25) ** 2))
    return _surface(_blend(one, 0.3 * one, share + 0.05 * smooth_noise(each, side, 0.8)))


def _marble(style: Generator, each: Generator, side: int) -> Picture:
    one, two = _colour(style, 0.6, 0.95), _colour(style, 0.15, 0.5)
    veins, angle = style.uniform(2, 6), style.uniform(0, math.pi)
    rows, columns = _grid(side)
    along = columns * math.cos(angle) + rows * math.sin(angle)
    wave = np.sin(veins * math.pi * along + style.uniform(1.0, 2.5) * smooth_noise(each, side, 1.7))
    return _surface(_blend(one, two, np.abs(wave) ** 6 * 0.7 + 0.08 * smooth_noise(each, side, 0.9)))


def _concrete(style: Generator, each: Generator, side: int) -> Picture:
    one, two, three = _colour(style, 0.45, 0.8), _colour(style, 0.3, 0.7), _colour(style, 0.1, 0.9)
    base = _blend(one, two, 0.5 + 0.2 * smooth_noise(each, side, 1.1))
    pebbles = smooth_noise(each, side, style.uniform(0.8, 1.2)) > style.uniform(1.6, 2.2)
    return _surface(np.where(pebbles[..., None], three, base) + 0.02 * smooth_noise(each, side, 0.1)[..., None])


def _on_ground(style: Generator, each: Generator, shape: NDArray[np.bool_], inside: Image) -> Picture:
    """An object (side, side, 3) where `shape` is, on a plain ground."""
    ground = _colour(style, 0.02, 0.98)
    noise = 0.015 * smooth_noise(each, len(shape), 0.8)[..., None]
    return Picture(np.where(shape[..., None], inside, ground + noise), shape)


def _disc(style: Generator, each: Generator, side: int) -> Picture:
    """A cast or machined round part that lies turned as it fell: rings, a bore, some holes around it."""
    along, across = _placed(side, each, math.pi, 0.06)
    radius, angle = np.hypot(along, across), np.arctan2(across, along)
    size, bore, holes = style.uniform(0.7, 0.9), style.uniform(0.08, 0.2), int(style.integers(0, 8))
    one, two = _colour(style, 0.35, 0.6), _colour(style, 0.6, 0.95)
    edges = np.sort(style.uniform(bore, size, 3))
    rings = sum((0.5 * np.tanh((radius - edge) * 40) for edge in edges), np.zeros_like(radius))
    blades = style.uniform(0.0, 0.3) * np.cos(int(style.integers(3, 9)) * angle + 3 * radius)
    inside = _blend(one, two, 0.5 + 0.3 * rings + blades + 0.06 * smooth_noise(each, side, 0.9))
    shape = (radius < size) & (radius > bore)
    ring = style.uniform(0.45, 0.6) * size
    for number in range(holes):
        turn = 2 * math.pi * number / holes
        shape &= np.hypot(along - ring * math.cos(turn), across - ring * math.sin(turn)) > 0.06
    return _on_ground(style, each, shape, inside)


def _plate(style: Generator, each: Generator, side: int) -> Picture:
    """A plate with holes and slots, laid against a stop."""
    along, across = _placed(side, each, 0.04, 0.03)
    width, height = style.uniform(0.6, 0.9, 2)
    shape = (np.abs(along) < width) & (np.abs(across) < height)
    for _ in range(int(style.integers(2, 7))):
        x, y = style.uniform(-0.8, 0.8, 2) * (width, height)
        shape &= np.hypot((along - x) / style.uniform(0.6, 2.5), across - y) > style.uniform(0.05, 0.12)
    one, two = _colour(style, 0.3, 0.6), _colour(style, 0.5, 0.9)
    field = smooth_noise(each, side, 0.7, style.uniform(1, 20), style.uniform(0, math.pi))
    return _on_ground(style, each, shape, _blend(one, two, 0.5 + 0.15 * field))


def _board(style: Generator, each: Generator, side: int) -> Picture:
    """Rectangular components, always at the same places, on a coloured board."""
    along, across = _placed(side, each, 0.03, 0.03)
    pixels = (
        np.broadcast_to(_colour(style, 0.2, 0.5), (side, side, 3)) + 0.02 * smooth_noise(each, side, 0.6)[..., None]
    )
    for _ in range(int(style.integers(12, 30))):
        x, y = style.uniform(-0.85, 0.85, 2)
        width, height = style.uniform(0.04, 0.2, 2)
        part = (np.abs(along - x) < width) & (np.abs(across - y) < height)
        pixels = np.where(part[..., None], _colour(style, 0.02, 0.98), pixels)
    return _surface(pixels)


def _capsule(style: Generator, each: Generator, side: int) -> Picture:
    """A two-coloured pill in any direction."""
    along, across = _placed(side, each, math.pi, 0.1)
    length, width = style.uniform(0.45, 0.6), style.uniform(0.2, 0.3)
    shape = np.hypot(np.maximum(np.abs(along) - length + width, 0), across) < width
    one, two = _colour(style, 0.2, 0.9), _colour(style, 0.2, 0.9)
    inside = _blend(one, two, (along > style.uniform(-0.1, 0.1)).astype(float))
    shade = 0.6 + 0.4 * np.sqrt(np.clip(1 - (across / width) ** 2, 0, 1))
    return _on_ground(style, each, shape, inside * shade[..., None])


def _cable(style: Generator, each: Generator, side: int) -> Picture:
    """A cut cable: wires of several colours in a sheath."""
    along, across = _placed(side, each, math.pi, 0.05)
    wires = int(style.integers(2, 6))
    shape = np.hypot(along, across) < 0.8
    inside = np.broadcast_to(_colour(style, 0.5, 0.9), (side, side, 3))
    for number in range(wires):
        turn = 2 * math.pi * number / wires
        radius = np.hypot(along - 0.42 * math.cos(turn), across - 0.42 * math.sin(turn))
        sheath = np.clip(0.5 + style.normal(0, 0.3, 3), 0, 1)
        copper = np.array([0.7, 0.45, 0.3]) * (1 + 0.25 * smooth_noise(each, side, 0.4)[..., None])
        inside = np.where((radius < 0.26)[..., None], sheath, inside)
        inside = np.where((radius < 0.17)[..., None], copper, inside)
    return _on_ground(style, each, shape, inside)


def _label(style: Generator, each: Generator, side: int) -> Picture:
    """A printed label: lines of strokes, always the same text."""
    along, across = _placed(side, each, 0.03, 0.03)
    paper, ink = _colour(style, 0.7, 0.98), _colour(style, 0.02, 0.3)
    share = np.zeros((side, side))
    for line in np.linspace(-0.7, 0.7, int(style.integers(3, 7))):
        at = -0.8
        while at < 0.75:
            width, height, kind = style.uniform(0.03, 0.1), style.uniform(0.05, 0.09), style.integers(3)
            x, y = (along - at - width / 2) / width, (across - line) / height
            if kind == 0:
                stroke = (np.abs(x) < 0.2) & (np.abs(y) < 1)
            elif kind == 1:
                stroke = np.abs(np.hypot(x * 1.6, y) - 0.75) < 0.22
            else:
                stroke = (np.abs(np.abs(x) - 0.35) < 0.15) & (np.abs(y) < 1) | (np.abs(y) < 0.2) & (np.abs(x) < 0.4)
            share = np.maximum(share, stroke)
            at += width * style.uniform(1.2, 2.0)
    return _surface(_blend(paper, ink, share + 0.03 * smooth_noise(each, side, 0.7)))


def _bottle(style: Generator, each: Generator, side: int) -> Picture:
    """A glass or turned part seen from the side: a profile with highlights."""
    along, across = _placed(side, each, 0.03, 0.04)
    heights, widths = np.linspace(-0.9, 0.9, 7), style.uniform(0.2, 0.7, 7)
    profile = np.interp(across, heights, widths)
    shape = (np.abs(along) < profile) & (np.abs(across) < 0.9)
    one, two = _colour(style, 0.1, 0.5), _colour(style, 0.6, 0.98)
    place = along / np.maximum(profile, 0.05)
    gloss = np.exp(-(((place - style.uniform(-0.5, 0.5)) / 0.15) ** 2))
    bands = style.uniform(0, 0.3) * np.sign(np.sin(across * style.uniform(6, 20)))
    return _on_ground(
        style, each, shape, _blend(one, two, 0.25 + 0.6 * gloss + bands + 0.03 * smooth_noise(each, side, 1))
    )


FAMILIES: dict[str, Callable[[Generator, Generator, int], Picture]] = {
    "grain": _grain,
    "brushed": _brushed,
    "weave": _weave,
    "wood": _wood,
    "lattice": _lattice,
    "leather": _leather,
    "marble": _marble,
    "concrete": _concrete,
    "disc": _disc,
    "plate": _plate,
    "board": _board,
    "capsule": _capsule,
    "cable": _cable,
    "label": _label,
    "bottle": _bottle,
}
"""Surfaces first, then objects."""
CHOICE = ("grain", "brushed", "weave", "lattice", "marble", "disc", "plate", "capsule", "label")
"""Options are chosen on these families; the others are left out and only judged."""
