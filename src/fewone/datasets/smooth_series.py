"""A seed -> sts-smooth: anomalies that keep the normal range, energy and smoothness, so that one-liners fail."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fewone.datasets.smooth_kinds import KINDS, LENGTH, Array, Sketch, draw_uniform
from fewone.datasets.sources import Request
from fewone.datasets.synthetic_series import split_series
from fewone.episodes import EvaluationProtocol, TaskSplits

Flags = NDArray[np.bool_]

WINDOWS = 60
TRAINING, VALIDATION, TEST = 300, 20, 60
SIZES = (TRAINING, VALIDATION, TEST)
PLAN = EvaluationProtocol(supports_per_task=3, normals=None, anomalies=None)
# Normal windows differ in size, or each anomaly that touches the energy would give itself away.
FREQUENCY_SPREAD, GAIN_SPREAD = 0.0, 0.15
PEAK = 1.5
# The 99.5 % range of a task's normals is taken from this many windows that nobody else sees.
REFERENCES = 200
# Candidates drawn at once for each window that is still missing.
CANDIDATES = 3
# A signal that some kind does not fit after so many rounds is given up for another one.
ROUNDS = 100


@dataclass(frozen=True)
class Harmonics:
    """A waveform: scale * (cos p + a2 cos(2 p + b2) + a3 cos(3 p + b3)) + level, from -PEAK to PEAK."""

    second: tuple[float, float]
    third: tuple[float, float]
    scale: float
    level: float

    @staticmethod
    def draw(generator: np.random.Generator) -> Harmonics:
        # A second harmonic in quadrature makes the waveform differ from its mirror image and from its reversal.
        angle = generator.uniform(np.pi / 4, 3 * np.pi / 4) * generator.choice((-1.0, 1.0))
        second = (generator.uniform(0.35, 0.7), angle)
        plain = Harmonics(second, (generator.uniform(0.0, 0.3), generator.uniform(-np.pi, np.pi)), 1.0, 0.0)
        cycle = plain(np.linspace(0, 2 * np.pi, 256, endpoint=False, dtype=np.float32))
        low, high = float(cycle.min()), float(cycle.max())
        # Every waveform fills the same range, or a cycle upside down or of another waveform would leave it.
        scale = 2 * PEAK / (high - low)
        return replace(plain, scale=scale, level=-scale * (high + low) / 2)

    def __call__(self, phase: Array) -> Array:
        cosine, sine = np.cos(phase), np.sin(phase)
        # Multiples of the angle by the addition theorems: two transcendental functions instead of six.
        cosine_2, sine_2 = 2 * np.square(cosine) - 1, 2 * sine * cosine
        cosine_3, sine_3 = cosine_2 * cosine - sine_2 * sine, sine_2 * cosine + cosine_2 * sine
        wave: Array = cosine.copy()
        for even, odd, (size, angle) in ((cosine_2, sine_2, self.second), (cosine_3, sine_3, self.third)):
            wave += (size * math.cos(angle)) * even - (size * math.sin(angle)) * odd
        wave *= self.scale
        wave += self.level
        return wave


@dataclass(frozen=True)
class SmoothTraits:
    """What makes one task: its frequency (periods per window) and how it varies, its waveforms and its noise."""

    periods: float
    frequency_spread: float
    waveform: Harmonics
    other: Harmonics
    noise: float
    scale: float
    offset: float

    @staticmethod
    def draw(generator: np.random.Generator, frequency_spread: float) -> SmoothTraits:
        return SmoothTraits(
            periods=generator.uniform(5.0, 8.0),
            frequency_spread=frequency_spread,
            waveform=Harmonics.draw(generator),
            other=Harmonics.draw(generator),
            noise=generator.uniform(0.02, 0.06),
            scale=generator.uniform(0.5, 5.0),
            offset=generator.uniform(-10.0, 10.0),
        )

    def place(self, windows: Array) -> Array:
        """Windows in the task's own unit and level: what a sensor would give."""
        return self.offset + self.scale * windows


