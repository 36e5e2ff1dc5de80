"""The detector over every learner: signs, layouts, more normals, known anomalies, groups, thresholds, recordings."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fewone.calibration import CalibrationMap, HeldOut, calibrate
from fewone.datasets.synthetic_series import generate_task, split_series
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.recordings import windows
from fewone.episodes import EvaluationProtocol, Examples, InputScaling, Moments
from fewone.errors import InputError
from fewone.sampling import EpisodeSampler

Maker = Callable[..., FewShotDetector]


def test_scores_are_minus_the_logits_of_the_learner(
    make_detector: Maker, any_learner: str, normals: np.ndarray
) -> None:
    detector = make_detector(any_learner).fit(normals[:5])
    inputs = torch.from_numpy(normals).float()[:, None]
    support, query = Moments.of(inputs[:5]).apply(inputs[:5]), Moments.of(inputs[:5]).apply(inputs)
    assert detector.learner is not None
    logits = detector.learner.adapt(Examples.normals(support[None]))(query[None])[0]
    np.testing.assert_allclose(detector.score_samples(normals), -logits.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        detector.decision_function(normals), detector.score_samples(normals) - detector.offset_
    )
    np.testing.assert_array_equal(detector.predict(normals), np.where(detector.decision_function(normals) < 0, -1, 1))
    np.testing.assert_allclose(
        detector.anomaly_probability(normals), 1 / (1 + np.exp(detector.score_samples(normals))), rtol=1e-12
    )


def test_more_normals_later_are_a_fit_on_all_of_them(
    make_detector: Maker, any_learner: str, normals: np.ndarray
) -> None:
    late = make_detector(any_learner).fit(normals[:3]).partial_fit(normals[3:])
    at_once = make_detector(any_learner).fit(normals)
    np.testing.assert_array_equal(late.score_samples(normals), at_once.score_samples(normals))
    assert late.support_size_ == 7


def test_every_layout_and_container_gives_the_same_scores(make_detector: Maker, normals: np.ndarray) -> None:
    detector = make_detector().fit(normals)
    expected = detector.score_samples(normals)
    for given in (normals[:, None], normals.tolist(), torch.from_numpy(normals), pd.DataFrame(normals)):
        np.testing.assert_array_equal(detector.score_samples(given), expected)
    integers = np.round(normals * 1000).astype(int)
    np.testing.assert_array_equal(
        detector.fit(integers).score_samples(integers), detector.score_samples(integers.astype(np.float64))
    )


def test_a_known_anomaly_makes_its_like_more_anomalous(trained: Callable[[], FewShotDetector]) -> None:
    task = generate_task("sine", np.random.default_rng(3), 30)
    detector = trained()
    before = detector.fit(task.normal[:9]).score_samples(task.anomalous[:1])[0]
    given = np.concatenate([task.normal[:9], task.anomalous[:1]])
    after = detector.fit(given, [1] * 9 + [-1]).score_samples(task.anomalous[:1])[0]
    assert after < before
    assert detector.support_size_ == 9
    assert detector.report().known_anomalies == 1


def test_labels_that_are_no_plus_or_minus_one_are_ignored_with_a_warning(
    make_detector: Maker, normals: np.ndarray
) -> None:
    with pytest.warns(UserWarning, match="marked with -1"):
        detector = make_detector().fit(normals, [0, 0, 0, 0, 0, 0, 1])
    assert detector.support_size_ == 7


def test_the_detector_works_in_a_pipeline_and_survives_clone_and_pickle(
    make_detector: Maker, normals: np.ndarray
) -> None:
    detector = make_detector(false_alarm_rate=0.3)
    pipeline = make_pipeline(FunctionTransformer(np.tanh), detector)
    expected = pipeline.fit(normals).decision_function(normals)
    copied = clone(pipeline)
    assert copied[-1].false_alarm_rate == 0.3
    np.testing.assert_array_equal(copied.fit(normals).decision_function(normals), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pipeline)).decision_function(normals), expected)


def test_fitting_leaves_the_learner_as_it_was(make_detector: Maker, any_learner: str, normals: np.ndarray) -> None:
    detector = make_detector(any_learner)
    assert detector.learner is not None
    before = {name: value.clone() for name, value in detector.learner.state_dict().items()}
    detector.fit(normals).decision_function(normals)
    for name, value in detector.learner.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_an_unfitted_detector_says_so(make_detector: Maker, normals: np.ndarray) -> None:
    for method in ("predict", "score_samples", "anomaly_probability", "score_series", "explain", "plot"):
        with pytest.raises(NotFittedError):
            getattr(make_detector(), method)(normals)


def test_the_decision_on_a_recording_is_that_of_its_mean_or_of_its_worst(
    make_detector: Maker, normals: np.ndarray
) -> None:
    detector = make_detector().fit(normals)
    groups = ["b", "a", "b", "c", "a", "a", "c"]
    values = detector.decision_function(normals)
    members = ([0, 2], [1, 4, 5], [3, 6])
    expected = [min(values[rows].mean(), values[rows].min() + np.log(len(rows))) for rows in members]
    np.testing.assert_allclose(detector.decision_function(normals, groups=groups), expected, rtol=1e-6)
    assert detector.predict(normals, groups=groups).shape == (3,)
    assert detector.anomaly_probability(normals, groups=groups).shape == (3,)
    with pytest.raises(InputError, match=r"shape \(7,\), got \(2,\)"):
        detector.predict(normals, groups=["a", "b"])


def test_another_length_names_the_way_to_a_model_that_fits(make_detector: Maker, normals: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"\(n, 32\) expected, got \(7, 30\).*fewone train"):
        make_detector().fit(normals[:, :30])
    with pytest.raises(InputError, match="at least one normal"):
        make_detector().fit(np.empty((0, 32)))


def test_another_sampling_rate_is_refused(make_detector: Maker, normals: np.ndarray) -> None:
    detector = make_detector("plda", (1, 32), None, 2000.0).fit(normals)
    detector.set_params(sampling_rate=2000.0).fit(normals)
    detector.set_params(sampling_rate=1000.0)
    with pytest.raises(InputError, match=r"trained on series of 2000 Hz, yours have 1000 Hz.*fewone train"):
        detector.fit(normals)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1])
def test_a_rate_that_is_no_share_is_refused(make_detector: Maker, rate: float, normals: np.ndarray) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        make_detector(false_alarm_rate=rate).fit(normals)


def test_without_calibration_a_rate_needs_enough_normals() -> None:
    random = np.random.default_rng(0)
    with pytest.raises(InputError, match="needs 19 of them, got 10"):
        FewShotDetector(false_alarm_rate=0.05).fit(random.normal(size=(10, 3)))
    rates = [
        (
            FewShotDetector(false_alarm_rate=0.1).fit(random.normal(size=(39, 3))).predict(random.normal(size=(500, 3)))
            < 0
        )
        for _ in range(20)
    ]
    assert 0.07 < np.mean(rates) < 0.13


def test_a_calibrated_rate_is_kept_on_new_tasks_and_by_recordings(trained: Callable[[], FewShotDetector]) -> None:
    detector = trained()
    assert detector.learner is not None
    known = [generate_task("sine", generator, 60) for generator in np.random.default_rng(1).spawn(60)]
    normal, anomalous = [task.normal for task in known], [task.anomalous for task in known]
    held_out = split_series("made", normal, anomalous, (0, 60, 0), EvaluationProtocol(1, None, None)).validation
    sampler = EpisodeSampler(10, 2, 1.0, InputScaling(standardize=True))
    calibration = calibrate([HeldOut(detector.learner, held_out)], sampler, sizes=(10,), supports_per_task=1)
    detector.set_params(calibration=calibration, false_alarm_rate=0.1)
    single, grouped = [], []
    for generator in np.random.default_rng(5).spawn(60):
        task = generate_task("sine", generator, 70)
        detector.fit(task.normal[:10])
        single.append(np.mean(detector.predict(task.normal[10:]) < 0))
        grouped.append(np.mean(detector.predict(task.normal[10:], groups=np.repeat(np.arange(10), 6)) < 0))
    assert 0.07 < np.mean(single) < 0.14
    assert 0.03 < np.mean(grouped) < 0.15
    one = detector.decision_function(task.normal[:6], groups=[0] * 6)[0]
    assert one != pytest.approx(detector.decision_function(task.normal[:6]).mean())


def test_the_report_names_an_anomaly_among_the_normals(trained: Callable[[], FewShotDetector]) -> None:
    named = 0
    for generator in np.random.default_rng(11).spawn(10):
        task = generate_task("sine", generator, 20)
        loudest = np.abs(np.diff(task.anomalous)).max(axis=1).argmax()
        report = trained().fit(np.concatenate([task.normal[:9], task.anomalous[loudest : loudest + 1]])).report()
        named += report.odd == (9,)
        assert len(report.leave_one_out) == 10
    assert named >= 8
    assert trained().fit(task.normal[:10]).report().odd == ()


def test_the_report_warns_of_a_shift(trained: Callable[[], FewShotDetector], calibration: CalibrationMap) -> None:
    detector = trained().set_params(calibration=calibration)
    task = generate_task("sine", np.random.default_rng(2), 20)
    assert detector.set_params(false_alarm_rate=0.05).fit(task.normal[:10]).report().warnings == ()
    # What this model was trained to call anomalous, offered as normal: nothing it knows looks like that.
    assert "warning" in str(detector.fit(task.anomalous[:10]).report())


def test_a_series_is_scored_as_its_windows_are_whole_or_in_chunks(trained: Callable[[], FewShotDetector]) -> None:
    task = generate_task("sine", np.random.default_rng(4), 30)
    detector = trained().fit(task.normal[:10])
    series = np.concatenate([*task.normal[10:15], task.anomalous[0], *task.normal[15:18]])
    whole = detector.score_series(series, stride=32)
    np.testing.assert_allclose(whole.windows, detector.decision_function(windows(series, 128, 32)), atol=1e-5)
    assert whole.steps.shape == series.shape
    pieces = list(detector.score_series(iter(np.split(series, [7, 300, 301])), stride=32))
    assert len(pieces) > 1
    # The chunks are scored in batches of other sizes: single precision, and processors round sums in different orders.
    np.testing.assert_allclose(np.concatenate([piece.steps for piece in pieces]), whole.steps, rtol=1e-5, atol=1e-5)
    assert 5 * 128 <= whole.steps.argmin() < 6 * 128
    expected = min(whole.windows.mean(), whole.windows.min() + np.log(len(whole.windows)))
    assert detector.decide(whole) == pytest.approx(expected, abs=0.1)
    assert whole.starts[detector.judge_series(whole).worst] == whole.starts[whole.windows.argmin()]


def test_a_series_of_several_channels_has_time_down_the_rows(make_detector: Maker) -> None:
    random = np.random.default_rng(0)
    detector = make_detector("plda", (3, 32)).fit(random.normal(size=(5, 3, 32)))
    assert detector.score_series(random.normal(size=(100, 3))).steps.shape == (100,)
    with pytest.raises(InputError, match=r"\(n, 3, 32\) expected"):
        detector.score_series(random.normal(size=(100, 2)))


def test_pictures_are_no_series(make_detector: Maker) -> None:
    detector = make_detector("plda", (1, 8, 8)).fit(np.random.default_rng(0).normal(size=(5, 8, 8)))
    with pytest.raises(InputError, match="takes series"):
        detector.score_series(np.zeros(100))


def test_scores_do_not_depend_on_the_block_they_are_in(make_detector: Maker, normals: np.ndarray) -> None:
    detector = make_detector().fit(normals)
    many = np.random.default_rng(0).normal(size=(9000, 32))
    np.testing.assert_allclose(
        detector.score_samples(many)[5000:5010], detector.score_samples(many[5000:5010]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("algorithm", ["knn", "rocket-nn", "mahalanobis"])
def test_baselines_are_detectors_too(algorithm: str, make_detector: Maker, normals: np.ndarray) -> None:
    detector = make_detector(algorithm).fit(normals)
    odd = normals[:1] + 9.0 * np.random.default_rng(0).normal(size=(1, 32))
    assert detector.score_samples(odd) < detector.score_samples(normals).min()
