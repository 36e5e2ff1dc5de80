"""One example at a time: a recording says what the detector says, to the bit, or it is not used."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fewone.detector import one_example
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load_detector
from fewone.detector.one_example import RECORD_AFTER, OneExample, record
from fewone.errors import InputError


def make_values(count: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(count, *shape))
    return (100.0 + 40.0 * values if len(shape) == 3 else values).astype(np.float32)


def make_queries(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Usual ones, far ones, dead ones and one spike."""
    usual = make_values(5, shape, seed=1)
    spike = usual[:1].copy()
    spike[..., 3] += 500.0
    return [*np.split(usual, 5), 30.0 * usual[:1], np.full_like(usual[:1], 7.0), 1e9 * usual[:1], spike]


def score_each(detector: FewShotDetector, queries: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([detector.score_samples(query) for query in queries])


def ask_often(detector: FewShotDetector, window: np.ndarray) -> None:
    """As if the example had been asked for so often that a recording is due."""
    detector.one_example_.calls = RECORD_AFTER - 1
    detector.predict(window)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("series", (1, 128)),
        ("series", (3, 50)),
        ("periodic", (1, 128)),
        ("vibration", (3, 2048)),
        ("digits", (1, 28, 28)),
    ],
)
def test_a_recording_gives_the_same_bits(model: str, shape: tuple[int, ...]) -> None:
    detector = load_detector(model, false_alarm_rate=0.05).fit(make_values(6, shape))
    queries = make_queries(shape)
    plain = score_each(detector, queries)
    ask_often(detector, queries[0])
    assert detector.one_example_.recorded is not None
    assert np.array_equal(score_each(detector, queries), plain)
    assert np.isfinite(plain).all() and len(set(plain)) > 5


@pytest.fixture
def detector() -> FewShotDetector:
    return load_detector("periodic").fit(make_values(6, (1, 128)))


def test_who_asks_seldom_has_none(detector: FewShotDetector) -> None:
    window = make_values(1, (1, 128), seed=2)
    for _ in range(RECORD_AFTER - 1):
        detector.predict(window)
    detector.predict(make_values(50, (1, 128)))
    assert detector.one_example_.recorded is None
    detector.predict(window)
    assert detector.one_example_.recorded is not None


def test_what_is_refused_stays_refused(detector: FewShotDetector) -> None:
    window = make_values(1, (1, 128), seed=2)
    ask_often(detector, window)
    assert detector.one_example_.recorded is not None
    broken = window.copy()
    broken[0, 0, 5] = np.nan
    for wrong in (broken, window[..., :100], window[0, 0], "window"):
        with pytest.raises(InputError):
            detector.predict(wrong)
    assert np.array_equal(detector.score_samples(window.astype(np.float64)), detector.score_samples(window))


def test_another_fit_has_nothing_of_the_recording_before(detector: FewShotDetector) -> None:
    window, others = make_values(1, (1, 128), seed=2), 5.0 + make_values(6, (1, 128), seed=3)
    ask_often(detector, window)
    expected = load_detector("periodic").fit(others).score_samples(window)
    assert np.array_equal(detector.fit(others).score_samples(window), expected)


def test_copies_score_alike_and_carry_no_recording(detector: FewShotDetector) -> None:
    window = make_values(1, (1, 128), seed=2)
    ask_often(detector, window)
    for twin in (copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))):
        assert twin.one_example_.recorded is None
        assert twin.one_example_.module is twin.guarded_
        assert np.array_equal(twin.score_samples(window), detector.score_samples(window))


def test_many_threads_get_one_answer(detector: FewShotDetector) -> None:
    window = make_values(1, (1, 128), seed=2)
    expected = detector.score_samples(window)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: detector.score_samples(window), range(3 * RECORD_AFTER)))
    assert np.array_equal(np.concatenate(found), np.repeat(expected, 3 * RECORD_AFTER))


class Whimsical(nn.Module):
    """Its way depends on its input, which no recording can know."""

    def forward(self, values: Tensor) -> Tensor:
        return values.flatten(1).sum(1) if values[0, 0, 0] > 2.0 else -values.flatten(1).sum(1)


def test_code_that_is_not_ours_is_never_recorded() -> None:
    assert record(Whimsical(), torch.zeros(4, 1, 16).split(1)) is None
    asked = OneExample(nn.Sequential(Whimsical()), torch.zeros(4, 1, 16))
    with torch.inference_mode():
        for _ in range(RECORD_AFTER + 5):
            assert asked(torch.ones(1, 1, 16)) == -16.0
        assert asked(torch.full((1, 1, 16), 3.0)) == 48.0


def test_a_recording_with_other_bits_or_none_at_all_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module, normals = nn.Sequential(nn.Flatten(), nn.Linear(16, 1), nn.Flatten(0)).eval(), torch.randn(4, 1, 16)
    assert record(module, normals.split(1)) is not None
    assert record(module, torch.randn(4, 1, one_example.LARGEST + 1).split(1)) is None

    def spoil(recorded: object) -> object:
        return lambda values: torch.nextafter(module(values), torch.tensor(9.0))

    monkeypatch.setattr(torch.jit, "freeze", spoil)
    assert record(module, normals.split(1)) is None

    def fail(*arguments: object, **options: object) -> object:
        raise RuntimeError("not in this version")

    monkeypatch.setattr(torch.jit, "trace", fail)
    assert record(module, normals.split(1)) is None


def test_loading_and_recording_leave_torchs_compiler_and_scikit_learn_alone() -> None:
    program = (
        "import sys, numpy, fewone\n"
        "detector = fewone.load('series').fit(numpy.random.default_rng(0).normal(size=(5, 64)))\n"
        f"[detector.predict(numpy.ones((1, 64))) for _ in range({RECORD_AFTER})]\n"
        "assert detector.one_example_.recorded is not None\n"
        "print([name for name in ('torch._dynamo', 'sympy', 'sklearn') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.stdout.strip(), found.returncode) == ("[]", 0), found.stderr
