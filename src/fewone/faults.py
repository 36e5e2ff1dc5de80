"""Normal series -> the same series with a fault. Enters: arrays (n, channels, length). Leaves: new arrays, seeded.

A strength of 1 is a fault that is plain to see beside the series' own deviation, 0 is none; it grows from there. Each
example gets a fault of its own (place, sign, length drawn by the seed); nothing is changed in place. Adding a fault:
one function and one line in FAULTS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewone.errors import InputError

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """What a fault is made of: the examples (n, channels, length), their strengths (n, 1, 1) and random numbers.

    deviation (n, channels, 1): of each channel over time, or of the whole example where a channel stands still.
    """

    values: Values
    strength: Values
    random: np.random.Generator

    @property
    def deviation(self) -> Values:
        own = self.values.std(axis=-1, keepdims=True)
        whole = np.maximum(self.values.std(axis=(1, 2), keepdims=True), 1e-6 * (1.0 + np.abs(self.values).max()))
        found: Values = np.where(own > 1e-3 * whole, own, whole)
        return found

    @property
    def steps(self) -> NDArray[np.int64]:
        return np.arange(self.values.shape[-1])

    def signs(self) -> Values:
        return np.where(self.random.random((len(self.values), 1, 1)) < 0.5, -1.0, 1.0)

    def segment(self, least: float = 0.1, most: float = 0.3) -> NDArray[np.bool_]:
        """A random segment of each example, (n, 1, length): from `least` to `most` of its length, longer if strong."""
        count, length = len(self.values), self.values.shape[-1]
        share = self.random.uniform(least, most, count) * np.clip(self.strength[:, 0, 0], 0.25, 2.0)
        size = np.clip(np.round(share * length), 1, length).astype(np.int64)
        start = (self.random.random(count) * (length - size + 1)).astype(np.int64)
        inside: NDArray[np.bool_] = (self.steps >= start[:, None]) & (self.steps < (start + size)[:, None])
        return inside[:, None]


Fault = Callable[[Draw], Values]


def offset(draw: Draw) -> Values:
    """The level moves: a sensor that has slipped."""
    return draw.values + draw.signs() * draw.strength * draw.deviation


def gain(draw: Draw) -> Values:
    """The swing about the level grows or shrinks, by a factor of 2 at strength 1."""
    middle: Values = draw.values.mean(axis=-1, keepdims=True)
    return middle + (draw.values - middle) * 2.0 ** (draw.signs() * draw.strength)


def flat(draw: Draw) -> Values:
    """A segment stands still at its first value; the whole series from strength 4 on."""
    inside = draw.segment() | (draw.strength >= 4.0)
    first = np.take_along_axis(draw.values, inside.argmax(axis=-1)[..., None], axis=-1)
    return np.where(inside, first, draw.values)


def saturation(draw: Draw) -> Values:
    """Values beyond a limit are cut off; the limit comes nearer to the middle with the strength."""
    share = np.clip(0.25 * draw.strength, 0.0, 0.95)
    low, high = draw.values.min(axis=-1, keepdims=True), draw.values.max(axis=-1, keepdims=True)
    upper = np.minimum(draw.values, high - share * (high - low))
    lower = np.maximum(draw.values, low + share * (high - low))
    found: Values = np.where(draw.signs() > 0, upper, lower)
    return found


def noise(draw: Draw) -> Values:
    """White noise joins, of half the series' own deviation at strength 1."""
    return draw.values + 0.5 * draw.strength * draw.deviation * draw.random.standard_normal(draw.values.shape)


def ramp(draw: Draw) -> Values:
    """From some time on the level runs away."""
    length = draw.values.shape[-1]
    start = draw.random.uniform(0.3, 0.8, (len(draw.values), 1, 1)) * length
    rise: Values = np.maximum(draw.steps - start, 0.0) / np.maximum(length - start, 1.0)
    return draw.values + 2.0 * draw.signs() * draw.strength * draw.deviation * rise


def trend(draw: Draw) -> Values:
    """The level drifts slowly over the whole series."""
    line = np.linspace(-1.0, 1.0, draw.values.shape[-1])
    return draw.values + draw.signs() * draw.strength * draw.deviation * line


def spike(draw: Draw) -> Values:
    """One to three single values jump by 3 deviations at strength 1."""
    count, _, length = draw.values.shape
    chosen = draw.random.integers(0, length, (count, 3))
    kept = np.arange(3) < draw.random.integers(1, 4, (count, 1))
    jumps = np.zeros((count, 1, length))
    for number in range(3):
        jumps[np.arange(count), 0, chosen[:, number]] += kept[:, number] * draw.random.choice([-1.0, 1.0], count)
    return draw.values + 3.0 * draw.strength * draw.deviation * jumps


def gap(draw: Draw) -> Values:
    """A segment that is filled with zeros."""
    return np.where(draw.segment(), 0.0, draw.values)


def dropout(draw: Draw) -> Values:
    """Single values are lost and read as zero, a tenth of them at strength 1."""
    count, _, length = draw.values.shape
    lost = draw.random.random((count, 1, length)) < np.clip(0.1 * draw.strength, 0.0, 0.95)
    return np.where(lost, 0.0, draw.values)


def frequency(draw: Draw) -> Values:
    """Everything runs faster or slower, by a fifth at strength 1; what is missing at the end starts over."""
    length = draw.values.shape[-1]
    places = np.mod(draw.steps * 1.2 ** (draw.signs() * draw.strength), length - 1.0)
    return _read_at(draw.values, places)


