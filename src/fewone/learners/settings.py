"""The settings of every learner, as they travel in an experiment. Each field says who reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KernelKind = Literal["linear", "cosine", "rbf"]


@dataclass(frozen=True)
class LearnerSettings:
    """inner_rate, inner_steps: the gradient-based learners (maml, fomaml, reptile, anil, foanil, metasgd).

    learn_rates: one learned inner rate per tensor and step instead of a fixed one (maml, anil).
    query_statistics: maml, fomaml, reptile: in meta-training the query is normed by its own batch, as in the authors'
    program of FOMAML and Reptile; judging is by the support's statistics in any case.
    balanced_step: reptile: the last step of meta-training is on the class-balanced query, as the paper says; False: on
    the support like the others, as in the authors' program.
    nu, kernel, ridge: metaoptnet (ridge is added to the kernel's diagonal; nu: in training, for judging it is chosen on
    validation tasks).
    penalty: metaoptnet: the upper bound of a weight where the support has two classes (nu rules with one).
    batch: plda, fb: train on episodes, or on batches of classes where another task's normals are anomalies.
    dimensions: plda, contrast: the width of the space that distances live in (0: the network's own).
    largest_support: plda: batches of classes train every K from 1 to this (episodes: see training.smallest_k).
    auxiliary_weight: plda: of a cross-entropy over all training classes (0: none); auxiliary_classes: their number.
    training_tasks: fb, mtl: how many tasks they are trained on, for the heads. The run fills in both numbers.
    head_width: mtl: the hidden layer of each training task's head.
    precision: plda: of the embedding in training; adapting and scoring are always full precision.
    residual: contrast: judge what differs from the mean of the normals (aligned series), or the series themselves.
    random_kernels: contrast: how many fixed random convolutions give a distance of their own (0: none).
    flip_views: plda: adapt and score images by the mean of both mirror views.
    evidence: evidence: the kinds of evidence by name (none: all that suit series).

    >>> LearnerSettings(inner_steps=3).inner_rate
    0.01
    """

    inner_rate: float = 0.01
    inner_steps: int = 5
    learn_rates: bool = False
    query_statistics: bool = False
    balanced_step: bool = True
    nu: float = 0.1
    kernel: KernelKind = "linear"
    ridge: float = 1.0
    penalty: float = 0.1
    batch: Literal["episodes", "classes"] = "episodes"
    dimensions: int = 128
    largest_support: int = 10
    auxiliary_classes: int = 0
    auxiliary_weight: float = 0.5
    training_tasks: int = 0
    head_width: int = 16
    precision: Literal["float32", "bfloat16"] = "float32"
    flip_views: bool = False
    residual: bool = True
    random_kernels: int = 0
    evidence: tuple[str, ...] = ()
