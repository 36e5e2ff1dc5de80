"""An experiment -> what it is made of: its data, its model's card, its samplers and batches."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fewone.algorithms import find_algorithm
from fewone.augmentation import build_augmentation
from fewone.checkpoints import ModelSpec
from fewone.datasets import load
from fewone.episodes import InputScaling, TaskSplits, generator_for
from fewone.errors import FewoneError, FewoneWarning
from fewone.evaluation.embedded import embed_splits
from fewone.experiment import Experiment
from fewone.learners import EvidenceSettings, LearnerSettings, MetaLearner
from fewone.networks.efficientnet_lite import FROZEN, see_pictures
from fewone.picture_files import SIDE, FullScale, shrink, to_bytes
from fewone.sampling import ClassSampler, EpisodeSampler, describe_rounding
from fewone.training import Batches, Transform, Validator
from fewone.training.course import Course
from fewone.training.starts import Start, fill_in, load_start


def load_splits(experiment: Experiment, data_dirs: Sequence[Path] | None = None) -> TaskSplits:
    """The experiment's data; no folders given: those of FEWONE_DATA.

    For a frozen network: what it sees of every picture, once and for all. The model takes pictures of every size.
    """
    options = experiment.data.options()
    if experiment.network.architecture != FROZEN:
        return load(experiment.dataset, data_dirs or None, options)
    if experiment.training.augmentation:
        raise FewoneError(f"the pictures are seen once by {FROZEN}: leave training.augmentation empty")
    if find_algorithm(experiment.algorithm).series_only or isinstance(experiment.learning, EvidenceSettings):
        raise FewoneError(
            f"{experiment.learner} reads no network: choose plda, protonet or another learner on {FROZEN}"
        )
    return see_once(load(experiment.dataset, data_dirs or None, replace(options, any_size=True)))


def see_once(splits: TaskSplits) -> TaskSplits:
    """Tasks of pictures -> the same tasks of the frozen network's features; the fingerprint is that of the pictures."""
    stored = splits.train[0].normal.store.values
    if stored.dim() != 4 or stored.shape[1] not in (1, 3):
        raise FewoneError(f"{splits.name}: holds no pictures, grey or colour, and {FROZEN} sees nothing else")
    seen = embed_splits(splits, _see)
    return replace(seen, shape=(0, 0, 0), preparation=InputScaling())


def _see(stored: Tensor) -> Tensor:
    """(n, channels, height, width) as stored -> features, at the size and in the unit of a detector."""
    if stored.shape[1:] == (3, SIDE, SIDE):
        return see_pictures(stored.float())
    planes = [shrink(np.moveaxis(one, 0, -1)) for one in stored.numpy()]
    scale = FullScale.of(stored.numpy())
    return see_pictures(torch.from_numpy(np.stack([to_bytes(one, scale) for one in planes])))


def find_start(experiment: Experiment) -> Start | None:
    """The model that the experiment's training begins with, if it names one."""
    name = getattr(experiment.learning, "start", "")
    return load_start(name) if name else None


def describe(experiment: Experiment, splits: TaskSplits) -> ModelSpec:
    """The card of the model that this experiment trains; a start says which evidence and which inputs it takes."""
    learning: LearnerSettings = experiment.learning
    shape, start = tuple(splits.shape), find_start(experiment)
    if start is not None and isinstance(learning, EvidenceSettings):
        start.check(shape)
        learning, shape = fill_in(learning, start), start.spec.shape
    return ModelSpec(
        algorithm=experiment.algorithm,
        learning=learning,
        network=experiment.network,
        shape=shape,
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


def make_course(
    experiment: Experiment, splits: TaskSplits, learner: MetaLearner, transform: Transform | None = None
) -> Course:
    """What the experiment's learner is trained on, and evaluated by."""
    training = experiment.training
    sampler = make_sampler(experiment, splits, experiment.test_normal_share)
    validator = Validator(
        splits.validation, sampler, training.validation_episodes, experiment.seed, training.validation_queries
    )
    return Course(make_batches(experiment, splits, learner, transform), validator, training)
