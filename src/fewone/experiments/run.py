"""The spine: an experiment from its data to its rows."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch

from fewone.augmentation import build_augmentation
from fewone.calibration import Calibrated, CalibrationMap, HeldOut
from fewone.checkpoints import ModelCard, build_learner, load_calibration, load_learner, save_calibration, save_learner
from fewone.datasets import load
from fewone.documents import DocumentError
from fewone.episodes import TaskSplits, generator_for
from fewone.errors import FewoneError, FewoneWarning
from fewone.evaluation.alarms import measure_alarms
from fewone.evaluation.embedded import embed_once
from fewone.evaluation.gradients import has_initialisation, measure_cosines
from fewone.evaluation.protocol import evaluate_twice
from fewone.evaluation.results import Alarms, Cosine, Point, Row, Threshold, Training, append, find_origin, make_rows
from fewone.evaluation.scores import Results
from fewone.evaluation.selection import calibrate_over_tasks, choose_dial, is_shallow, is_trained, observe_batches
from fewone.experiments.defaults import default_experiment
from fewone.experiments.experiment import Experiment, parse_experiment
from fewone.experiments.training_log import TrainingLog
from fewone.learners import LearnerSettings, MetaLearner
from fewone.sampling import ClassSampler, EpisodeSampler, describe_rounding
from fewone.training import (
    Batches,
    Progress,
    RunFolder,
    Transform,
    Validator,
    meta_train,
    read_cost,
    read_history,
)

Watcher = Callable[[Progress], None]
# Every experiment is judged on the same test episodes, whatever its seed: only so can runs be paired.
EVALUATION_SEED = 0
# In the order in which `evaluate_twice` answers.
THRESHOLDS: tuple[Threshold, ...] = ("own", "calibrated")
# The K for which a learner that serves every K is calibrated.
CALIBRATED_SIZES = (1, 2, 5, 10, 20, 50)
# The folders, inside a run's, of the trainings without a part of the tasks.
WITHOUT = "without-"
# Batches of training tasks from which methods without a gradient take their scales.
OBSERVED_BATCHES = 32


def run(
    experiment: Experiment,
    folder: Path,
    data_dirs: Sequence[Path] | None = None,
    results: Path | None = None,
    watch: Watcher | None = None,
) -> Results:
    """Train (or go on, or find it done), judge on the test tasks, keep the rows."""
    splits = load_splits(experiment, data_dirs)
    learner = train(experiment, splits, folder, watch)
    found, rows = judge_on_test(experiment, splits, learner, folder)
    if results is not None:
        append(results, *rows, *look_back(experiment, splits, learner, folder))
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
) -> MetaLearner:
    """The learner with its best weights; the folder holds the model, the training state, a log and the calibration.

    calibrated: False leaves the calibration out, for those who ask for the learner alone.
    """
    torch.set_num_threads(experiment.training.threads)
    card = describe(experiment, splits)
    learner = build_learner(card)
    batches = make_batches(experiment, splits, learner, transform)
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    defaults = default_experiment(experiment.dataset, experiment.learner, experiment.k).to_plain()
    seconds = experiment.training.checkpoint_seconds
    with (
        RunFolder(folder, card, experiment.to_plain(), seconds, defaults) as kept,
        TrainingLog(folder, tensorboard) as log,
    ):
        if is_trained(learner):
            validator = Validator(splits.validation, sampler, experiment.training.validation_episodes, experiment.seed)
            with closing(meta_train(learner, batches, validator, experiment.training, kept)) as steps:
                for progress in steps:
                    log.watch(progress)
                    if watch is not None:
                        watch(progress)
        else:
            kept.refuse_others()
            observe_batches(learner, map(batches.draw, range(1, OBSERVED_BATCHES + 1)))
        if load_calibration(folder) is None:
            choose_dial(learner, splits.validation, sampler, experiment.seed)
            save_learner(folder, learner, card)
            if calibrated:
                others = tuple(train_without_parts(experiment, splits, folder, watch)) if is_trained(learner) else ()
                save_calibration(folder, calibrate_learner(experiment, splits, learner, others))
    # A run that was over before has its chosen settings in the folder alone.
    return load_learner(folder)[0]


def train_without_parts(
    experiment: Experiment, splits: TaskSplits, folder: Path, watch: Watcher | None = None
) -> Iterator[HeldOut]:
    """The same training again without each part of the training tasks: learners that have not seen what they judge."""
    count = experiment.training.leave_out
    units = list(dict.fromkeys(task.unit for task in splits.train))
    if count > len(units):
        raise FewoneError(
            f"training.leave_out is {count}, but {splits.name} has {len(units)} independent training task(s)"
        )
    for number in range(count):
        left = set(units[number::count])
        rest = replace(splits, train=tuple(task for task in splits.train if task.unit not in left))
        # A batch of classes holds no more of them than are left.
        classes = min(experiment.training.classes, len(rest.train))
        alone = replace(experiment, training=replace(experiment.training, leave_out=0, classes=classes))
        learner = train(alone, rest, folder / f"{WITHOUT}{number}", watch, calibrated=False)
        yield HeldOut(learner, tuple(task for task in splits.train if task.unit in left))


def calibrate_learner(
    experiment: Experiment, splits: TaskSplits, learner: MetaLearner, others: Sequence[HeldOut] = ()
) -> CalibrationMap:
    """What held-out tasks say of the learner's scores: for every K that it serves, or for those it is judged at.

    Held out are the validation tasks, and for `others` the training tasks that each of them was trained without.
    A learner that takes gradient steps to adapt is asked fewer tasks: each of its supports is adapted to many times.
    """
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    asked = {experiment.k, *experiment.further_k}
    sizes = tuple(sorted(asked | set(CALIBRATED_SIZES) if learner.every_k else asked))
    tasks, sets = (40, 5) if learner.every_k or is_shallow(learner) else (20, 3)
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
    ).calibration


def judge_on_test(
    experiment: Experiment,
    splits: TaskSplits,
    learner: MetaLearner,
    folder: Path | None = None,
    sizes: Sequence[int] | None = None,
) -> tuple[Results, tuple[Row, ...]]:
    """The test tasks by the dataset's own plan, and the rows of it; the cost of the folder's training is added.

    Judged twice: at the learner's own threshold, which is what is returned, and calibrated over tasks. sizes: the K to
    judge at, None: the experiment's own and its further ones.
    """
    calibration = None if folder is None else load_calibration(folder)
    calibrated = calibration or calibrate_learner(experiment, splits, learner)
    judged = embed_once(learner, splits.test, splits.preparation)
    rows: tuple[Row, ...] = ()
    results: list[Results] = []
    for k in (experiment.k, *experiment.further_k) if sizes is None else sizes:
        sized = replace(experiment, k=k)
        sampler = replace(_make_test_sampler(sized, splits), preparation=judged.preparation)
        both = evaluate_twice(
            Calibrated(judged.learner, calibrated), judged.tasks, splits.plan, sampler, EVALUATION_SEED
        )
        for found, threshold in zip(both, THRESHOLDS, strict=True):
            rows += _make_rows(sized, splits, found, threshold, folder)
            results.append(found)
    return results[0], rows


def look_back(
    experiment: Experiment, splits: TaskSplits, learner: MetaLearner, folder: Path
) -> tuple[Training | Cosine | Alarms, ...]:
    """How the training went, what became of the cosine of a gradient-based learner, and of asked false-alarm rates.

    The rates only of learners that serve every K in one pass: the others adapt by descent, or fit K + 1 times to each
    support. `fewone analyze alarms` asks any of them.
    """
    asked = learner.every_k and load_calibration(folder) is not None
    alarms = count_alarms(experiment, splits, learner, folder) if asked else ()
    history, cost = read_history(folder), read_cost(folder)
    if not history or cost is None:
        return alarms
    origin = find_origin(splits.fingerprint, cost.seconds, cost.cpu_seconds)
    points = tuple(Point(one.iteration, one.cpu_seconds, one.loss, one.accuracy) for one in history)
    training = Training(experiment.to_plain(), experiment.seed, points, origin)
    if not has_initialisation(learner):
        return training, *alarms
    sampler = make_sampler(experiment, splits, 1.0)
    cosines = measure_cosines(learner, splits.test, splits.plan, sampler, EVALUATION_SEED)
    cosine = Cosine(experiment.to_plain(), experiment.seed, cosines.units, cosines.values, origin)
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
        origin = find_origin(splits.fingerprint, seconds, cpu_seconds)
        records += [
            Alarms(
                experiment.to_plain(),
                experiment.seed,
                k,
                one.level,
                one.rate,
                one.units,
                one.false_alarms,
                one.misses,
                origin,
            )
            for one in found
        ]
    return tuple(records)


def _make_test_sampler(experiment: Experiment, splits: TaskSplits) -> EpisodeSampler:
    return make_sampler(experiment, splits, experiment.test_normal_share)


def _make_rows(
    experiment: Experiment, splits: TaskSplits, found: Results, threshold: Threshold, folder: Path | None
) -> tuple[Row, ...]:
    costs = [] if folder is None else [read_cost(one) for one in (folder, *folder.glob(f"{WITHOUT}*"))]
    spent = [cost for cost in costs if cost is not None]
    origin = find_origin(
        splits.fingerprint,
        found.seconds + sum(cost.seconds for cost in spent),
        found.cpu_seconds + sum(cost.cpu_seconds for cost in spent),
    )
    return make_rows(found, experiment.to_plain(), experiment.seed, "test", threshold, origin)


def restore_experiment(text: str, folder: Path) -> Experiment:
    """The experiment that a model card carries."""
    try:
        return parse_experiment(json.loads(text))
    except (ValueError, RecursionError, DocumentError) as error:
        raise FewoneError(f"{folder}: its experiment cannot be read by this version of fewone ({error})") from error


def describe(experiment: Experiment, splits: TaskSplits) -> ModelCard:
    """The card of the model that this experiment trains."""
    return ModelCard(
        algorithm=experiment.algorithm,
        learning=_count_tasks(experiment, splits),
        network=experiment.network,
        shape=tuple(splits.shape),
        preparation=splits.preparation,
        support_size=experiment.k,
        seed=generator_for(experiment.seed, "initialise").initial_seed(),
        dataset=splits.name,
        fingerprint=splits.fingerprint,
        experiment=json.dumps(experiment.to_plain()),
    )


def _count_tasks(experiment: Experiment, splits: TaskSplits) -> LearnerSettings:
    """The learner's settings, completed with what only the dataset can say: how many tasks and classes there are."""
    learning, tasks = experiment.learning, len(splits.train)
    auxiliary = learning.batch == "classes" and learning.auxiliary_weight > 0
    classes = build_augmentation(experiment.training.augmentation, tasks).classes if auxiliary else 0
    return replace(learning, training_tasks=tasks, auxiliary_classes=classes)


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
        sampler = ClassSampler(training.classes, training.class_examples, splits.preparation)
    if transform is None and training.augmentation:
        transform = build_augmentation(training.augmentation, len(splits.train))
    return Batches(splits.train, sampler, training.meta_batch, experiment.seed, training.smallest_k, transform)
