"""What is kept of a training and of its evaluations, each with the experiment and where it came from.

The experiment of a record is the one that was trained; where it was evaluated (K, share of normals) stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fewone.documents import DocumentError
from fewone.experiment import Experiment
from fewone.results.provenance import Provenance
from fewone.results.statistics import Results, Summary, UnitScores

Level = Literal["example", "run"]
Split = Literal["train", "validation", "test"]
Threshold = Literal["own", "calibrated"]


@dataclass(frozen=True)
class _Record:
    """Any record: of which experiment, and where it comes from."""

    experiment: Experiment
    provenance: Provenance

    @property
    def seed(self) -> int:
        """Of the training."""
        return self.experiment.seed


@dataclass(frozen=True)
class Row(_Record):
    """One evaluation of a trained learner with supports of `k` examples, of which `normal_share` are normal.

    threshold: the method's own, or calibrated over tasks. scores keep the values per unit, so that runs can be paired
    and averaged later; `summary` is their mean and interval. steps: how many inner steps were taken on the support, if
    not those of the experiment; 0: what a gradient-based learner says before it is adapted.
    """

    k: int
    normal_share: float
    split: Split
    level: Level
    threshold: Threshold
    scores: UnitScores
    steps: int | None = None

    @cached_property
    def summary(self) -> Summary:
        return self.scores.summarize()


@dataclass(frozen=True)
class Failure(_Record):
    """A job that died, and of what."""

    error: str


@dataclass(frozen=True)
class ValidationPoint:
    """One validation during a training: means of query loss, balanced accuracy and AUROC on the validation tasks.

    auroc: None in trainings that were kept before it was measured.
    """

    iteration: int
    cpu_seconds: float
    loss: float
    accuracy: float
    auroc: float | None = None


@dataclass(frozen=True)
class Training(_Record):
    """How a training went, validation by validation."""

    history: tuple[ValidationPoint, ...]


@dataclass(frozen=True)
class Cosine(_Record):
    """Cosine between the gradients of one-class and class-balanced batches at the learned initialisation, per unit."""

    units: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Alarms(_Record):
    """Observed false-alarm rates on test tasks, per unit, at the threshold that a detector takes for a target rate.

    k: normals in the support. false_alarms: share of the normals (level "run": of the good recordings) called
    anomalous; misses: share of the anomalies called normal.
    """

    k: int
    level: Level
    rate: float
    units: tuple[str, ...]
    false_alarms: tuple[float, ...]
    misses: tuple[float, ...]


Record = Row | Failure | Training | Cosine | Alarms


EVALUATIONS = ("further_k",)
"""The settings that change nothing of a training: at which further K it is evaluated."""


def identify_training(experiment: Experiment) -> str:
    """The same for all records of one training: at which further K it is evaluated does not change it.

    >>> from dataclasses import replace
    >>> from fewone.experiments import default_experiment
    >>> first = default_experiment("omniglot")
    >>> identify_training(first) == identify_training(replace(first, further_k=(2,)))
    True
    >>> identify_training(first) == identify_training(replace(first, seed=1))
    False
    """
    return experiment.identify(EVALUATIONS, digits=8)


def read_experiment_table(table: object) -> Experiment:
    """The experiment of a record in a file; a mistake says where."""
    if not isinstance(table, Mapping):
        raise DocumentError(("experiment",), "a table is needed")
    try:
        return Experiment.read(table)
    except DocumentError as error:
        raise DocumentError(("experiment", *error.path), error.reason) from error


def make_rows(
    results: Results,
    experiment: Experiment,
    k: int,
    normal_share: float,
    split: Split,
    threshold: Threshold,
    provenance: Provenance,
    steps: int | None = None,
) -> tuple[Row, ...]:
    """The rows of an evaluation: per example and, where there are recordings, per run."""
    levels: tuple[tuple[Level, UnitScores | None], ...] = (("example", results.examples), ("run", results.runs))
    return tuple(
        Row(experiment, provenance, k, normal_share, split, level, threshold, scores, steps)
        for level, scores in levels
        if scores is not None
    )
