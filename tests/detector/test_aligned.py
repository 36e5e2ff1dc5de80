"""Runs of one operation: every segment is judged by its own normals, a run by the mean over its segments."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import fewone
from fewone import AlignedDetector, FewShotDetector
from fewone.calibration import CalibrationMap
from fewone.checkpoints import save_calibration, save_learner
from fewone.cli import main
from fewone.detector.loading import load, load_detector
from fewone.detector.recording_verdicts import judge_recording
from fewone.errors import FewoneError, InputError
from fewone.onnx_export import export_onnx


def make_runs(count: int, seed: int = 0, bad: bool = False) -> np.ndarray:
    """(count, 3, 128): the segments of an operation are three different waves; of a bad run the last has a burst."""
    random = np.random.default_rng(seed)
    speeds = np.array([[4.0], [7.0], [11.0]])
    runs = np.sin(np.arange(128) / speeds + random.uniform(0, 0.3, (count, 1, 1)))
    runs = runs + 0.05 * random.normal(size=runs.shape)
    if bad:
        runs[:, 2, 60:75] += 1.5 * random.normal(size=(count, 15))
    return runs


@pytest.fixture
def detector(trained: Callable[[], FewShotDetector], calibration: CalibrationMap) -> FewShotDetector:
    return trained().set_params(calibration=calibration, false_alarm_rate=0.1)


def test_a_run_is_the_mean_of_its_segments_each_judged_by_its_own_normals(detector: FewShotDetector) -> None:
    normals, new = make_runs(10), make_runs(5, 1)
    aligned = AlignedDetector(detector).fit(normals)
    alone = [fewone.FewShotDetector(**detector.get_params()).fit(normals[:, p]) for p in range(3)]
    expected = np.mean([one.score_samples(new[:, p]) for p, one in enumerate(alone)], axis=0)
    # The verdict is that of a recording of three windows.
    segments = np.stack([one.score_samples(new[:, p]) for p, one in enumerate(alone)], axis=1)
    verdicts = [judge_recording(alone[0].recording_scorer_, -scores) for scores in segments]
    np.testing.assert_array_equal(aligned.decision_function(new), [verdict.decision for verdict in verdicts])
    np.testing.assert_array_equal(aligned.predict(new), np.where(aligned.decision_function(new) >= 0, 1, -1))
    assert ((aligned.anomaly_probability(new) > 0.5) == (expected < 0)).all()
    assert not hasattr(detector, "support_")


def test_more_runs_later_are_the_same_as_all_at_once(detector: FewShotDetector) -> None:
    normals, new = make_runs(10), make_runs(4, 1)
    grown = AlignedDetector(detector).partial_fit(normals[:4]).partial_fit(normals[4:])
    whole = AlignedDetector(detector).fit(normals)
    np.testing.assert_array_equal(grown.score_samples(new), whole.score_samples(new))
    assert [report.support_size for report in grown.report()] == [10, 10, 10]


def test_what_is_saved_is_loaded_to_the_bit_and_parts_of_two_are_not_mixed(
    detector: FewShotDetector, tmp_path: Path
) -> None:
    new = make_runs(4, 1)
    aligned = AlignedDetector(detector).fit(make_runs(10))
    aligned.save(tmp_path / "a")
    loaded = AlignedDetector.load(tmp_path / "a")
    np.testing.assert_array_equal(loaded.decision_function(new), aligned.decision_function(new))
    same = load(tmp_path / "a")
    assert isinstance(same, AlignedDetector)
    np.testing.assert_array_equal(same.decision_function(new), aligned.decision_function(new))
    with pytest.raises(FewoneError, match=r"aligned runs; load it with fewone\.load"):
        load_detector(tmp_path / "a")
    AlignedDetector(detector).fit(make_runs(10, 5)).save(tmp_path / "b")
    (tmp_path / "a" / "segment-1").rename(tmp_path / "kept")
    with pytest.raises(FewoneError, match=r"segment-1.detector\.json: cannot be read"):
        AlignedDetector.load(tmp_path / "a")
    (tmp_path / "b" / "segment-1").rename(tmp_path / "a" / "segment-1")
    with pytest.raises(FewoneError, match="segment-1 is not what was saved with the others"):
        AlignedDetector.load(tmp_path / "a")


def test_a_folder_of_version_0_1_whose_segments_are_called_stretches_is_read(
    detector: FewShotDetector, tmp_path: Path
) -> None:
    aligned = AlignedDetector(detector).fit(make_runs(10))
    aligned.save(tmp_path)
    for number in range(3):
        (tmp_path / f"segment-{number}").rename(tmp_path / f"stretch-{number}")
    new = make_runs(4, 1)
    np.testing.assert_array_equal(load(tmp_path).decision_function(new), aligned.decision_function(new))


def test_one_onnx_file_judges_whole_runs(detector: FewShotDetector, tmp_path: Path) -> None:
    aligned = AlignedDetector(detector).fit(make_runs(10)[:, :, None])
    export_onnx(aligned, tmp_path / "out.onnx")
    new = np.concatenate([make_runs(5, 1), make_runs(2, 2, bad=True)])[:, :, None].astype(np.float32)
    scores, decisions, labels = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"values": new})
    np.testing.assert_allclose(scores, aligned.score_samples(new), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(decisions, aligned.decision_function(new), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(labels, aligned.predict(new))


def test_wrong_inputs_are_told(detector: FewShotDetector) -> None:
    with pytest.raises(InputError, match=r"detector: what fewone\.load gives is expected, got str"):
        AlignedDetector("vibration").fit(make_runs(3))  # type: ignore[arg-type]
    aligned = AlignedDetector(detector)
    with pytest.raises(NotFittedError, match="call fit"):
        aligned.predict(make_runs(1))
    with pytest.raises(InputError, match=r"\(runs, segments, \*shape\), got \(3, 128\)"):
        aligned.fit(np.zeros((3, 128)))
    with pytest.raises(InputError, match="3 segments a run expected, got 2"):
        aligned.fit(make_runs(4)).predict(make_runs(4)[:, :2])


def test_the_figure_has_a_panel_for_each_stretch(detector: FewShotDetector) -> None:
    aligned = AlignedDetector(detector).fit(make_runs(10))
    figure = aligned.plot(make_runs(1, 3, bad=True)[0])
    assert len(figure.axes) == 3


def test_the_verbs_fit_and_score_runs(
    detector: FewShotDetector,
    calibration: CalibrationMap,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert detector.learner is not None
    assert detector.card is not None
    save_learner(Path("model"), detector.learner, detector.card)
    save_calibration(Path("model"), calibration)
    bad = make_runs(2, 2, bad=True)
    for folder, runs in (("normals", make_runs(10)), ("new", np.concatenate([make_runs(3, 1), bad]))):
        Path(folder).mkdir()
        for number, run in enumerate(runs):
            np.save(f"{folder}/{number}.npy", run.reshape(-1, 1))
    assert main(["fit", "model", "normals", "--aligned", "--out", "press", "--false-alarm-rate", "0.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["normals"] == 10
    assert main(["score", "press", "new", "--out", "scores.csv", "--plot", "page.html"]) == 1
    rows = list(csv.DictReader(Path("scores.csv").read_text().splitlines()))
    aligned = AlignedDetector.load("press")
    decisions = aligned.decision_function(np.concatenate([make_runs(3, 1), bad]))
    np.testing.assert_allclose([float(row["decision"]) for row in rows], decisions, rtol=1e-5)
    assert [(row["anomalous"], row["windows"]) for row in rows[3:]] == [("True", "3")] * 2
    assert {row["worst"] for row in rows[3:]} == {"256"}
    assert "<img" in Path("page.html").read_text()
    assert main(["score", "press", "new", "--each-window", "--out", "windows.csv"]) == 1
    windows = list(csv.DictReader(Path("windows.csv").read_text().splitlines()))
    assert [row["place"] for row in windows[:3]] == ["0", "128", "256"]
    assert windows[-1]["anomalous"] == "True"
    capsys.readouterr()
    assert main(["export", "press", "--onnx", "press.onnx"]) == 0
    assert "(n, 3, 1, 128)" in capsys.readouterr().out
    np.save("new/short.npy", np.zeros((130, 1)))
    assert main(["score", "press", "new"]) == 1
    assert "NOT JUDGED new/short.npy: 1 windows, the detector was fitted on runs of 3" in capsys.readouterr().out
    np.save("normals/short.npy", np.zeros((130, 1)))
    assert main(["fit", "model", "normals", "--aligned", "--out", "other"]) == 2
    assert "--aligned takes runs of one operation" in capsys.readouterr().err
    assert not Path("other").exists()


def test_an_aligned_detector_is_a_scikit_learn_estimator(detector: FewShotDetector) -> None:
    aligned = AlignedDetector(detector).set_params(detector__false_alarm_rate=0.2)
    assert aligned.get_params()["detector__false_alarm_rate"] == 0.2
    twin = clone(aligned)
    assert twin.detector is not aligned.detector
    new = make_runs(4, 1)
    np.testing.assert_array_equal(
        make_pipeline(twin).fit(make_runs(10)).decision_function(new), aligned.fit(make_runs(10)).decision_function(new)
    )
    with pytest.raises(ValueError, match="Invalid parameter 'segments__x' for AlignedDetector"):
        aligned.set_params(segments__x=1)


def test_runs_of_plain_tables_need_no_model() -> None:
    random = np.random.default_rng(0)
    runs = random.normal(size=(30, 4, 3))
    aligned = AlignedDetector().fit(runs)
    assert aligned.n_features_in_ == 4
    assert aligned.predict(runs + np.array([0, 0, 9])).tolist() == [-1] * 30


def test_another_false_alarm_rate_is_asked_of_saved_runs(detector: FewShotDetector, tmp_path: Path) -> None:
    calibrated = AlignedDetector(detector).fit(make_runs(30))
    calibrated.save(tmp_path)
    other = load(tmp_path, false_alarm_rate=0.3)
    anew = AlignedDetector(detector.unfitted().set_params(false_alarm_rate=0.3)).fit(make_runs(30))
    assert other.offset_ == anew.offset_ != calibrated.offset_
