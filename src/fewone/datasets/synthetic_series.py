"""A seed -> the paper's synthetic series, sts-sawtooth and sts-sine: 30 tasks of 200 normal and 200 anomalous windows.

The facts that the paper leaves open (periods, noise, bursts) are those measured on the published windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import sawtooth

from fewone.datasets.fingerprint import with_fingerprint
from fewone.datasets.sources import Request
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits

Waveform = Literal["sawtooth", "sine"]
Array = NDArray[np.floating]

LENGTH = 128
WINDOWS = 200
TRAINING, VALIDATION, TEST = 20, 5, 5
LONGEST_BURST: dict[Waveform, tuple[int, int]] = {"sawtooth": (4, 6), "sine": (4, 18)}
BURST_COUNTS, BURST_SHARES = (1, 2, 3), (0.69, 0.24, 0.07)
# Which share of a task's anomalous windows leaves the range of its normals; the others stay inside it.
OUTSIDE_SHARE = (0.52, 0.63)


@dataclass(frozen=True)
class Windows:
    """The windows of one task: normal (n, 128), anomalous (n, 128), and which samples carry a burst, (n, 128) bool."""

    normal: Array
    anomalous: Array
    injected: NDArray[np.bool_]


@dataclass(frozen=True)
class SignalTraits:
    """What makes one task: its signal, its noise and its bursts (heights in standard deviations of its normals)."""

    periods: int
    amplitude: float
    offset: float
    ramp: float
    noise: tuple[float, float]
    longest_burst: int
    height: tuple[float, float]
    outside_share: float

    @staticmethod
    def draw(waveform: Waveform, generator: np.random.Generator) -> SignalTraits:
        amplitude = generator.uniform(0.5, 5.0)
        loudest = generator.uniform(0.025, 0.09) * amplitude
        shortest, longest = LONGEST_BURST[waveform]
        return SignalTraits(
            periods=int(generator.integers(4, 10)),
            amplitude=amplitude,
            offset=generator.uniform(-10.0, 10.0),
            ramp=generator.uniform(0.0, 1.0),
            noise=(generator.uniform(0.0, 0.5) * loudest, loudest),
            longest_burst=int(generator.integers(shortest, longest + 1)),
            height=(generator.uniform(0.1, 1.0), generator.uniform(2.0, 7.0)),
            outside_share=generator.uniform(*OUTSIDE_SHARE),
        )


@dataclass(frozen=True)
class NormalRange:
    """A task's normals in three numbers: their standard deviation, least and greatest value."""

    unit: float
    low: float
    high: float


def generate_task(waveform: Waveform, generator: np.random.Generator, windows: int = WINDOWS) -> Windows:
    """One task with traits of its own: `windows` normal and as many anomalous windows."""
    traits = SignalTraits.draw(waveform, generator)
    normal = _crop(waveform, traits, windows, generator)
    clean = _crop(waveform, traits, windows, generator)
    anomalous, injected = np.empty_like(clean), np.empty(clean.shape, dtype=bool)
    scale = NormalRange(float(normal.std()), float(normal.min()), float(normal.max()))
    outside = generator.permutation(windows) < round(traits.outside_share * windows)
    for number, window in enumerate(clean):
        add = _add_bursts_outside if outside[number] else _add_bursts_inside
        anomalous[number], injected[number] = add(window, traits, scale, generator)
    return Windows(normal, anomalous, injected)


def _crop(waveform: Waveform, traits: SignalTraits, count: int, generator: np.random.Generator) -> Array:
    """Windows at random places of the noisy signal, (count, 128): a place is a phase."""
    cycle = 2 * np.pi * traits.periods * np.arange(LENGTH) / LENGTH
    phase = cycle + generator.uniform(0, 2 * np.pi, (count, 1))
    signal: Array = np.sin(phase) if waveform == "sine" else sawtooth(phase, traits.ramp)
    size = generator.uniform(*traits.noise, (count, LENGTH))
    noise = size * generator.choice((-1.0, 1.0), (count, LENGTH))
    windows: Array = traits.offset + traits.amplitude * signal + noise
    return windows


