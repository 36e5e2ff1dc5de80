"""How long and how fast to learn, and what a training tells while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Select = Literal["loss", "accuracy", "auroc", "last"]


@dataclass(frozen=True)
class TrainingSettings:
    """iterations, minutes (of CPU), patience (validations without a better one): whichever ends the run first.

    meta_batch, query_size (Q), smallest_k (K drawn anew for each batch from smallest_k to k): batches of episodes.
    standardize_by: series that are standardised: by all normals of a training task (as the paper does), or, as a new
    task must be, by those of its support.
    classes, class_examples: batches of classes, for the learners that take those.
    augmentation: names of AUGMENTATIONS, applied to training batches in this order.
    validation_episodes: judged every validate_every iterations, with validation_queries queries each, half of either
    class (None: query_size). select: which weights are kept, those of the lowest validation loss, of the highest
    balanced accuracy, of the highest AUROC (the earliest of equals), or the last.
    clip: the largest norm of the gradient. schedule: the outer rate over the iterations.
    threads: of torch; the same number gives the same bits. checkpoint_seconds: how much work a crash may cost.
    leave_out: into how many parts the training tasks are cut; one further training leaves out each, and what it says
    of that part joins the calibration. For datasets with few validation tasks; 0: those alone.
    shards: into how many parts a batch is cut, so that workers can share it; the same number gives the same bits on any
    number of workers. 0: the batch as a whole, for one process.

    >>> TrainingSettings(iterations=500, patience=10).outer_rate
    0.001
    """

    iterations: int = 10_000
    minutes: float | None = None
    """A cap on the minutes of CPU: the run ends there, or earlier where its iterations are done."""
    patience: int | None = None
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    outer_rate: float = 0.001
    schedule: Literal["constant", "cosine"] = "constant"
    weight_decay: float = 0.0
    clip: float | None = None
    meta_batch: int = 8
    query_size: int = 50
    smallest_k: int | None = None
    standardize_by: Literal["task", "support"] = "task"
    classes: int = 16
    class_examples: int = 16
    augmentation: tuple[str, ...] = ()
    validate_every: int = 100
    validation_episodes: int = 50
    validation_queries: int | None = None
    select: Select = "loss"
    threads: int = 1
    checkpoint_seconds: float = 60.0
    leave_out: int = 0
    shards: int = 0


@dataclass(frozen=True)
class Cost:
    """What a training has taken: time on the clock and time of the processors."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Validation:
    """What the validation tasks said at one iteration: mean query loss, balanced accuracy and AUROC.

    auroc: None in trainings that were kept before it was measured.
    """

    iteration: int
    loss: float
    accuracy: float
    cpu_seconds: float
    auroc: float | None = None


@dataclass(frozen=True)
class Progress:
    """One iteration is done. validation: if this iteration was judged. ended: why the run is over, or empty."""

    iteration: int
    loss: float
    gradient_norm: float
    outer_rate: float
    cpu_seconds: float
    validation: Validation | None = None
    ended: str = ""
