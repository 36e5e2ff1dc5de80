"""The spine: an experiment from its data to its rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from fewone.augmentation import build_augmentation
from fewone.calibration import Calibrated, CalibrationMap, HeldOut
from fewone.checkpoints import ModelSpec, build_learner, load_calibration, load_learner
from fewone.datasets import load
from fewone.episodes import Task, TaskSplits, generator_for
from fewone.errors import FewoneError, FewoneWarning
from fewone.evaluation.alarms import measure_alarms
from fewone.evaluation.embedded import embed_once
from fewone.evaluation.gradients import measure_cosines, without_steps
from fewone.evaluation.protocol import evaluate, evaluate_twice
from fewone.evaluation.selection import (
    calibrate_over_tasks,
)
from fewone.evaluation.task_calibration import choose_sizes, count_calibration
from fewone.experiment import Experiment
from fewone.experiments.defaults import default_experiment
from fewone.experiments.trunks import adopt_trunk, find_training, find_trunk, keep_trunk, place_trunk
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
    write_records,
)
from fewone.sampling import ClassSampler, EpisodeSampler, describe_rounding
from fewone.training import (
    Batches,
    RunFolder,
    Transform,
    Validator,
    read_cost,
    read_history,
)
from fewone.training.course import WITHOUT, Course, Watcher, complete, learn, observe, train_folds
from fewone.workers import ALONE, Exchange

# Every experiment is judged on the same test episodes, whatever its seed: only so can runs be paired.
EVALUATION_SEED = 0
# In the order in which `evaluate_twice` answers.
THRESHOLDS: tuple[Threshold, ...] = ("own", "calibrated")


def run(
    experiment: Experiment,
    folder: Path,
    data_dirs: Sequence[Path] | None = None,
    results: Path | None = None,
    watch: Watcher | None = None,
    trunks: Path | None = None,
) -> Results:
    """Train (or go on, or find it done), judge on the test tasks, keep the rows. trunks: those that runs share."""
    splits = load_splits(experiment, data_dirs)
    learner = train(experiment, splits, folder, watch, trunks=trunks)
    found, rows = evaluate_on_test(experiment, splits, learner, folder)
    if results is not None:
        if learner.initialisation is not None:
            rows += evaluate_without_steps(experiment, splits, learner)
        write_records(results, *rows, *measure_diagnostics(experiment, splits, learner, folder))
    return found


def load_splits(experiment: Experiment, data_dirs: Sequence[Path] | None = None) -> TaskSplits:
    """The experiment's data; no folders given: those of FEWONE_DATA."""
    return load(experiment.dataset, data_dirs or None, experiment.data.options())


def train(
    experiment: Experiment,
    splits: TaskSplits,
    folder: Path,
    watch: Watcher | None = None,
    transform: Transform | None = None,
    tensorboard: bool = False,
    calibrated: bool = True,
    trunks: Path | None = None,
    exchange: Exchange = ALONE,
) -> MetaLearner:
    """The learner with its best weights; the folder holds the model, the training state, a log and the calibration.

    calibrated: False leaves the calibration out, for those who ask for the learner alone. trunks: a folder in which
    runs with the same trunk (FB, MTL) share its training. exchange: the workers that train together; the first of them
    alone writes into the folder.
    """
    card = describe(experiment, splits)
    learner = build_learner(card)
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    trunk, first = find_trunk(experiment), exchange.rank == 0

    def calibrate() -> CalibrationMap:
        others = train_without_parts(experiment, splits, folder, watch, exchange) if learner.is_trained else ()
        return calibrate_learner(experiment, splits, learner, others, exchange)

    with _open_folder(experiment, card, folder) if first else nullcontext() as kept:
        if kept is not None and not (trunk is None and learner.is_trained):
            kept.refuse_others()
        if trunk is not None:
            place = place_trunk(trunk, folder, trunks)
            trained = build_learner(describe(trunk, splits))
            trunk_card = describe(trunk, splits)
            with _open_folder(trunk, trunk_card, place, wait=True) if first else nullcontext() as trunk_kept:
                trunk_course = make_course(trunk, splits, trained, transform)
                learn(trained, trunk_course, trunk_kept, watch, tensorboard, exchange)
                if first:
                    keep_trunk(place, folder)
            adopt_trunk(learner, trained)
        elif learner.is_trained:
            learn(learner, make_course(experiment, splits, learner, transform), kept, watch, tensorboard, exchange)
        else:
            observe(learner, make_batches(experiment, splits, learner, transform))
        asked = calibrate if calibrated else None
        complete(learner, splits.validation, sampler, experiment.seed, folder, card, asked, exchange)
    # A run that was over before has its chosen settings in the folder alone.
    return load_learner(folder)[0] if exchange.rank == 0 else learner