def _draw_places(traits: SignalTraits, generator: np.random.Generator) -> list[slice]:
    """Where the one to three bursts of a window are; they may touch."""
    places = []
    for _ in range(generator.choice(BURST_COUNTS, p=BURST_SHARES)):
        width = int(generator.integers(2, traits.longest_burst + 1))
        start = int(generator.integers(0, LENGTH - width + 1))
        places.append(slice(start, start + width))
    return places


def _add_bursts_outside(
    window: Array, traits: SignalTraits, normals: NormalRange, generator: np.random.Generator
) -> tuple[Array, NDArray[np.bool_]]:
    """A normal window (128,) with bursts of which at least one sample leaves the range, and where they are."""
    least, most = traits.height[0] * normals.unit, traits.height[1] * normals.unit
    while True:
        result, injected = window.copy(), np.zeros(LENGTH, dtype=bool)
        for place in _draw_places(traits, generator):
            heights = generator.uniform(least, most, place.stop - place.start)
            result[place] = window[place] + generator.choice((-1.0, 1.0)) * heights
            injected[place] = True
        if result.max() > normals.high or result.min() < normals.low:
            return result, injected


def _add_bursts_inside(
    window: Array, traits: SignalTraits, normals: NormalRange, generator: np.random.Generator
) -> tuple[Array, NDArray[np.bool_]]:
    """A normal window (128,) with bursts that stay in the range, each to its roomier side, and where they are."""
    least, most = traits.height[0] * normals.unit, traits.height[1] * normals.unit
    result, injected = np.clip(window, normals.low, normals.high), np.zeros(LENGTH, dtype=bool)
    for place in _draw_places(traits, generator):
        up, down = normals.high - window[place], window[place] - normals.low
        sign, room = (1.0, up) if up.sum() > down.sum() else (-1.0, down)
        # Where there is no room for the least height, the sample goes as far as the range lets it.
        tallest = np.clip(room, 0.0, most)
        result[place] = result[place] + sign * generator.uniform(np.minimum(least, tallest), tallest)
        result[place] = np.clip(result[place], normals.low, normals.high)
        injected[place] = True
    return result, injected


def load_sawtooth(request: Request) -> TaskSplits:
    return load_synthetic_series("sawtooth", request.options.seed)


def load_sine(request: Request) -> TaskSplits:
    return load_synthetic_series("sine", request.options.seed)


def load_synthetic_series(waveform: Waveform, seed: int = 0) -> TaskSplits:
    """sts-sawtooth or sts-sine: 20 training, 5 validation and 5 test tasks, the same windows for the same seed."""
    generators = np.random.default_rng([*waveform.encode(), seed]).spawn(TRAINING + VALIDATION + TEST)
    tasks = [generate_task(waveform, generator) for generator in generators]
    return split_series(
        f"sts-{waveform}",
        [task.normal for task in tasks],
        [task.anomalous for task in tasks],
        (TRAINING, VALIDATION, TEST),
        EvaluationProtocol(supports_per_task=10, normals=100, anomalies=100),
        fixed_split=True,
    )


def split_series(
    name: str,
    normal: list[Array],
    anomalous: list[Array],
    sizes: tuple[int, int, int],
    plan: EvaluationProtocol,
    fixed_split: bool = False,
) -> TaskSplits:
    """Windows (n, length) of each task, in order, as training, validation and test tasks over one float32 store."""
    blocks = [block for pair in zip(normal, anomalous, strict=True) for block in pair]
    values = torch.from_numpy(np.concatenate(blocks).astype(np.float32)).unsqueeze(1)
    store = Store(values)
    ends = np.cumsum([0, *(len(block) for block in blocks)]).tolist()
    pools = [RowPool(store, torch.arange(first, last)) for first, last in pairwise(ends)]
    tasks = [
        Task(f"{name}/{number:03d}", pools[2 * number], pools[2 * number + 1], fixed_split=fixed_split)
        for number in range(len(normal))
    ]
    training, validation = sizes[0], sizes[0] + sizes[1]
    return with_fingerprint(
        TaskSplits(
            name,
            tuple(tasks[:training]),
            tuple(tasks[training:validation]),
            tuple(tasks[validation:]),
            shape=tuple(values.shape[1:]),
            preparation=InputScaling(standardize=True),
            plan=plan,
        )
    )
