"""One verdict per recording: an event is not drowned, a small shift of all windows is found, and the rate holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

import fewone
from fewone.calibration import CalibrationMap, CalibrationPoint, NormalQuantiles
from fewone.calibration.calibrated import LEVELS
from fewone.calibration.quantiles import find_quantiles
from fewone.datasets.cnc_milling import read_segments
from fewone.datasets.sources import default_data_dirs
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.recording_verdicts import RecordingScorer, find_limits, judge_recording
from fewone.onnx_export import export_onnx

SIZES = (5, 23, 100, 5000)
WANDER = 0.5


def correlated(random: np.random.Generator, recordings: int, windows: int, correlation: float) -> np.ndarray:
    """Logits of normal windows that follow each other, (recordings, windows), of deviation 1."""
    fresh = random.normal(size=(recordings, windows))
    logits = fresh.copy()
    for number in range(1, windows):
        logits[:, number] = correlation * logits[:, number - 1] + np.sqrt(1 - correlation**2) * fresh[:, number]
    return logits


def draw_recordings(windows: int, correlation: float, count: int, seed: int = 1) -> np.ndarray:
    """Each of a task of its own, whose level wanders."""
    random = np.random.default_rng([seed, windows])
    return WANDER * random.normal(size=(count, 1)) + correlated(random, count, windows, correlation)


@cache
def calibrate_simulation(peaks: bool) -> CalibrationMap:
    """What calibration over 60 tasks of such logits keeps: the quantiles of means, and of maxima."""
    random = np.random.default_rng(0)
    tasks = [WANDER * random.normal() + random.normal(size=(6, 48)) for _ in range(60)]

    def keep(combine: Callable[..., np.ndarray], groups: tuple[int, ...]) -> tuple[NormalQuantiles, ...]:
        return tuple(
            NormalQuantiles(
                group,
                find_quantiles([torch.from_numpy(combine(task.reshape(-1, group), axis=1)) for task in tasks], LEVELS),
            )
            for group in groups
        )

    largest = keep(np.max, (2, 6, 24, 48)) if peaks else ()
    return CalibrationMap((CalibrationPoint(10, 1.0, 0.0, 0.0, 0.0, keep(np.mean, (1, 2, 6, 24, 48)), largest),))


def make_scorer(rate: float | None, peaks: bool = True) -> RecordingScorer:
    calibration = calibrate_simulation(peaks)
    threshold = 3.0 if rate is None else calibration.threshold(10, rate)
    return RecordingScorer(find_limits(threshold, rate, calibration, 10, 1.0))


def count_alarms(scorer: RecordingScorer, recordings: np.ndarray) -> float:
    return float((scorer(torch.from_numpy(recordings)).amin(-1) < 0).double().mean())


@pytest.mark.parametrize("peaks", [True, False])
@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("rate", [0.1, 0.05])
def test_the_rate_holds_whatever_the_number_of_windows(rate: float, correlation: float, peaks: bool) -> None:
    scorer = make_scorer(rate, peaks)
    for windows in SIZES:
        realised = count_alarms(scorer, draw_recordings(windows, correlation, 600 if windows < 1000 else 100))
        assert realised <= 1.5 * rate, windows
        if windows <= 100:
            assert realised >= rate / 4, windows


@pytest.mark.parametrize("windows", SIZES[1:])
def test_a_small_shift_of_all_windows_is_found_though_no_single_one_stands_out(windows: int) -> None:
    scorer, random = make_scorer(0.05), np.random.default_rng(3)
    shifted = 1.6 + 0.1 * random.normal(size=(20, windows))
    parts = scorer(torch.from_numpy(shifted))
    assert (parts[:, 0] < 0).all()
    assert (shifted < scorer.event[0].item()).mean() > 0.5


@pytest.mark.parametrize("windows", SIZES)
@pytest.mark.parametrize("rate", [None, 0.05])
def test_two_wild_windows_are_an_event_however_many_are_normal(windows: int, rate: float | None) -> None:
    logits = draw_recordings(windows, 0.0, 1)[0] - 4.0
    logits[[1, 3]] = 34.0, 26.0
    verdict = judge_recording(make_scorer(rate), logits)
    assert verdict.decision == verdict.event < 0
    assert verdict.worst == 1
    assert "event" in verdict.cause
    assert "event at window 1" in str(verdict)
    assert windows < 23 or verdict.cause == "event"


def test_a_single_window_keeps_the_law_of_windows() -> None:
    scorer, calibration = make_scorer(0.05), calibrate_simulation(peaks=True)
    for logit in (-3.0, 0.0, 7.5):
        verdict = judge_recording(scorer, np.array([logit]))
        assert verdict.decision == verdict.whole == verdict.event
        assert verdict.decision == pytest.approx(calibration.threshold(10, 0.05) - logit)


def test_the_limit_of_the_worst_window_never_falls_with_the_number_of_windows() -> None:
    for rate in (None, 0.1):
        limits = make_scorer(rate).event
        assert (limits.diff() >= 0).all()
        # Student's or worse tails would grow without measure: this is log n.
        assert limits[-1] - limits[0] < 40


def test_raising_a_window_that_leads_never_helps() -> None:
    scorer, logits = make_scorer(0.05), draw_recordings(23, 0.5, 1)[0]
    events = []
    for height in np.linspace(0.0, 1e6, 30):
        raised = logits.copy()
        raised[14] = logits.max() + height
        events.append(judge_recording(scorer, raised).event)
    assert (np.diff(events) <= 0).all()
    assert events[-1] < 0


@pytest.fixture
def detector(trained: Callable[[], FewShotDetector], calibration: CalibrationMap, sines: np.ndarray) -> FewShotDetector:
    return trained().set_params(calibration=calibration, false_alarm_rate=0.1).fit(sines[:10])


@pytest.fixture
def sines() -> np.ndarray:
    random = np.random.default_rng(0)
    waves = np.sin(np.arange(128) / 4 + random.uniform(0, 6, (60, 1)))
    return waves + 0.1 * random.normal(size=(60, 128))


@pytest.mark.parametrize("rate", [None, 0.1])
def test_a_recording_of_23_windows_with_two_wild_ones_is_anomalous_on_every_way(
    detector: FewShotDetector, sines: np.ndarray, rate: float | None
) -> None:
    detector.set_params(false_alarm_rate=rate).fit(sines[:10])
    recording = sines[20:43].copy()
    recording[[7, 14]] += 4.0 * np.random.default_rng(5).normal(size=(2, 128))
    groups = np.zeros(23)
    assert detector.predict(recording, groups).tolist() == [-1]
    assert detector.anomaly_probability(recording, groups)[0] > 0.5
    verdict = detector.judge_recordings(recording, groups)[0]
    assert verdict.event < 0
    assert verdict.worst in (7, 14)
    scores = detector.score_series(recording.reshape(-1), stride=128)
    assert detector.decide(scores) == pytest.approx(verdict.decision)
    assert detector.judge_series(scores).worst == verdict.worst
    assert detector.predict(sines[20:43], groups).tolist() == [1]


def test_one_window_far_outside_is_an_event_among_five_thousand(detector: FewShotDetector, sines: np.ndarray) -> None:
    recording = np.repeat(sines[20:60], 125, axis=0)
    recording[2000] = 0.0
    verdict = detector.judge_recordings(recording, np.zeros(len(recording)))[0]
    assert verdict.cause.endswith("event")
    assert verdict.worst == 2000


def test_an_exported_recording_gets_the_same_two_parts(
    detector: FewShotDetector, sines: np.ndarray, tmp_path: Path
) -> None:
    export_onnx(detector, tmp_path / "out.onnx", recording=True)
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    recording = sines[20:43, None].astype(np.float32)
    for given in (recording, recording[:1], np.concatenate([recording, 5 * recording])):
        *_, parts = session.run(None, {"values": given})
        verdict = detector.judge_recordings(given, np.zeros(len(given)))[0]
        np.testing.assert_allclose(parts, [verdict.whole, verdict.event], rtol=1e-4, atol=1e-4)


def test_real_good_runs_cut_into_few_or_many_windows_keep_the_rate(
    require_real: Callable[[str], tuple[Path, ...]],
) -> None:
    """Good runs of M01 (whose other operations the model knows), 18 recordings a support; the rate is one over runs."""
    require_real("cnc")
    place = next(folder for folder in default_data_dirs() if (folder / "cnc" / "data").is_dir()) / "cnc" / "data"
    alarms = {1: [], 2: []}
    for operation in ("OP01", "OP04", "OP07"):
        files = sorted((place / "M01" / operation / "good").glob("*.h5"))[:28]
        runs = np.stack([read_segments(file) for file in files])
        spread = np.linspace(0, len(runs) - 1, 10).round().astype(int)
        later = np.delete(runs, spread, axis=0)
        detector = fewone.AlignedDetector(fewone.load("vibration", false_alarm_rate=0.1)).fit(runs[spread])
        scores = -detector.score_segments(later)
        scorer = detector.segments_[0].recording_scorer_
        for joined in alarms:
            recordings = scores[: len(scores) // joined * joined].reshape(-1, 6 * joined)
            alarms[joined] += [judge_recording(scorer, logits).decision < 0 for logits in recordings]
    for joined, found in alarms.items():
        assert np.mean(found) <= 0.2, joined


def test_among_more_windows_an_event_must_be_farther_outside_as_the_docs_say() -> None:
    random = np.random.default_rng(0)

    def draw(count: int) -> NDArray[np.float64]:
        phases = random.uniform(0, 1, (count, 1))
        clean: NDArray[np.float64] = np.sin(2 * np.pi * (4 * np.arange(128) / 128 + phases))
        return clean + random.normal(0, 0.1, (count, 128))

    detector = fewone.load("series", false_alarm_rate=0.05).fit(draw(10))

    def judge(count: int, gain: float) -> tuple[bool, bool]:
        """Whether the recording is anomalous without and with one window of another swing."""
        values = draw(count)
        changed = values.copy()
        changed[count // 2] *= gain
        one = np.zeros(count)
        verdicts = [detector.judge_recordings(each, one)[0] for each in (values, changed)]
        return verdicts[0].decision < 0, verdicts[1].decision < 0

    assert judge(23, 10.0) == judge(500, 10.0) == (False, True)
    assert judge(5000, 10.0) == (False, False)
    assert judge(5000, 30.0) == judge(5000, 0.0) == (False, True)
