"""Ten smooth ways in which a periodic signal can vary: each changes a sketch of windows, before they are drawn out.

A sketch says how fast the phase runs, how large the signal is and so on at every time step, so that kinds combine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

# Single precision throughout: the suites hold tens of millions of samples, most of them drawn only to be rejected.
Array = NDArray[np.float32]
Rows = NDArray[np.int64]

LENGTH = 128
TIME: Array = np.arange(LENGTH, dtype=np.float32)


def draw_uniform(generator: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> Array:
    """Uniform numbers between low and high in single precision."""
    return np.float32(low) + np.float32(high - low) * generator.random(shape, dtype=np.float32)


@dataclass(frozen=True)
class Sketch:
    """n windows in the making, each field (n, 128): what holds at each time step.

    speed: advance of the phase in radians; gain: factor on the signal, negative where it is mirrored;
    drift: added to it; other: share of the second waveform, 0 to 1.
    """

    speed: Array
    gain: Array
    drift: Array
    other: Array

    @staticmethod
    def steady(speed: Array, gain: Array) -> Sketch:
        """Windows without any variation: speed and gain (n, 1), the same at every time step."""
        shape = (len(speed), LENGTH)
        nothing = np.zeros((2, *shape), dtype=np.float32)
        return Sketch(np.repeat(speed, LENGTH, axis=1), np.repeat(gain, LENGTH, axis=1), nothing[0], nothing[1])

    def __getitem__(self, rows: Rows) -> Sketch:
        return Sketch(self.speed[rows], self.gain[rows], self.drift[rows], self.other[rows])

    def put(self, rows: Rows, changed: Sketch) -> None:
        """Write changed rows back in place: a sketch is private to the windows being made of it."""
        for own, new in (
            (self.speed, changed.speed),
            (self.gain, changed.gain),
            (self.drift, changed.drift),
            (self.other, changed.other),
        ):
            own[rows] = new


Kind = Callable[[Sketch, np.random.Generator], Sketch]


def _choose(low: float, high: float, sketch: Sketch, generator: np.random.Generator) -> Array:
    """One uniform number per window, (n, 1)."""
    return draw_uniform(generator, low, high, (len(sketch.speed), 1))


def _choose_sign(sketch: Sketch, generator: np.random.Generator) -> Array:
    """Plus or minus one per window, (n, 1)."""
    return np.sign(_choose(-1.0, 1.0, sketch, generator))


def _cycle(sketch: Sketch) -> Array:
    """How many samples one period takes, (n, 1)."""
    mean: Array = np.abs(sketch.speed).mean(axis=1, keepdims=True)
    return 2 * np.pi / mean


def _stretch(sketch: Sketch, cycles: Array, generator: np.random.Generator, edge: float = 0.25) -> Array:
    """A smooth plateau from 0 to 1 and back, (n, 128): so many cycles (n, 1) long at a random place of the window.

    edge: how long it takes to rise, as a share of a cycle.
    """
    cycle = _cycle(sketch)
    half, rise = cycles * cycle / 2, np.maximum(edge * cycle, 2.0)
    margin = half + rise / 2
    centre = margin + _choose(0.0, 1.0, sketch, generator) * np.maximum(LENGTH - 1 - 2 * margin, 0.0)
    inside = (half - np.abs(TIME - centre)) / rise + 0.5
    share = np.clip(inside, 0.0, 1.0)
    plateau: Array = np.square(share) * (3 - 2 * share)
    return plateau


def change_frequency(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """For two to three and a half cycles the signal runs slower, or faster."""
    factor = np.where(
        _choose_sign(sketch, generator) < 0, _choose(0.4, 0.6, sketch, generator), _choose(1.5, 1.8, sketch, generator)
    )
    place = _stretch(sketch, _choose(2.0, 3.5, sketch, generator), generator)
    return replace(sketch, speed=sketch.speed * (1 + (factor - 1) * place))


def step_phase(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """The phase slips by a third to two thirds of a cycle, backward or forward, within a cycle."""
    slip = _choose(1 / 3, 2 / 3, sketch, generator) * _choose_sign(sketch, generator)
    place = _stretch(sketch, np.full_like(slip, 0.6), generator)
    return replace(sketch, speed=sketch.speed + 2 * np.pi * slip * place / place.sum(axis=1, keepdims=True))


def hold_cycle(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """The signal stands still for one to one and a half cycles."""
    place = _stretch(sketch, _choose(1.0, 1.6, sketch, generator), generator)
    return replace(sketch, speed=sketch.speed * (1 - place))


def play_back_half_cycle(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """The signal runs backward for half a cycle and forward again."""
    place = _stretch(sketch, _choose(0.5, 0.7, sketch, generator), generator, edge=0.15)
    return replace(sketch, speed=sketch.speed * (1 - 2 * place))


def dip_amplitude(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """For one to two cycles the signal is smaller."""
    place = _stretch(sketch, _choose(1.0, 2.0, sketch, generator), generator)
    return replace(sketch, gain=sketch.gain * (1 - _choose(0.7, 0.9, sketch, generator) * place))


def drift_slowly(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """The level wanders over the window, the energy stays: the signal shrinks by what the drift brings in."""
    angle = np.pi * TIME / LENGTH * _choose(1.0, 2.0, sketch, generator) + _choose(0.0, 2 * np.pi, sketch, generator)
    wave = np.cos(angle)
    wave = wave - wave.mean(axis=1, keepdims=True)
    wave = wave / wave.std(axis=1, keepdims=True)
    share = _choose(0.25, 0.4, sketch, generator)
    return replace(sketch, gain=sketch.gain * np.sqrt(1 - share**2), drift=sketch.drift + share * sketch.gain * wave)


def swap_waveform(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """For two to four cycles the signal has another waveform."""
    place = _stretch(sketch, _choose(2.0, 4.0, sketch, generator), generator)
    return replace(sketch, other=np.maximum(sketch.other, place))


def mirror_cycle(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """One to two cycles are upside down."""
    place = _stretch(sketch, _choose(1.0, 2.0, sketch, generator), generator)
    return replace(sketch, gain=sketch.gain * (1 - 2 * place))


def reverse_time(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """The whole window runs backward."""
    return replace(sketch, speed=-sketch.speed)


def chirp(sketch: Sketch, generator: np.random.Generator) -> Sketch:
    """The frequency rises, or falls, over the whole window."""
    slope = _choose(0.35, 0.55, sketch, generator) * _choose_sign(sketch, generator)
    course: Array = np.linspace(-1, 1, LENGTH, dtype=np.float32)
    return replace(sketch, speed=sketch.speed * (1 + slope * course))


KINDS: tuple[Kind, ...] = (
    change_frequency,
    step_phase,
    hold_cycle,
    play_back_half_cycle,
    dip_amplitude,
    drift_slowly,
    swap_waveform,
    mirror_cycle,
    reverse_time,
    chirp,
)