@dataclass(frozen=True)
class Bounds:
    """The 99.5 % range of four simple statistics over normal windows: low (4,) and high (4,)."""

    low: Array
    high: Array

    @staticmethod
    def of(windows: Array) -> Bounds:
        low, high = np.quantile(measure(windows), (0.0025, 0.9975), axis=0)
        return Bounds(low, high)

    def hold(self, windows: Array) -> Flags:
        """Which windows (n, 128) lie in the range with all four statistics, (n,)."""
        values = measure(windows)
        inside: Flags = np.all((values >= self.low) & (values <= self.high), axis=1)
        return inside


def measure(windows: Array) -> Array:
    """Maximum, minimum, standard deviation and max|diff| of windows (n, 128), (n, 4)."""
    steepest = np.abs(np.diff(windows, axis=1)).max(axis=1)
    return np.stack([windows.max(axis=1), windows.min(axis=1), windows.std(axis=1), steepest], axis=1)


def render(traits: SmoothTraits, carried: Flags, generator: np.random.Generator) -> Array:
    """One window for each row of carried (n, 10), which says which kinds it carries, (n, 128)."""
    count = len(carried)
    speed = 2 * np.pi * traits.periods / LENGTH * draw_uniform(generator, *_around(traits.frequency_spread), (count, 1))
    sketch = Sketch.steady(speed, draw_uniform(generator, *_around(GAIN_SPREAD), (count, 1)))
    for number, kind in enumerate(KINDS):
        rows = np.flatnonzero(carried[:, number])
        if len(rows):
            sketch.put(rows, kind(sketch[rows], generator))
    phase = np.cumsum(sketch.speed, axis=1) + draw_uniform(generator, 0, 2 * np.pi, (count, 1))
    signal = traits.waveform(phase)
    mixed = np.flatnonzero(sketch.other.any(axis=1))
    if len(mixed):
        signal[mixed] += sketch.other[mixed] * (traits.other(phase[mixed]) - signal[mixed])
    signal *= sketch.gain
    signal += sketch.drift
    signal += traits.noise * generator.standard_normal((count, LENGTH), dtype=np.float32)
    return signal


def _around(spread: float) -> tuple[float, float]:
    return 1 - spread, 1 + spread


def render_within(traits: SmoothTraits, carried: Flags, bounds: Bounds, generator: np.random.Generator) -> Array | None:
    """As `render`, but each window is drawn anew until its simple statistics lie in the range of the normals.

    None: this signal cannot carry one of the kinds within the range.
    """
    result = np.empty((len(carried), LENGTH), dtype=np.float32)
    missing = np.arange(len(carried))
    for _ in range(ROUNDS):
        trial = render(traits, carried[np.repeat(missing, CANDIDATES)], generator)
        fits = bounds.hold(trial).reshape(-1, CANDIDATES)
        found = fits.any(axis=1)
        chosen = trial.reshape(-1, CANDIDATES, LENGTH)[np.arange(len(missing)), fits.argmax(axis=1)]
        result[missing[found]] = chosen[found]
        missing = missing[~found]
        if not len(missing):
            return result
    return None


def flag_kinds(kinds: NDArray[np.int64]) -> Flags:
    """Rows that carry one kind each: kinds (n,) -> (n, 10)."""
    flags: Flags = np.eye(len(KINDS), dtype=bool)[kinds]
    return flags


def generate_task(generator: np.random.Generator) -> tuple[Array, Array]:
    """60 normal windows and 60 anomalous ones, six of each kind, (60, 128) each."""
    kinds = generator.permutation(np.arange(WINDOWS) % len(KINDS))
    while True:
        traits = SmoothTraits.draw(generator, FREQUENCY_SPREAD)
        clean = render(traits, np.zeros((REFERENCES + WINDOWS, len(KINDS)), dtype=bool), generator)
        anomalous = render_within(traits, flag_kinds(kinds), Bounds.of(clean[WINDOWS:]), generator)
        if anomalous is not None:
            return traits.place(clean[:WINDOWS]), traits.place(anomalous)


def load_smooth(request: Request) -> TaskSplits:
    """sts-smooth: 300 training, 20 validation and 60 test tasks."""
    generators = np.random.default_rng([*b"smooth", request.options.seed]).spawn(sum(SIZES))
    normal, anomalous = zip(*(generate_task(generator) for generator in generators), strict=True)
    return split_series("sts-smooth", list(normal), list(anomalous), SIZES, PLAN)
