"""Any learner and tasks -> a trained detector and its folder: the whole of `fewone train`, from Python."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fewone.augmentation import build_augmentation
from fewone.calibration import CalibrationMap
from fewone.checkpoints import (
    OwnSpec,
    check_shapes,
    drop_calibration,
    fill_learner,
    load_calibration,
    read_checkpoint,
    write_checkpoint,
)
from fewone.datasets.fingerprint import fingerprint
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.documents import to_plain
from fewone.episodes import EvaluationProtocol, Task, TaskSplits
from fewone.errors import InputError
from fewone.evaluation.task_calibration import calibrate_over_tasks, choose_sizes, count_calibration
from fewone.learners import MetaLearner
from fewone.sampling import ClassSampler, EpisodeSampler
from fewone.sampling import check_shapes as check_task_shapes
from fewone.training.batches import Batches
from fewone.training.course import Course, Watcher, complete, find_fold, learn, observe, train_folds
from fewone.training.run_folder import RunFolder
from fewone.training.settings import TrainingSettings
from fewone.training.starts import Start, load_start
from fewone.training.validation import Validator

FIRST = "first"
"""The weights that a training began with: its folds begin with the same ones, whoever goes on with it."""


def meta_train(
    learner: MetaLearner,
    tasks: Sequence[Task],
    validation_tasks: Sequence[Task],
    sampler: EpisodeSampler,
    settings: TrainingSettings | None = None,
    folder: str | Path = "run",
    *,
    seed: int = 0,
    watch: Watcher | None = None,
    calibrated: bool = True,
    start: str | Path | None = None,
) -> FewShotDetector:
    """Train a learner on tasks, in place, and keep everything in a folder.

    Every so often the validation tasks are evaluated and the best weights kept. Called again with the same arguments, a
    training that was interrupted goes on from its last checkpoint to the same bits, and one that is over is read.

    Parameters
    ----------
    learner
        Any `fewone.learners` learner, over any module, or one of your own; it ends with its best weights.
    tasks, validation_tasks
        With normals and anomalies. Validation tasks choose the weights and calibrate the scores: ten or more of them,
        or leave tasks out of the training for it (`settings.leave_out`).
    sampler
        K, Q and how inputs are made. `query_size` and `standardize_by` of the settings are its own here.
    settings
        How long and how fast; None: the defaults of `TrainingSettings`.
    folder
        Holds the weights, the training state, a log (`log.jsonl`) and the calibration; JSON and safetensors alone.
    seed
        Fixes the episodes.
    watch
        Called with the `Progress` of every iteration.
    calibrated
        False leaves the calibration out.
    start
        A model of the zoo or a folder that the learner `Evidence` begins with and is drawn back to, the less the more
        tasks there are. The kinds of evidence are the start's: `Evidence(load_start("series").learner.names)` of
        `fewone.training.starts`.

    Returns
    -------
    A detector over the learner, not fitted yet; `fewone.load(folder, learner=...)` gives the same.

    Raises
    ------
    InputError
        Before the first step, where tasks have different shapes or too few examples.
    FewoneError
        The folder holds another training, or the loss is no longer a finite number.

    Examples
    --------
    >>> import tempfile, numpy as np, torch, fewone
    >>> from fewone.learners import ProtoNet
    >>> random = np.random.default_rng(0)
    >>> tasks = [fewone.Task.from_arrays(str(n), random.normal(size=(20, 3)), 4 + random.normal(size=(9, 3)))
    ...          for n in range(15)]
    >>> sampler = fewone.EpisodeSampler(support_size=5, query_size=4, standardize=True)
    >>> settings = fewone.TrainingSettings(iterations=20, validate_every=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     learner = ProtoNet(torch.nn.Linear(3, 8))
    ...     detector = fewone.meta_train(learner, tasks[:5], tasks[5:], sampler, settings, folder)
    >>> detector.fit(random.normal(size=(5, 3)))
    FewShotDetector(ProtoNet, fitted on 5 normals)
    """
    place, chosen = Path(folder), _settle(settings or TrainingSettings(), sampler)
    training, validation = tuple(tasks), tuple(validation_tasks)
    _check(learner, training, validation, sampler, chosen)
    splits = TaskSplits(
        "own", training, validation, (), training[0].shape, sampler.scaling, EvaluationProtocol(1, None, None)
    )
    begun = None if start is None else load_start(start)
    if begun is not None:
        begun.check(splits.shape)
        begun.begin(learner, len({task.unit for task in training}))
    spec = OwnSpec.of(learner, splits.shape, sampler.scaling, fingerprint(splits))
    _train(learner, training, validation, sampler, chosen, place, spec, seed, watch, calibrated, begun)
    learner.load_state_dict(fill_learner(place, learner)[0].state_dict())
    return FewShotDetector(learner.eval(), scaling=sampler.scaling, calibration=load_calibration(place))


def _train(
    learner: MetaLearner,
    tasks: tuple[Task, ...],
    validation: tuple[Task, ...],
    sampler: EpisodeSampler,
    settings: TrainingSettings,
    folder: Path,
    spec: OwnSpec,
    seed: int,
    watch: Watcher | None,
    calibrated: bool,
    start: Start | None = None,
) -> None:
    batches = _make_batches(learner, tasks, sampler, settings, seed)
    validator = Validator(validation, sampler, settings.validation_episodes, seed, settings.validation_queries)

    def train_fold(first: MetaLearner, number: int, rest: tuple[Task, ...]) -> MetaLearner:
        fold, alone = copy.deepcopy(first), replace(settings, leave_out=0, classes=min(settings.classes, len(rest)))
        place = find_fold(folder, number)
        _train(fold, rest, validation, sampler, alone, place, spec, seed, watch, False, start)
        return fold

    with RunFolder(folder, spec, _describe(spec, sampler, settings, seed, start), settings.checkpoint_seconds) as kept:
        first = _keep_first(folder, learner)
        learner.load_state_dict(first.state_dict())

        def calibrate() -> CalibrationMap:
            others = train_folds(
                tasks,
                settings.leave_out if learner.is_trained else 0,
                lambda number, rest: train_fold(first, number, rest),
                lambda rest: copy.deepcopy(first),
            )
            count, sets = count_calibration(learner)
            sizes = choose_sizes(learner, (sampler.support_size,))
            found = calibrate_over_tasks(
                learner, tasks, validation, sampler, seed, others, tasks=count, sizes=sizes, supports_per_task=sets
            ).calibration
            held_out = {task.unit for task in (*validation, *(task for part in others for task in part.tasks))}
            return found if start is None else start.mix(found, len(held_out))

        if learner.is_trained:
            learn(learner, Course(batches, validator, settings), kept, watch)
        else:
            # Nothing is kept on the way, so it is done again.
            drop_calibration(folder)
            observe(learner, batches)
        complete(learner, validation, sampler, seed, folder, spec, calibrate if calibrated else None)


def _keep_first(folder: Path, learner: MetaLearner) -> MetaLearner:
    """A copy of the learner as the training began, from the folder where it was begun before."""
    first = copy.deepcopy(learner)
    if (folder / f"{FIRST}.json").exists():
        tensors, _ = read_checkpoint(folder, FIRST)
        check_shapes(tensors, first.state_dict(), folder / f"{FIRST}.json")
        first.load_state_dict(tensors)
    else:
        write_checkpoint(folder, FIRST, first.state_dict(), {})
    return first


def _make_batches(
    learner: MetaLearner, tasks: tuple[Task, ...], sampler: EpisodeSampler, settings: TrainingSettings, seed: int
) -> Batches:
    kind: EpisodeSampler | ClassSampler = sampler
    if learner.batch == "classes":
        kind = ClassSampler(min(settings.classes, len(tasks)), settings.class_examples, sampler.scaling)
    transform = build_augmentation(settings.augmentation, len(tasks)) if settings.augmentation else None
    return Batches(tasks, kind, settings.meta_batch, seed, settings.smallest_k, transform)


def _settle(settings: TrainingSettings, sampler: EpisodeSampler) -> TrainingSettings:
    """The settings with what the sampler says; two answers to one question are refused."""
    usual = TrainingSettings()
    for name in ("query_size", "standardize_by"):
        given, theirs = getattr(settings, name), getattr(sampler, name)
        if given not in (getattr(usual, name), theirs):
            raise InputError(f"{name} is {given!r} in the settings, {theirs!r} in the sampler: leave it to the sampler")
    for name in ("iterations", "meta_batch", "validate_every", "validation_episodes"):
        if getattr(settings, name) < 1:
            raise InputError(f"settings.{name} is {getattr(settings, name)}: at least 1 is needed")
    return replace(settings, query_size=sampler.query_size, standardize_by=sampler.standardize_by)


def _check(
    learner: object,
    tasks: tuple[Task, ...],
    validation: tuple[Task, ...],
    sampler: EpisodeSampler,
    settings: TrainingSettings,
) -> None:
    """Refuse what would fail later, or train on what it is evaluated by."""
    if not isinstance(learner, MetaLearner):
        kind = type(learner).__name__
        raise InputError(f"learner: one such as fewone.learners.Maml(module) is expected, got {kind}")
    sampler.check_training(tasks)
    if not validation:
        raise InputError("there is no validation task to choose the best weights by: keep some tasks apart")
    check_task_shapes((tasks[0], *validation))
    both = {task.unit for task in tasks} & {task.unit for task in validation}
    if both:
        raise InputError(f"{sorted(both)[0]!r} is among the training and the validation tasks: keep them apart")
    for task in validation:
        if not len(task.anomalous):
            raise InputError(f"task {task.name}: it has no anomalies to validate by; leave it out")


def _describe(
    spec: OwnSpec, sampler: EpisodeSampler, settings: TrainingSettings, seed: int, start: Start | None
) -> dict[str, Any]:
    """What makes two trainings the same one, as plain values."""
    return {
        "learner": spec.learner,
        "arguments": spec.arguments,
        "modules": list(spec.modules),
        "seed": seed,
        "sampler": to_plain(sampler),
        "training": to_plain(settings),
        **({} if start is None else {"start": start.name}),
    }
