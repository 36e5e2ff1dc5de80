"""Never normal when far from everything: every learner, baseline and model of the zoo, calibrated or not.

As a query moves away from the normals without bound, the decision ends on "anomalous" and stays there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import fewone
from fewone.baselines import BASELINES
from fewone.calibration import CalibrationMap, CalibrationPoint, NormalQuantiles
from fewone.calibration.calibrated import LEVELS
from fewone.detector.envelope import Envelope, Guarded
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.episodes import InputScaling
from fewone.learners import LEARNERS, ProtoNet
from fewone.zoo import read_models

FACTORS = 10.0 ** np.arange(7)
SERIES_ALONE = ("max-diff", "energy", "log-fft-nn", "rocket-nn", "support-distance", "evidence")

Maker = Callable[..., FewShotDetector]
Fault = Callable[[np.ndarray, float, np.ndarray], np.ndarray]
"""One example (channels, *space), a factor from 1 to 1e6 and a random direction of that shape -> the faulty one."""


def _spike(example: np.ndarray, factor: float, direction: np.ndarray) -> np.ndarray:
    faulty = example.copy()
    place = np.unravel_index(np.abs(direction).argmax(), direction.shape)
    faulty[place] += factor * example.std() * np.sign(direction[place])
    return faulty


def _ramp(example: np.ndarray, factor: float, direction: np.ndarray) -> np.ndarray:
    return example + factor * example.std() * np.linspace(-1, 1, example.shape[-1]) * np.sign(direction.flat[0])


def _gap(example: np.ndarray, factor: float, direction: np.ndarray) -> np.ndarray:
    """The first 1 - 1 / factor of the last axis is zero."""
    faulty = example.copy()
    faulty[..., : round((1 - 1 / factor) * example.shape[-1])] = 0.0
    return faulty


def _saturate(example: np.ndarray, factor: float, direction: np.ndarray) -> np.ndarray:
    half = 3 * example.std() / factor
    return np.clip(example, example.mean() - half, example.mean() + half)


FAULTS: dict[str, Fault] = {
    "offset": lambda example, factor, direction: example + factor * example.std() * np.sign(direction.flat[0]),
    "gain": lambda example, factor, direction: example * factor,
    "gain to zero": lambda example, factor, direction: example / factor,
    "flat line": lambda example, factor, direction: np.full_like(example, example.flat[0]),
    "saturation": _saturate,
    "noise": lambda example, factor, direction: example + factor * example.std() * direction,
    "ramp": _ramp,
    "spike": _spike,
    "gap": _gap,
}


@st.composite
def situations(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normals (K, *shape) of some size at some level, one more of them, and a direction."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.sampled_from([1, 2, 5, 10]))
    phases = random.uniform(0, 2 * np.pi, (count + 1, *(1,) * len(shape)))
    waves = np.sin(np.arange(shape[-1]) / draw(st.sampled_from([1.0, 3.0, 9.0])) + phases)
    share = draw(st.floats(0.05, 1.0))
    examples = (1 - share) * waves + share * random.normal(size=(count + 1, *shape))
    scale = 10.0 ** draw(st.integers(-3, 3))
    examples = scale * (examples + draw(st.sampled_from([-50.0, 0.0, 3.0])))
    return examples[:-1], examples[-1], random.normal(size=shape)


def check_faults_end_anomalous(
    detector: FewShotDetector, normals: np.ndarray, example: np.ndarray, direction: np.ndarray
) -> None:
    detector.fit(normals)
    for name, fault in FAULTS.items():
        queries = np.stack([fault(example, factor, direction) for factor in FACTORS])
        values = torch.from_numpy(queries).to(detector.support_.values.dtype)
        distances = detector.guarded_.find_distances(values).numpy()
        decisions = detector.decision_function(queries)
        assert not np.isnan(decisions).any(), name
        assert decisions[-1] < 0, f"{name}: {decisions} at distances {distances}"
        assert (decisions[distances > 1] < 0).all(), f"{name}: {decisions} at distances {distances}"
        outside = distances > 1
        assert not outside.any() or outside[outside.argmax() :].all(), f"{name} comes back: {distances}"


def _calibrate(slope: float) -> CalibrationMap:
    quantiles = tuple((slope * np.linspace(-1.0, 4.0, len(LEVELS))).tolist())
    return CalibrationMap((CalibrationPoint(5, slope, 0.3, 0.5, -0.2, (NormalQuantiles(1, quantiles),)),))


@pytest.fixture
def build(make_detector: Maker) -> Callable[..., FewShotDetector]:
    """A detector over a tiny learner of this shape in this precision."""

    def build(algorithm: str, shape: tuple[int, ...], dtype: torch.dtype) -> FewShotDetector:
        detector = make_detector(algorithm, shape)
        assert detector.learner is not None
        detector.learner.to(dtype)
        return detector

    return build


@pytest.mark.parametrize("algorithm", sorted(LEARNERS | BASELINES))
def test_every_learner_calls_what_is_far_from_everything_anomalous(algorithm: str, build: Maker) -> None:
    @settings(max_examples=5)
    @given(
        situations((2, 32)),
        st.sampled_from([torch.float32, torch.float64]),
        st.sampled_from([None, 0.05]),
        st.sampled_from([None, 0.1, 30.0]),
    )
    def check(
        made: tuple[np.ndarray, np.ndarray, np.ndarray], dtype: torch.dtype, rate: float | None, slope: float | None
    ) -> None:
        detector = build(algorithm, (2, 32), dtype)
        calibration = None if slope is None else _calibrate(slope)
        detector.set_params(calibration=calibration, false_alarm_rate=None if slope is None else rate)
        check_faults_end_anomalous(detector, *made)

    check()


@pytest.mark.parametrize("algorithm", sorted((LEARNERS | BASELINES).keys() - SERIES_ALONE))
def test_every_learner_calls_a_picture_far_from_everything_anomalous(algorithm: str, build: Maker) -> None:
    @settings(max_examples=2)
    @given(situations((3, 8, 8)), st.sampled_from([torch.float32, torch.float64]))
    def check(made: tuple[np.ndarray, np.ndarray, np.ndarray], dtype: torch.dtype) -> None:
        check_faults_end_anomalous(build(algorithm, (3, 8, 8), dtype), *made)

    check()


@settings(max_examples=20)
@given(situations((6,)))
def test_a_row_of_a_table_far_from_everything_is_anomalous(made: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    normals, example, direction = made
    detector = FewShotDetector().fit(normals)
    for name in ("offset", "noise", "spike"):
        assert (detector.decision_function([FAULTS[name](example, 1e6, direction)]) < 0).all(), name


@settings(max_examples=20)
@given(situations((32,)), st.sampled_from([torch.float32, torch.float64]))
def test_series_given_as_rows_of_a_table_to_a_learner_of_ones_own_are_anomalous_when_far_from_everything(
    made: tuple[np.ndarray, np.ndarray, np.ndarray], dtype: torch.dtype
) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    detector = FewShotDetector(ProtoNet(network).to(dtype), scaling=InputScaling(standardize=True))
    check_faults_end_anomalous(detector, *made)


@pytest.mark.parametrize("name", [model.name for model in read_models() if len(model.card.shape) == 2])
def test_every_model_of_series_calls_what_is_far_from_everything_anomalous(name: str) -> None:
    detector = fewone.load(name)
    assert detector.card is not None
    channels, length = detector.card.shape

    @settings(max_examples=3)
    @given(situations((channels or 2, length or 64)), st.sampled_from([None, 0.05]))
    def check(made: tuple[np.ndarray, np.ndarray, np.ndarray], rate: float | None) -> None:
        check_faults_end_anomalous(detector.set_params(false_alarm_rate=rate), *made)

    check()


@pytest.mark.parametrize("name", [model.name for model in read_models() if len(model.card.shape) == 3])
def test_every_model_of_pictures_calls_black_white_grey_and_noise_anomalous(name: str) -> None:
    detector = fewone.load(name)
    assert detector.card is not None
    free = 0 in detector.card.shape
    channels, height, width = (3, 64, 64) if free else detector.card.shape
    random = np.random.default_rng(0)
    # Blobs of light on a dark ground.
    rows, columns = np.mgrid[:height, :width] / (height, width)[0]
    centres = random.uniform(0.3, 0.7, (30, 2, 1, 1))
    blobs = np.exp(-((rows - centres[:, 0]) ** 2 + (columns - centres[:, 1]) ** 2) / 0.03)
    noise = random.uniform(0, 4, (30, channels, height, width))
    pictures = 60 + 150 * blobs[:, None] * np.linspace(1, 0.8, channels)[:, None, None] + noise
    pictures = np.moveaxis(pictures, 1, -1) if free else pictures
    detector.fit(pictures[:10])
    if not free:
        assert (detector.guarded_.find_distances(torch.from_numpy(pictures[10:]).float()) <= 1).all()
    faulty = {
        "black": np.zeros_like(pictures[:1]),
        "white": np.full_like(pictures[:1], 255.0),
        "grey": np.full_like(pictures[:1], pictures.mean()),
        "noise": random.uniform(0, 255, pictures[:1].shape),
        "inverted": 255 - pictures[10:11],
    }
    decisions = {kind: float(detector.decision_function(picture)[0]) for kind, picture in faulty.items()}
    assert max(decisions.values()) < 0, decisions


class Fooled(torch.nn.Module):
    """An adapted network gone astray: the farther, the more normal; beyond all numbers, no number."""

    def forward(self, values: Tensor) -> Tensor:
        size = values.abs().amax((1, 2))
        return torch.where(size < 1e30, -3.5e6 * size, torch.nan)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_opinion_outvotes_the_envelope_and_the_score_grows_with_the_distance(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    normals = torch.randn((10, 1, 64), generator=random, dtype=dtype)
    guarded = Guarded(Fooled(), Envelope(normals[None]), [2.5])
    factors = torch.logspace(1, 37, 37, dtype=dtype)
    for moved in (normals[0] + factors[:, None, None], normals[0] * factors[:, None, None]):
        logits = guarded(moved)
        assert torch.isfinite(logits).all()
        outside = guarded.find_distances(moved) > 1
        assert outside[2:].all()
        assert (logits[outside] > 2.5).all()
        assert (logits[outside].diff() >= 0).all()
