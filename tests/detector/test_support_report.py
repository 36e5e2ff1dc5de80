"""What `report()` says of normals: by the data, not by a standing sentence, and innocent ones seldom."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

import fewone
from fewone.datasets.synthetic_series import generate_task
from fewone.detector.support_report import STRANGE, find_faults, find_odd

ASKED = 0.05
SUPPORTS = 8


def known(seed: int) -> np.ndarray:
    kind = "sine" if seed % 2 else "sawtooth"
    return np.asarray(generate_task(kind, np.random.default_rng(seed), 60).normal).reshape(60, -1)


def humps(seed: int) -> np.ndarray:
    """Cycles of a machine with one hump, which comes early or late and high or low."""
    random, steps = np.random.default_rng(seed), np.arange(128)
    centre, width, height = random.uniform(40, 90), random.uniform(6, 20), random.uniform(0.5, 3)
    shapes = [np.exp(-0.5 * ((steps - centre - random.normal(0, 2)) / width) ** 2) for _ in range(60)]
    return height * np.stack([shape * (1 + random.normal(0, 0.05)) + random.normal(0, 0.03, 128) for shape in shapes])


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(60, 128))


def look(make: object, model: str = "series", rate: float | None = ASKED) -> tuple[float, float, float]:
    """Shares over supports of ten: with a warning, with a normal named odd; false alarms on the other fifty."""
    warned, odd, alarms = [], [], []
    for seed in range(SUPPORTS):
        values = make(seed)  # type: ignore[operator]
        detector = fewone.load(model, false_alarm_rate=rate)
        assert isinstance(detector, fewone.FewShotDetector)
        report = detector.fit(values[:10]).report()
        warned.append(any("expect more false alarms" in line for line in report.warnings))
        odd.append(len(report.odd) > 0)
        alarms.append(np.mean(detector.predict(values[10:]) < 0))
    return float(np.mean(warned)), float(np.mean(odd)), float(np.mean(alarms))


@pytest.mark.parametrize(("model", "named"), [("periodic", 0.15), ("series", 0.15)])
def test_known_kinds_of_series_raise_no_warning_and_seldom_an_odd_normal(model: str, named: float) -> None:
    """named: one of 8 at most, of what docs/detector.md states to be one in twenty or fewer."""
    warned, odd, alarms = look(known, model)
    assert warned <= 0.15
    assert odd <= named
    assert alarms <= 2 * ASKED


@pytest.mark.parametrize("make", [humps, noise])
def test_where_more_false_alarms_come_than_were_asked_for_the_report_has_said_so(make: object) -> None:
    warned, _, alarms = look(make)
    assert warned >= 0.7 or alarms <= 2 * ASKED


@pytest.mark.parametrize("make", [humps, noise])
def test_a_model_of_sines_and_sawtooths_says_that_it_knows_neither_humps_nor_noise(make: object) -> None:
    warned, _, alarms = look(make, "periodic")
    assert warned >= 0.7
    assert alarms > ASKED


def test_an_innocent_normal_is_named_odd_in_one_support_of_fifty() -> None:
    """The rate that docs/detector.md states, where scores have an exponential tail."""
    random = np.random.default_rng(1)
    for count in (5, 8, 10, 20, 40):
        named = np.mean([len(find_odd(-random.gumbel(size=count))) > 0 for _ in range(2000)])
        assert 0.005 < named < 0.035
    scores = np.append(random.normal(5, 0.1, 9), -20.0)
    assert find_odd(scores) == (9,)


@pytest.fixture(scope="module")
def odd_normals(import_program: Callable[[str], ModuleType]) -> ModuleType:
    return import_program("odd_normals")


STATED = 1 / 20
"""Of docs/detector.md: the share of supports of one kind in which the model `series` names a normal."""


@pytest.mark.slow
@pytest.mark.parametrize("k", [5, 10, 20])
@pytest.mark.parametrize("kind", ["sines at random phases", "one hump", "white noise", "random walks"])
def test_series_names_an_innocent_normal_at_most_as_often_as_stated(odd_normals: ModuleType, kind: str, k: int) -> None:
    assert odd_normals.find_share(fewone.load("series"), odd_normals.KINDS[kind], k, 200, 1000) <= STATED


def test_an_odd_normal_is_anomalous_by_twenty_to_one_where_there_is_a_calibration(odd_normals: ModuleType) -> None:
    detector = fewone.load("series")
    values = odd_normals.make_humps(np.random.default_rng(5), 10)
    values[4] = np.sin(np.arange(128) / 5)
    report = detector.fit(values).report()
    assert report.odd == (4,)
    assert report.leave_one_out[4] < -STRANGE
    apart = np.append(np.random.default_rng(0).normal(5, 0.01, 9), 2.0)
    assert find_odd(apart) == (9,)
    assert find_odd(apart, -STRANGE) == ()


def test_one_identical_copied_and_constant_normals_are_told() -> None:
    random = np.random.default_rng(0)
    normals = random.normal(size=(5, 1, 16))
    assert find_faults(normals) == []
    assert "one normal shows nothing" in find_faults(normals[:1])[0]
    assert "all 5 normals are the same" in find_faults(np.repeat(normals[:1], 5, axis=0))[0]
    assert "1 of 5 normals is a copy of another" in find_faults(normals[[0, 1, 2, 3, 3]])[0]
    normals[2] = 7.0
    assert "1 of 5 normals is constant" in find_faults(normals)[0]


def test_the_detector_passes_them_on_and_its_dials_are_named() -> None:
    detector = fewone.load("series")
    assert isinstance(detector, fewone.FewShotDetector)
    report = detector.fit(noise(0)[:1]).report()
    assert any("one normal shows nothing" in line for line in report.warnings)
    with pytest.raises(fewone.InputError, match="stride is '4': a whole number is expected, got str"):
        detector.score_series(np.zeros(500), stride="4")  # type: ignore[arg-type, call-overload]
    with pytest.raises(fewone.InputError, match=r"window is 2\.5: a whole number"):
        fewone.windows(np.zeros(500), 2.5)  # type: ignore[arg-type]
    with pytest.raises(fewone.InputError, match="trained on series of 2000 Hz, yours have 100 Hz"):
        fewone.load("vibration", sampling_rate=100)


def test_a_detector_fits_a_line() -> None:
    detector = fewone.load("vibration", false_alarm_rate=0.05, sampling_rate=2000)
    for one in (detector, fewone.AlignedDetector(detector)):  # type: ignore[arg-type]
        assert len(repr(one)) <= 100
        assert "\n" not in repr(one)