def _open_folder(experiment: Experiment, card: ModelSpec, folder: Path, wait: bool = False) -> RunFolder:
    recipe = default_experiment(experiment.dataset, experiment.learner, experiment.k)

    def read(plain: Mapping[str, Any]) -> dict[str, Any]:
        # Settings younger than the folder count as the recipe has them.
        return Experiment.read(plain, recipe).to_plain()

    return RunFolder(folder, card, experiment.to_plain(), experiment.training.checkpoint_seconds, read, wait)


def make_course(
    experiment: Experiment, splits: TaskSplits, learner: MetaLearner, transform: Transform | None = None
) -> Course:
    """What the experiment's learner is trained on, and judged by."""
    training = experiment.training
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    validator = Validator(
        splits.validation, sampler, training.validation_episodes, experiment.seed, training.validation_queries
    )
    return Course(make_batches(experiment, splits, learner, transform), validator, training)


def train_without_parts(
    experiment: Experiment,
    splits: TaskSplits,
    folder: Path,
    watch: Watcher | None = None,
    exchange: Exchange = ALONE,
) -> tuple[HeldOut, ...]:
    """The same training again without each part of the training tasks: learners that have not seen what they judge.

    Each part is a job of its own: workers train different parts side by side, each into its folder, and share the
    weights.
    """

    def without(rest: tuple[Task, ...]) -> tuple[Experiment, TaskSplits]:
        # A batch of classes holds no more of them than are left.
        classes = min(experiment.training.classes, len(rest))
        training = replace(experiment.training, leave_out=0, classes=classes)
        return replace(experiment, training=training), replace(splits, train=rest)

    def work(number: int, rest: tuple[Task, ...]) -> MetaLearner:
        shown = watch if exchange.rank == 0 else None
        return train(*without(rest), folder / f"{WITHOUT}{number}", shown, calibrated=False)

    return train_folds(
        splits.train,
        experiment.training.leave_out,
        work,
        lambda rest: build_learner(describe(*without(rest))),
        exchange,
    )


def calibrate_learner(
    experiment: Experiment,
    splits: TaskSplits,
    learner: MetaLearner,
    others: Sequence[HeldOut] = (),
    exchange: Exchange = ALONE,
) -> CalibrationMap:
    """What held-out tasks say of the learner's scores: for every K that it serves, or for those it is judged at.

    Held out are the validation tasks, and for `others` the training tasks that each of them was trained without.
    A learner that takes gradient steps to adapt is asked fewer tasks: each of its supports is adapted to many times.
    """
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    sizes = choose_sizes(learner, (experiment.k, *experiment.further_k))
    tasks, sets = count_calibration(learner)
    return calibrate_over_tasks(
        learner,
        splits.train,
        splits.validation,
        sampler,
        experiment.seed,
        others,
        tasks=tasks,
        sizes=sizes,
        adaptation_sets=sets,
        exchange=exchange,
    ).calibration


def evaluate_on_test(
    experiment: Experiment,
    splits: TaskSplits,
    learner: MetaLearner,
    folder: Path | None = None,
    sizes: Sequence[int] | None = None,
    normal_share: float | None = None,
) -> tuple[Results, tuple[Row, ...]]:
    """The test tasks by the dataset's own plan, and the rows of it; the cost of the folder's training is added.

    Judged twice: at the learner's own threshold, which is what is returned, and calibrated over tasks. sizes: the K to
    judge at, None: the experiment's own and its further ones; normal_share: of the supports, None: the experiment's.
    """
    share = experiment.test_normal_share if normal_share is None else normal_share
    judging = replace(experiment, test_normal_share=share)
    calibration = None if folder is None else load_calibration(folder)
    calibrated = calibration or calibrate_learner(judging, splits, learner)
    judged = embed_once(learner, splits.test, splits.preparation)
    rows: tuple[Row, ...] = ()
    results: list[Results] = []
    for k in (experiment.k, *experiment.further_k) if sizes is None else sizes:
        sampler = replace(_make_test_sampler(replace(judging, k=k), splits), preparation=judged.preparation)
        both = evaluate_twice(
            Calibrated(judged.learner, calibrated), judged.tasks, splits.plan, sampler, EVALUATION_SEED
        )
        for found, threshold in zip(both, THRESHOLDS, strict=True):
            provenance = _trace(splits, found, folder)
            rows += make_rows(found, experiment, k, share, "test", threshold, provenance)
            results.append(found)
    return results[0], rows


def evaluate_without_steps(experiment: Experiment, splits: TaskSplits, learner: MetaLearner) -> tuple[Row, ...]:
    """What a gradient-based learner says of the test tasks before it is adapted, at its own threshold, as rows."""
    sampler = _make_test_sampler(experiment, splits)
    found = evaluate(without_steps(learner), splits.test, splits.plan, sampler, EVALUATION_SEED)
    share = experiment.test_normal_share
    return make_rows(found, experiment, experiment.k, share, "test", "own", _trace(splits, found, None), steps=0)


