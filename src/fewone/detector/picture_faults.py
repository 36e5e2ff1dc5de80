"""Normal pictures -> the same pictures with a fault. Enters: arrays (n, channels, height, width). Leaves: new arrays.

As `fewone.faults` for series: a strength of 1 is plain to see, 0 is none, it grows from there; seeded, never changed
in place. highest: the value of white.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
PictureFault = Callable[[Values, float, float, np.random.Generator], Values]


def darken(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """The light fades, to a half at strength 1; black in the end."""
    found: Values = values * 0.5**strength
    return found


def brighten(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """Too much light: the distance to white halves at strength 1; white in the end."""
    found: Values = highest - (highest - values) * 0.5**strength
    return found


def fade(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """The contrast is lost, to a half at strength 1; grey in the end."""
    middle = values.mean(axis=(-2, -1), keepdims=True)
    found: Values = middle + (values - middle) * 0.5**strength
    return found


def invert(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """A share of the negative joins; the negative itself from strength 4 on."""
    share = min(strength / 4.0, 1.0)
    found: Values = (1.0 - share) * values + share * (highest - values)
    return found


def noise(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """White noise joins, of half the picture's own deviation at strength 1."""
    deviation = np.maximum(values.std(axis=(-3, -2, -1), keepdims=True), 1e-3 * highest)
    found: Values = values + 0.5 * strength * deviation * random.standard_normal(values.shape)
    return found


def blur(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """Out of focus: by a twentieth of the width at strength 1."""
    from scipy.ndimage import gaussian_filter  # only on need: it takes long to import

    width = 0.05 * strength * values.shape[-1]
    found: Values = gaussian_filter(values, (0, 0, width, width))
    return found


def cover(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """A square of one grey covers a part, a quarter of the side at strength 1."""
    found = values.copy()
    height, width = values.shape[-2:]
    sides = [max(1, min(side, round(0.25 * strength * side))) for side in (height, width)]
    for one in found:
        top, left = int(random.integers(0, height - sides[0] + 1)), int(random.integers(0, width - sides[1] + 1))
        one[:, top : top + sides[0], left : left + sides[1]] = random.uniform(0.0, highest)
    return found


def shift(values: Values, strength: float, highest: float, random: np.random.Generator) -> Values:
    """The picture moves sideways by a tenth of its width at strength 1, and comes in again on the other side."""
    return np.roll(values, round(0.1 * strength * values.shape[-1]), axis=-1)


PICTURE_FAULTS: dict[str, PictureFault] = {
    "darken": darken,
    "brighten": brighten,
    "fade": fade,
    "invert": invert,
    "noise": noise,
    "blur": blur,
    "cover": cover,
    "shift": shift,
}
"""Every kind of fault of pictures, by name."""


def inject_into_pictures(values: Values, fault: str, strength: float, seed: int) -> Values:
    """Pictures (n, channels, height, width) with a fault of this name in each; cut off at black and white."""
    wide = values.astype(np.float64)
    highest = 255.0 if wide.max() > 1.0 else 1.0
    random = np.random.default_rng([seed, *fault.encode()])
    found = PICTURE_FAULTS[fault](wide, strength, highest, random)
    return np.clip(found, min(0.0, wide.min()), max(highest, wide.max())).astype(values.dtype)
