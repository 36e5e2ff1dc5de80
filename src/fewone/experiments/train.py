"""An experiment and its data -> a trained, calibrated learner in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from fewone.calibration import CalibrationMap, HeldOut
from fewone.checkpoints import ModelSpec, build_learner, load_learner
from fewone.episodes import Task, TaskSplits
from fewone.evaluation.task_calibration import calibrate_over_tasks, choose_sizes, count_calibration
from fewone.experiment import Experiment
from fewone.experiments.build import describe, find_start, make_batches, make_course, make_sampler
from fewone.experiments.defaults import default_experiment
from fewone.experiments.trunks import adopt_trunk, find_trunk, keep_trunk, place_trunk
from fewone.learners import MetaLearner
from fewone.training import RunFolder, Transform
from fewone.training.course import Watcher, complete, find_fold, learn, observe, train_folds
from fewone.workers import ALONE, Exchange


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
    if (start := find_start(experiment)) is not None:
        start.begin(learner, len({task.unit for task in splits.train}))
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    trunk, first = find_trunk(experiment), exchange.rank == 0

    def calibrate() -> CalibrationMap:
        others = train_calibration_folds(experiment, splits, folder, watch, exchange) if learner.is_trained else ()
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


def train_calibration_folds(
    experiment: Experiment,
    splits: TaskSplits,
    folder: Path,
    watch: Watcher | None = None,
    exchange: Exchange = ALONE,
) -> tuple[HeldOut, ...]:
    """The same training again without each fold of the training tasks: no task is scored by a learner that saw it.

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
        return train(*without(rest), find_fold(folder, number), shown, calibrated=False)

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
    """What held-out tasks say of the learner's scores: for every K that it serves, or for those it is evaluated at.

    Held out are the validation tasks, and for `others` the training tasks that each of them was trained without.
    A learner that takes gradient steps to adapt is asked fewer tasks: each of its supports is adapted to many times.
    A start has its say, the less the more tasks are held out.
    """
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    sizes = choose_sizes(learner, (experiment.k, *experiment.further_k))
    tasks, sets = count_calibration(learner)
    found = calibrate_over_tasks(
        learner,
        splits.train,
        splits.validation,
        sampler,
        experiment.seed,
        others,
        tasks=tasks,
        sizes=sizes,
        supports_per_task=sets,
        exchange=exchange,
    ).calibration
    start = find_start(experiment)
    if start is None:
        return found
    held_out = {task.unit for task in (*splits.validation, *(task for part in others for task in part.tasks))}
    return start.mix(found, len(held_out))