def measure_diagnostics(
    experiment: Experiment, splits: TaskSplits, learner: MetaLearner, folder: Path
) -> tuple[Training | Cosine | Alarms, ...]:
    """How the training went, what became of the cosine of a gradient-based learner, and of asked false-alarm rates.

    The rates only of learners that serve every K in one pass: the others adapt by descent, or fit K + 1 times to each
    support. `fewone analyze alarms` asks any of them.
    """
    asked = learner.every_k and load_calibration(folder) is not None
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
    """Asked and realised false-alarm rates on the test tasks, with the folder's calibration, for every K it is for."""
    calibration = load_calibration(folder)
    if calibration is None:
        raise FewoneError(f"{folder}: its learner has no calibration, so no false-alarm rate can be asked; train again")
    judged = embed_once(learner, splits.test, splits.preparation)
    records: list[Alarms] = []
    for k in dict.fromkeys((experiment.k, *experiment.further_k)):
        started, started_cpu = time.perf_counter(), time.process_time()
        sampler = replace(_make_test_sampler(replace(experiment, k=k), splits), preparation=judged.preparation)
        calibrated = Calibrated(judged.learner, calibration)
        found = measure_alarms(calibrated, judged.tasks, splits.plan, sampler, EVALUATION_SEED)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
        provenance = find_provenance(splits.fingerprint, seconds, cpu_seconds)
        records += [
            Alarms(experiment, provenance, k, one.level, one.rate, one.units, one.false_alarms, one.misses)
            for one in found
        ]
    return tuple(records)


def _make_test_sampler(experiment: Experiment, splits: TaskSplits) -> EpisodeSampler:
    return make_sampler(experiment, splits, experiment.test_normal_share)


def _trace(splits: TaskSplits, found: Results, folder: Path | None) -> Provenance:
    """Where an evaluation's rows come from; their cost is that of the training, of its folds and of the evaluation."""
    costs = [] if folder is None else [read_cost(find_training(one)) for one in (folder, *folder.glob(f"{WITHOUT}*"))]
    spent = [cost for cost in costs if cost is not None]
    return find_provenance(
        splits.fingerprint,
        found.seconds + sum(cost.seconds for cost in spent),
        found.cpu_seconds + sum(cost.cpu_seconds for cost in spent),
    )


def describe(experiment: Experiment, splits: TaskSplits) -> ModelSpec:
    """The card of the model that this experiment trains."""
    return ModelSpec(
        algorithm=experiment.algorithm,
        learning=experiment.learning,
        network=experiment.network,
        shape=tuple(splits.shape),
        preparation=splits.preparation,
        support_size=experiment.k,
        seed=generator_for(experiment.seed, "initialise").initial_seed(),
        dataset=splits.name,
        fingerprint=splits.fingerprint,
        experiment=experiment,
        training_tasks=len(splits.train),
        training_classes=build_augmentation(experiment.training.augmentation, len(splits.train)).classes,
    )


def make_sampler(experiment: Experiment, splits: TaskSplits, normal_share: float) -> EpisodeSampler:
    """Episodes of K and Q with this share of normals in the support; a share that must be rounded is said."""
    if rounding := describe_rounding(experiment.k, normal_share):
        warnings.warn(rounding, FewoneWarning, stacklevel=2)
    return EpisodeSampler(
        support_size=experiment.k,
        query_size=experiment.training.query_size,
        normal_share=normal_share,
        preparation=splits.preparation,
        smallest_query=splits.smallest_query,
    )


def make_batches(
    experiment: Experiment, splits: TaskSplits, learner: MetaLearner, transform: Transform | None = None
) -> Batches:
    """The training batches, of the kind that the learner takes."""
    training = experiment.training
    sampler: EpisodeSampler | ClassSampler = replace(
        make_sampler(experiment, splits, experiment.normal_share), standardize_by=training.standardize_by
    )
    if learner.batch == "classes":
        if not splits.classes_exclude_each_other:
            raise FewoneError(
                f"{experiment.learner} asks for batches of classes, but in {splits.name} another task's normals are not"
                f" anomalies; set learning.batch to 'episodes'"
            )
        # A batch holds no more classes than there are.
        classes = min(training.classes, len(splits.train))
        sampler = ClassSampler(classes, training.class_examples, splits.preparation)
    if transform is None and training.augmentation:
        transform = build_augmentation(training.augmentation, len(splits.train))
    return Batches(splits.train, sampler, training.meta_batch, experiment.seed, training.smallest_k, transform)
