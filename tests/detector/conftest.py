"""Tiny models for the tests of the product: any learner of the table, and one that was trained on synthetic series."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from fewone.algorithms import find_algorithm
from fewone.calibration import CalibrationMap, HeldOut, calibrate
from fewone.checkpoints import ModelSpec, build_learner
from fewone.datasets.synthetic_series import load_synthetic_series
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.episodes import InputScaling, generator_for
from fewone.learners import LEARNERS, PldaSettings
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler


def make_card(
    algorithm: str,
    shape: tuple[int, ...] = (1, 32),
    preparation: InputScaling | None = None,
    sampling_rate: float | None = None,
) -> ModelSpec:
    return ModelSpec(
        algorithm=algorithm,
        learning=find_algorithm(algorithm).choose(inner_steps=2, dimensions=8),
        network=NetworkSettings(filters=(4, 4), norm="none"),
        shape=shape,
        preparation=InputScaling(standardize=True) if preparation is None else preparation,
        support_size=5,
        seed=1,
        dataset="made",
        fingerprint="",
        experiment=None,
        sampling_rate=sampling_rate,
    )


@pytest.fixture(scope="session")
def make_detector() -> Callable[..., FewShotDetector]:
    """An untrained detector: make_detector(algorithm, shape, preparation, sampling_rate, false_alarm_rate=...)."""

    def make(algorithm: str = "plda", *about: object, false_alarm_rate: float | None = None) -> FewShotDetector:
        card = make_card(algorithm, *about)  # type: ignore[arg-type]
        return FewShotDetector(build_learner(card).eval(), card=card, false_alarm_rate=false_alarm_rate)

    return make


@pytest.fixture(params=sorted(LEARNERS))
def any_learner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def normals() -> np.ndarray:
    """Seven noisy cycles of 32 steps at random phases, (7, 32)."""
    random = np.random.default_rng(0)
    phase = random.uniform(0, 2 * np.pi, (7, 1))
    return np.sin(np.arange(32) / 3 + phase) + 0.1 * random.normal(size=(7, 32))


@cache
def _train_on_series() -> tuple[FewShotDetector, CalibrationMap]:
    splits = load_synthetic_series("sine")
    card = make_card("plda", splits.shape, splits.preparation)
    card = ModelSpec(
        **{
            **card.__dict__,
            "network": NetworkSettings(filters=(16, 16, 16), kernel=5),
            "learning": PldaSettings(dimensions=16),
        }
    )
    learner = build_learner(card)
    optimizer = torch.optim.Adam(learner.parameters(), 5e-3)
    sampler = EpisodeSampler(10, 40, 1.0, splits.preparation)
    for iteration in range(120):
        optimizer.zero_grad()
        learner.accumulate_gradient(sampler.draw(splits.train, 4, generator_for(0, "train", iteration)))
        optimizer.step()
    learner.eval()
    calibration = calibrate([HeldOut(learner, splits.validation)], sampler, sizes=(1, 2, 5, 10), supports_per_task=3)
    return FewShotDetector(learner, card=card), calibration


@pytest.fixture(scope="session")
def trained() -> Callable[[], FewShotDetector]:
    """A fresh detector over a learner that knows sine waves (length 128) with bursts."""
    detector, _ = _train_on_series()
    return lambda: FewShotDetector(detector.learner, card=detector.card)


@pytest.fixture(scope="session")
def calibration() -> CalibrationMap:
    """Of the trained learner, from its validation tasks."""
    return _train_on_series()[1]