def warp(draw: Draw) -> Values:
    """Time runs unevenly: what comes early comes later, and back again."""
    length = draw.values.shape[-1]
    share = draw.steps / (length - 1.0)
    bend = (
        0.08
        * draw.signs()
        * draw.strength
        * np.sin(2.0 * np.pi * share + draw.random.uniform(0, 6.28, (len(draw.values), 1, 1)))
    )
    return _read_at(draw.values, np.clip(share + bend - bend[..., :1] * (1 - share), 0.0, 1.0) * (length - 1.0))


def swap(draw: Draw) -> Values:
    """Two segments change places."""
    length = draw.values.shape[-1]
    found = draw.values.copy()
    for one, strength in zip(found, draw.strength[:, 0, 0], strict=True):
        size = int(np.clip(round(0.12 * min(strength, 3.0) * length), 1, length // 2))
        first = int(draw.random.integers(0, length - 2 * size + 1))
        second = int(draw.random.integers(first + size, length - size + 1))
        held = one[:, first : first + size].copy()
        one[:, first : first + size] = one[:, second : second + size]
        one[:, second : second + size] = held
    return found


def reverse(draw: Draw) -> Values:
    """A segment runs backwards; longer with the strength."""
    found = draw.values.copy()
    for one, inside in zip(found, draw.segment(0.25, 0.5)[:, 0], strict=True):
        one[:, inside] = one[:, inside][:, ::-1]
    return found


def smooth(draw: Draw) -> Values:
    """Fine detail is lost, as behind a filter: a running mean over a twentieth of the length at strength 1."""
    length = draw.values.shape[-1]
    found = np.empty_like(draw.values)
    for one, given, strength in zip(found, draw.values, draw.strength[:, 0, 0], strict=True):
        half = int(np.clip(round(0.025 * strength * length), 1, length // 3))
        padded = np.pad(given, ((0, 0), (half, half)), mode="edge")
        sums = np.cumsum(np.pad(padded, ((0, 0), (1, 0))), axis=-1, dtype=np.float64)
        one[:] = (sums[:, 2 * half + 1 :] - sums[:, : -2 * half - 1]) / (2 * half + 1)
    return found


def hum(draw: Draw) -> Values:
    """A foreign oscillation joins, of half the series' own deviation at strength 1."""
    count, _, length = draw.values.shape
    cycles = draw.random.uniform(np.log(4.0), np.log(length / 4.0 + 1.0), (count, 1, 1))
    phase = draw.random.random((count, 1, 1))
    wave: Values = np.sin(2.0 * np.pi * (np.exp(cycles) * draw.steps / length + phase))
    return draw.values + 0.7 * draw.strength * draw.deviation * wave


def step(draw: Draw) -> Values:
    """From some time on the level is another one."""
    start = draw.random.uniform(0.2, 0.8, (len(draw.values), 1, 1)) * draw.values.shape[-1]
    after: Values = (draw.steps >= start).astype(np.float64)
    return draw.values + draw.signs() * draw.strength * draw.deviation * after


FAULTS: dict[str, Fault] = {
    "offset": offset,
    "gain": gain,
    "flat": flat,
    "saturation": saturation,
    "noise": noise,
    "ramp": ramp,
    "trend": trend,
    "spike": spike,
    "gap": gap,
    "dropout": dropout,
    "frequency": frequency,
    "warp": warp,
    "swap": swap,
    "reverse": reverse,
    "smooth": smooth,
    "hum": hum,
    "step": step,
}
"""Every kind of fault, by name."""


def inject(values: NDArray[Any], fault: str, strength: float | Values = 1.0, seed: int = 0) -> NDArray[Any]:
    """Series (n, channels, length) with a fault of this name in each, of one strength or of one for each example.

    Examples
    --------
    >>> import numpy as np
    >>> waves = np.sin(np.arange(64) / 5.0).reshape(1, 1, 64)
    >>> float(np.round((inject(waves, "offset", 2.0) - waves).std(), 6))
    0.0
    """
    if fault not in FAULTS:
        raise InputError(f"no fault is called {fault!r}; there are {', '.join(FAULTS)}")
    if values.ndim != 3 or values.shape[-1] < 16:
        raise InputError(f"series (n, channels, length) of at least 16 steps expected, got {values.shape}")
    strengths = np.broadcast_to(np.asarray(strength, np.float64), (len(values),))
    if not (np.isfinite(strengths).all() and (strengths >= 0).all()):
        raise InputError("the strength of a fault is a number of 0 or more")
    wide = values.astype(np.float64)
    found = FAULTS[fault](Draw(wide, strengths[:, None, None], np.random.default_rng([seed, *fault.encode()])))
    found = np.where(strengths[:, None, None] > 0, found, wide)
    return found.astype(values.dtype if values.dtype.kind == "f" else np.float64)


def _read_at(values: Values, places: Values) -> Values:
    """values (n, channels, length) at fractional time steps (n, 1, length), joined by straight lines."""
    low = np.clip(np.floor(places).astype(np.int64), 0, values.shape[-1] - 2)
    share = places - low
    below = np.take_along_axis(values, np.broadcast_to(low, values.shape), axis=-1)
    above = np.take_along_axis(values, np.broadcast_to(low + 1, values.shape), axis=-1)
    found: Values = (1.0 - share) * below + share * above
    return found
