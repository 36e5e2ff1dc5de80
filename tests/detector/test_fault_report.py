"""`check_faults`: honest (nothing is judged that was fitted on), gross faults found, blind ones named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import fewone
from fewone.cli import main
from fewone.detector.fault_report import FaultReport, report_faults
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.picture_faults import PICTURE_FAULTS, inject_into_pictures
from fewone.errors import InputError
from fewone.faults import FAULTS

Maker = Callable[..., FewShotDetector]


def test_no_normal_is_judged_by_a_detector_that_saw_it() -> None:
    normals = np.arange(7.0)[:, None, None] + np.zeros((7, 1, 16))
    seen: list[tuple[set[int], set[int]]] = []

    def fit(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        def judge(values: np.ndarray) -> np.ndarray:
            if len(values) < 7:
                seen.append((set(rows.tolist()), set(values[:, 0, 0].astype(int).tolist())))
            return np.ones(len(values), bool)

        return judge

    report = report_faults(normals, "series", fit, ["offset"], [1.0], 0)
    untouched = seen[::2]
    assert set.union(*(judged for _, judged in untouched)) == set(range(7))
    assert not any(fitted & judged for fitted, judged in untouched)
    assert report.false_alarms == 1.0 and report.held_out


def test_the_strength_from_which_on_a_fault_is_found_and_the_blind_ones() -> None:
    found = np.array([[0.1, 0.9, 1.0], [0.9, 0.2, 0.9], [0.0, 0.0, 0.5], [1.0, 1.0, 1.0]])
    report = FaultReport(("offset", "gain", "warp", "flat"), (0.5, 1.0, 2.0), found, 0.1, 10, True)
    assert report.found_from == {"offset": 1.0, "gain": 2.0, "warp": None, "flat": 0.5}
    assert report.blind == ("warp",)
    assert "blind to: warp" in str(report)
    assert "10% of 10 normals" in str(report)
    assert isinstance(report.plot(), Figure)


def test_a_model_of_the_zoo_finds_every_gross_fault_of_level_and_spread(normals: np.ndarray) -> None:
    random = np.random.default_rng(0)
    waves = np.sin(np.arange(128) / 4 + random.uniform(0, 6, (8, 1))) + 0.1 * random.normal(size=(8, 128))
    report = fewone.load("series").fit(waves).check_faults(strengths=[30.0])
    assert report.faults == tuple(FAULTS)
    gross = ("offset", "gain", "flat", "noise", "ramp", "trend", "spike", "step", "hum")
    assert {fault: report.found_from[fault] for fault in gross} == dict.fromkeys(gross, 30.0)


def test_one_normal_is_judged_by_itself_and_the_report_says_so(make_detector: Maker, normals: np.ndarray) -> None:
    report = make_detector().fit(normals[:1]).check_faults(["offset"], [1e4])
    assert not report.held_out
    assert "judged by itself" in str(report)
    assert report.found.tolist() == [[1.0]]


def test_aligned_runs_are_checked_as_courses(make_detector: Maker) -> None:
    runs = np.random.default_rng(0).normal(size=(6, 3, 1, 32))
    report = fewone.AlignedDetector(make_detector()).fit(runs).check_faults(["offset", "flat"], [1e4])
    assert report.found.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("fault", sorted(PICTURE_FAULTS))
def test_faults_of_pictures_are_seeded_and_grow(fault: str) -> None:
    random = np.random.default_rng(0)
    pictures = random.uniform(20, 200, (3, 3, 16, 16)).astype(np.float32)
    kept = pictures.copy()
    weak, strong = (inject_into_pictures(pictures, fault, strength, 0) for strength in (0.5, 4.0))
    np.testing.assert_array_equal(pictures, kept)
    np.testing.assert_array_equal(strong, inject_into_pictures(pictures, fault, 4.0, 0))
    assert strong.min() >= 0 and strong.max() <= 255
    assert 0 < np.abs(weak - pictures).mean() <= np.abs(strong - pictures).mean() * 1.2


def test_pictures_and_mistakes(make_detector: Maker, normals: np.ndarray) -> None:
    pictures = np.random.default_rng(0).uniform(50, 120, (5, 8, 8, 3))
    detector = make_detector("plda", (3, 8, 8)).fit(pictures)
    assert detector.check_faults(["invert", "darken"], [30.0]).found.tolist() == [[1.0], [1.0]]
    with pytest.raises(InputError, match="no fault is called 'offset'; there are darken"):
        detector.check_faults(["offset"])
    with pytest.raises(InputError, match="plain tables"):
        FewShotDetector().fit(normals).check_faults()
    with pytest.raises(InputError, match="strength above 0"):
        detector.check_faults(strengths=[])


def test_the_verb_prints_the_table_and_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make_detector: Maker, normals: np.ndarray
) -> None:
    make_detector().fit(normals).save(tmp_path / "press")
    page = tmp_path / "faults.png"
    assert main(["analyze", "faults", str(tmp_path / "press"), "--plot", str(page)]) == 0
    told = capsys.readouterr().out
    assert "found from" in told and "blind to:" in told and "saturation" in told
    assert page.stat().st_size > 1000
    assert main(["analyze", "faults", str(tmp_path / "nothing")]) == 2
