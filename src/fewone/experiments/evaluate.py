"""A trained learner and the test tasks -> rows, false alarms, and how the training went."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from fewone.calibration import Calibrated, CalibrationMap
from fewone.checkpoints import load_calibration
from fewone.episodes import TaskSplits
from fewone.errors import FewoneError
from fewone.evaluation.alarms import UnitAlarms, find_alarms, measure_alarms
from fewone.evaluation.embedded import embed_once
from fewone.evaluation.gradients import measure_cosines, without_steps
from fewone.evaluation.protocol import evaluate, score_twice
from fewone.experiment import Experiment
from fewone.experiments.build import make_sampler
from fewone.experiments.train import calibrate_learner
from fewone.experiments.trunks import find_training
from fewone.learners import MetaLearner
from fewone.results import (
    Alarms,
    Cosine,
    Provenance,
    Results,
    Row,
    Threshold,
    Training,
    ValidationPoint,
    find_provenance,
    make_rows,
)
from fewone.sampling import EpisodeSampler
from fewone.training import read_cost, read_history
from fewone.training.course import list_folds

# Every experiment is evaluated on the same test episodes, whatever its seed: only so can runs be paired.
EVALUATION_SEED = 0
# In the order in which a scoring at two thresholds is summarised.
THRESHOLDS: tuple[Threshold, ...] = ("own", "calibrated")


@dataclass(frozen=True)
class Evaluation:
    """What one scoring of the test tasks says: results at the own threshold, rows of both thresholds, false alarms.

    alarms: None where they were not asked for, or not with the experiment's own supports.
    """

    results: Results
    rows: tuple[Row, ...]
    alarms: tuple[Alarms, ...] | None


def evaluate_on_test(
    experiment: Experiment,
    splits: TaskSplits,
    learner: MetaLearner,
    folder: Path | None = None,
    sizes: Sequence[int] | None = None,
    normal_share: float | None = None,
) -> Evaluation:
    """The test tasks by the dataset's own plan, and the rows of it; the cost of the folder's training is added.

    Each K is scored once and measured at the learner's own threshold, calibrated over tasks, and by its false alarms.
    sizes: the K to evaluate at, None: the experiment's own and its further ones; normal_share: of the supports, None:
    the experiment's.
    """
    share = experiment.test_normal_share if normal_share is None else normal_share
    asked = replace(experiment, test_normal_share=share)
    kept = None if folder is None else load_calibration(folder)
    calibration = kept or calibrate_learner(asked, splits, learner)
    embedded = embed_once(learner, splits.test, splits.preparation)
    calibrated = Calibrated(embedded.learner, calibration)
    counted = _asks_alarms(learner, kept) and sizes is None and share == experiment.test_normal_share
    rows: tuple[Row, ...] = ()
    results: list[Results] = []
    alarms: dict[int, tuple[Alarms, ...]] = {}
    for k in (experiment.k, *experiment.further_k) if sizes is None else sizes:
        sampler = replace(_make_test_sampler(replace(asked, k=k), splits), preparation=embedded.preparation)
        scored = score_twice(calibrated, embedded.tasks, splits.plan, sampler, EVALUATION_SEED)
        for found, threshold in zip(scored.summarize(), THRESHOLDS, strict=True):
            provenance = _trace(splits, found, folder)
            rows += make_rows(found, experiment, k, share, "test", threshold, provenance)
            results.append(found)
        if counted:
            provenance = find_provenance(splits.fingerprint, scored.seconds, scored.cpu_seconds)
            alarms[k] = _record_alarms(experiment, k, find_alarms(calibrated, scored.calibrated, sampler), provenance)
    return Evaluation(results[0], rows, tuple(chain.from_iterable(alarms.values())) if counted else None)


def _asks_alarms(learner: MetaLearner, calibration: CalibrationMap | None) -> bool:
    """Only of learners that serve every K in one pass: the others adapt by descent, or fit K + 1 times to a support."""
    return learner.every_k and calibration is not None


def _record_alarms(
    experiment: Experiment, k: int, found: Sequence[UnitAlarms], provenance: Provenance
) -> tuple[Alarms, ...]:
    return tuple(
        Alarms(experiment, provenance, k, one.level, one.rate, one.units, one.false_alarms, one.misses) for one in found
    )


def evaluate_without_steps(experiment: Experiment, splits: TaskSplits, learner: MetaLearner) -> tuple[Row, ...]:
    """What a gradient-based learner says of the test tasks before it is adapted, at its own threshold, as rows."""
    sampler = _make_test_sampler(experiment, splits)
    found = evaluate(without_steps(learner), splits.test, splits.plan, sampler, EVALUATION_SEED)
    share = experiment.test_normal_share
    return make_rows(found, experiment, experiment.k, share, "test", "own", _trace(splits, found, None), steps=0)


def measure_diagnostics(
    experiment: Experiment,
    splits: TaskSplits,
    learner: MetaLearner,
    folder: Path,
    alarms: tuple[Alarms, ...] | None = None,
) -> tuple[Training | Cosine | Alarms, ...]:
    """How the training went, what became of the cosine of a gradient-based learner, and of asked false-alarm rates.

    alarms: those of an evaluation that counted them, None: they are counted here, where they are asked for;
    `fewone analyze alarms` asks any learner.
    """
    if alarms is None:
        asked = _asks_alarms(learner, load_calibration(folder))
        alarms = count_alarms(experiment, splits, learner, folder) if asked else ()
    training_folder = find_training(folder)
    history, cost = read_history(training_folder), read_cost(training_folder)
    if not history or cost is None:
        return alarms
    provenance = find_provenance(splits.fingerprint, cost.seconds, cost.cpu_seconds)
    points = tuple(
        ValidationPoint(one.iteration, one.cpu_seconds, one.loss, one.accuracy, one.auroc) for one in history
    )
    training = Training(experiment, provenance, points)
    if learner.initialisation is None:
        return training, *alarms
    sampler = make_sampler(experiment, splits, 1.0)
    cosines = measure_cosines(learner, splits.test, splits.plan, sampler, EVALUATION_SEED)
    cosine = Cosine(experiment, provenance, cosines.units, cosines.values)
    return training, cosine, *alarms


def count_alarms(experiment: Experiment, splits: TaskSplits, learner: MetaLearner, folder: Path) -> tuple[Alarms, ...]:
    """Target and observed false-alarm rates on the test tasks, with the folder's calibration, for every K it is for."""
    calibration = load_calibration(folder)
    if calibration is None:
        raise FewoneError(f"{folder}: its learner has no calibration, so no false-alarm rate can be asked; train again")
    embedded = embed_once(learner, splits.test, splits.preparation)
    records: list[Alarms] = []
    for k in dict.fromkeys((experiment.k, *experiment.further_k)):
        started, started_cpu = time.perf_counter(), time.process_time()
        sampler = replace(_make_test_sampler(replace(experiment, k=k), splits), preparation=embedded.preparation)
        calibrated = Calibrated(embedded.learner, calibration)
        found = measure_alarms(calibrated, embedded.tasks, splits.plan, sampler, EVALUATION_SEED)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
        provenance = find_provenance(splits.fingerprint, seconds, cpu_seconds)
        records += _record_alarms(experiment, k, found, provenance)
    return tuple(records)


def _make_test_sampler(experiment: Experiment, splits: TaskSplits) -> EpisodeSampler:
    return make_sampler(experiment, splits, experiment.test_normal_share)


def _trace(splits: TaskSplits, found: Results, folder: Path | None) -> Provenance:
    """Where an evaluation's rows come from; their cost is that of the training, of its folds and of the evaluation."""
    costs = [] if folder is None else [read_cost(find_training(one)) for one in (folder, *list_folds(folder))]
    spent = [cost for cost in costs if cost is not None]
    return find_provenance(
        splits.fingerprint,
        found.seconds + sum(cost.seconds for cost in spent),
        found.cpu_seconds + sum(cost.cpu_seconds for cost in spent),
    )
