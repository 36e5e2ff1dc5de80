"""A training from its first batch to its calibration, for any learner: the command and `fewone.meta_train` share it.

Enters: a learner and a course (what it learns from, what evaluates it). Leaves: the best weights and their calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from fewone.calibration import CalibrationMap, HeldOut
from fewone.checkpoints import ModelSpec, OwnSpec, load_calibration, save_calibration, save_learner
from fewone.episodes import Task
from fewone.errors import FewoneError
from fewone.evaluation.hyperparameters import select_hyperparameter
from fewone.learners import MetaLearner
from fewone.sampling import EpisodeSampler
from fewone.training.batches import Batches
from fewone.training.loop import train_steps
from fewone.training.observation import observe_batches
from fewone.training.run_folder import RunFolder
from fewone.training.settings import Progress, TrainingSettings
from fewone.training.training_log import TrainingLog
from fewone.training.validation import Validator
from fewone.workers import ALONE, Exchange

Watcher = Callable[[Progress], None]

FOLD, OLD_FOLD = "fold-", "without-"
"""The folders, inside a run's, of the trainings that leave a fold of the tasks out; the second in version 0.1."""

OBSERVED_BATCHES = 32
"""Batches of training tasks from which methods without a gradient take their scales."""


def find_fold(folder: Path, number: int) -> Path:
    """The folder of the training without fold `number`: one that version 0.1 began goes on where it is."""
    old = folder / f"{OLD_FOLD}{number}"
    return old if old.is_dir() else folder / f"{FOLD}{number}"


def list_folds(folder: Path) -> list[Path]:
    """The folders of the trainings without a fold that were begun."""
    return [place for name in (FOLD, OLD_FOLD) for place in sorted(folder.glob(f"{name}*"))]


@dataclass(frozen=True)
class Course:
    """What a learner is trained on and evaluated by."""

    batches: Batches
    validator: Validator
    settings: TrainingSettings


def learn(
    learner: MetaLearner,
    course: Course,
    kept: RunFolder | None,
    watch: Watcher | None = None,
    tensorboard: bool = False,
    exchange: Exchange = ALONE,
) -> None:
    """Train by gradient, in place, into an open folder (None: for all workers but the first)."""
    with (
        TrainingLog(kept.folder, tensorboard) if kept is not None else nullcontext() as log,
        closing(train_steps(learner, course.batches, course.validator, course.settings, kept, exchange)) as steps,
    ):
        for progress in steps:
            if log is not None:
                log.watch(progress)
                if watch is not None:
                    watch(progress)


def observe(learner: MetaLearner, batches: Batches) -> None:
    """A learner without a gradient takes its scales from some batches, in place."""
    observe_batches(learner, map(batches.draw, range(1, OBSERVED_BATCHES + 1)))


def complete(
    learner: MetaLearner,
    validation: Sequence[Task],
    sampler: EpisodeSampler,
    seed: int,
    folder: Path,
    spec: ModelSpec | OwnSpec,
    calibrate: Callable[[], CalibrationMap] | None,
    exchange: Exchange = ALONE,
) -> None:
    """What follows the gradient: a setting chosen on validation tasks, the model's file, the calibration.

    A folder that is calibrated already stays as it is. calibrate: None leaves the calibration out.
    """
    if exchange.from_first(b"" if load_calibration(folder) is None else b"calibrated") == b"calibrated":
        return
    select_hyperparameter(learner, validation, sampler, seed)
    if exchange.rank == 0:
        save_learner(folder, learner, spec)
    if calibrate is None:
        return
    calibration = calibrate()
    if exchange.rank == 0:
        save_calibration(folder, calibration)


def train_folds(
    tasks: Sequence[Task],
    count: int,
    train: Callable[[int, tuple[Task, ...]], MetaLearner],
    build: Callable[[tuple[Task, ...]], MetaLearner],
    exchange: Exchange = ALONE,
) -> tuple[HeldOut, ...]:
    """The same training again without each of `count` parts of the tasks: cross-fitting, so that no
    task is scored by a learner that has seen it.

    train: the learner of fold n, trained on these tasks; build: the same one untrained. Each fold is a job of its own:
    workers train different ones side by side and share the weights.
    """
    units = list(dict.fromkeys(task.unit for task in tasks))
    if count > len(units):
        raise FewoneError(f"training.leave_out is {count}, but there are {len(units)} independent training task(s)")

    def split(number: int) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
        left = set(units[number::count])
        rest = tuple(task for task in tasks if task.unit not in left)
        return rest, tuple(task for task in tasks if task.unit in left)

    def work(number: int) -> Tensor:
        learner = train(number, split(number)[0])
        return torch.frombuffer(bytearray(write_tensors(dict(learner.state_dict()))), dtype=torch.uint8)

    found = []
    for number, packed in enumerate(exchange.share_out(count, work)):
        rest, left = split(number)
        learner = build(rest).eval()
        learner.load_state_dict(read_tensors(packed.numpy().tobytes()))
        found.append(HeldOut(learner, left))
    return tuple(found)
