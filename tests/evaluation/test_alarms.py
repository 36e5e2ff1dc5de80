"""Realised false alarms: example by example those that a user of the detector gets, and by the mean of a recording."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fewone
from fewone.calibration import Calibrated, CalibrationMap, CalibrationPoint, HeldOut, NormalQuantiles, calibrate
from fewone.checkpoints import ModelSpec, build_learner, save_calibration, save_learner
from fewone.episodes import EvaluationProtocol, Examples, InputScaling, RowPool, Store, Task
from fewone.errors import FewoneError
from fewone.evaluation.alarms import UnitAlarms, measure_alarms
from fewone.experiments import default_experiment
from fewone.learners import PldaSettings, Scorer
from fewone.networks import NetworkSettings
from fewone.results import Alarms, Provenance, Versions, bootstrap, read_results, write_records
from fewone.sampling import EpisodeSampler

WINDOWS, LENGTH = 3, 16
PLAN = EvaluationProtocol(2, None, None)


def make_recordings(count: int, seed: int = 0) -> tuple[Task, ...]:
    """Tasks of 14 good and 6 bad recordings, three windows each; a bad one carries a step, a good one its own level."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, 20, WINDOWS, 1, LENGTH, generator=generator)
    values += 0.3 * torch.randn(count, 20, 1, 1, 1, generator=generator)
    values[:, 14:, :, :, 8:] += 1.0
    store = Store(values.flatten(0, 2), torch.arange(count * 20).repeat_interleave(WINDOWS))
    rows = torch.arange(count * 20 * WINDOWS).view(count, 20, WINDOWS)
    return tuple(
        Task(f"task {number}", RowPool(store, own[:14].flatten()), RowPool(store, own[14:].flatten()))
        for number, own in enumerate(rows)
    )


def judge_means(detector: fewone.FewShotDetector, values: np.ndarray, groups: np.ndarray, rate: float) -> float:
    """The share of recordings whose mean logit lies above the calibration's threshold for so many windows."""
    assert detector.calibration is not None
    logits = -detector.score_samples(values)
    means = [(logits[groups == name].mean(), int((groups == name).sum())) for name in dict.fromkeys(groups.tolist())]
    size = detector.support_size_
    return float(np.mean([mean > detector.calibration.threshold(size, rate, count) for mean, count in means]))


@pytest.mark.parametrize("rate", [0.4, 0.1])
def test_the_shares_are_those_of_the_detector_with_the_same_rate_on_the_same_supports(
    rate: float, tmp_path: Path
) -> None:
    preparation = InputScaling(standardize=True)
    network = NetworkSettings(filters=(4,), norm="running")
    card = ModelSpec("plda", PldaSettings(dimensions=4), network, (1, LENGTH), preparation, 6, 1, "made", "")
    learner = build_learner(card).eval()
    sampler = EpisodeSampler(6, 2, 1.0, preparation)
    calibration = calibrate([HeldOut(learner, make_recordings(4, seed=1))], sampler, sizes=(6,), supports_per_task=2)
    save_learner(tmp_path, learner, card)
    save_calibration(tmp_path, calibration)
    tasks = make_recordings(3)
    found = {
        one.level: one
        for one in measure_alarms(Calibrated(learner, calibration), tasks, PLAN, sampler, seed=5, rates=(rate,))
    }
    detector = fewone.load(tmp_path, false_alarm_rate=rate)
    for position, task in enumerate(tasks):
        expected: dict[tuple[str, int], list[float]] = {}
        for number in range(PLAN.supports_per_task):
            episode = sampler.draw_evaluation([task], PLAN, number, seed=5)
            store = task.normal.store
            assert store.recording is not None
            detector.fit(store.values[episode.support_rows[0]].numpy())
            for label in (0, 1):
                rows = episode.query_rows[0][episode.query.labels[0] == label]
                X, groups = store.values[rows].numpy(), store.recording[rows].numpy()  # noqa: N806
                expected.setdefault(("example", label), []).append(float(np.mean(detector.predict(X) < 0)))
                expected.setdefault(("run", label), []).append(judge_means(detector, X, groups, rate))
        for level, alarms in found.items():
            assert alarms.units[position] == task.unit
            assert alarms.false_alarms[position] == pytest.approx(np.mean(expected[level, 0]), abs=1e-6)
            assert alarms.misses[position] == pytest.approx(1 - np.mean(expected[level, 1]), abs=1e-6)
    assert 0 < np.mean(found["example"].false_alarms) < 1


class FirstValue(Scorer):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[..., 0, 0]


class FirstValueLearner:
    def adapt(self, support: Examples) -> Scorer:
        return FirstValue()


def test_every_size_of_a_recording_has_its_own_threshold_and_every_unit_its_mean() -> None:
    """By hand: single examples against 10, recordings of two against 5."""
    singles, pairs = (NormalQuantiles(1, (10.0,) * 7), NormalQuantiles(2, (5.0,) * 7))
    point = CalibrationPoint(1, 1.0, 0.0, 0.0, 0.0, (singles, pairs))
    learner = Calibrated(FirstValueLearner(), CalibrationMap((point,)))
    # A support; two good recordings, one of which is high on average and one in one window; two bad ones.
    values = torch.tensor([0.0, 7.0, 7.0, 0.0, 9.0, 12.0, 12.0, 4.0, 4.0])
    recordings = torch.tensor([0, 1, 1, 2, 2, 3, 3, 4, 4])
    store = Store(values.view(-1, 1, 1), recordings)
    halves = Task("one", RowPool(store, torch.arange(5)), RowPool(store, torch.arange(5, 9)))
    seed = next(
        seed
        for seed in range(100)
        if EpisodeSampler(1, 2).draw_evaluation([halves], EvaluationProtocol(1, None, None), 0, seed).support_rows[0, 0]
        == 0
    )
    example, run = measure_alarms(
        learner, [halves], EvaluationProtocol(1, None, None), EpisodeSampler(1, 2), seed, rates=(0.05,)
    )
    assert example == UnitAlarms("example", 0.05, ("one",), (0.0,), (0.5,))
    assert run == UnitAlarms("run", 0.05, ("one",), (0.5,), (0.5,))


def test_a_bootstrap_over_units_is_as_wide_as_the_spread_of_means_and_stays_within_the_values() -> None:
    values = np.random.default_rng(1).exponential(size=60)
    found = bootstrap(values.tolist())
    assert found == bootstrap(values.tolist())
    half = 1.96 * values.std() / np.sqrt(60)
    assert found.high is not None and found.low is not None
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.05)
    shares = bootstrap([0.0, 0.0, 0.0, 0.1])
    assert (shares.low, shares.units) == (0.0, 4)
    assert bootstrap([0.3]).low is None


def test_records_are_kept_beside_rows_and_read_back(tmp_path: Path) -> None:
    origin = Provenance("abc", "f00d", Versions("0", "3", "2", "2", "1"), "2026-01-01T00:00:00+00:00", 1.0, 1.0)
    record = Alarms(default_experiment(), origin, 5, "run", 0.05, ("a", "b"), (0.0, 0.1), (0.2, 0.3))
    (path,) = write_records(tmp_path / "alarms", record)
    assert list(json.loads(path.read_text())["alarms"][0])[:3] == ["k", "level", "rate"]
    assert read_results(tmp_path / "alarms").alarms == (record,)


def test_no_task_is_an_error() -> None:
    learner = Calibrated(FirstValueLearner(), CalibrationMap(()))
    with pytest.raises(FewoneError, match="no task to count false alarms on"):
        measure_alarms(learner, [], PLAN, EpisodeSampler(1, 2), seed=0)
