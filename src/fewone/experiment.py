"""One experiment, complete: what is trained on what, how, and how it is evaluated. Rows, states and cards hold it.

A value: it reads no file and trains nothing. Which values are allowed stands in the annotations; which names exist
(dataset, learner, network) is for `experiments.check`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from fewone.algorithms import find_algorithm, is_algorithm, name_algorithm
from fewone.datasets import LoadOptions
from fewone.datasets.sources import Anomalies
from fewone.documents import (
    AboveZero,
    Count,
    DocumentError,
    Even,
    Limit,
    NotNegative,
    Positive,
    at_least,
    check_limits,
    from_plain,
    to_plain,
    to_toml,
)
from fewone.learners import LearnerSettings
from fewone.networks import NetworkSettings
from fewone.old_names import rename_learner

Select = Literal["loss", "accuracy", "auroc", "last"]
Share = Annotated[float, Limit(lambda value: 0.5 <= value <= 1, "0.5 (balanced) to 1 (one-class)")]


@dataclass(frozen=True)
class DataSettings:
    """seed: of generated series and of the split of your own folder. window, stride: how long series are cut.

    group: the column or file-name prefix that says which examples belong to one recording.
    anomalies: of your own folder of series, what training and validation take for anomalies: those of the files, faults
    that are injected into the normals, or both; test tasks keep their own where they have some.
    exclusive: what is normal in one task of your own folder is anomalous in every other, and is taken for that, too.
    """

    seed: Count = 0
    window: Positive | None = None
    stride: Positive | None = None
    group: str | None = None
    anomalies: Anomalies = "labelled"
    exclusive: bool = False

    def options(self) -> LoadOptions:
        return LoadOptions(
            seed=self.seed,
            window=self.window,
            stride=self.stride,
            group=self.group,
            anomalies=self.anomalies,
            exclusive=self.exclusive,
        )


@dataclass(frozen=True)
class TrainingSettings:
    """iterations, minutes (of CPU), patience (validations without a better one): whichever ends the run first.

    meta_batch, query_size (Q), smallest_k (K drawn anew for each batch from smallest_k to k): batches of episodes.
    standardize_by: series that are standardised: by all normals of a training task (as the paper does), or, as a new
    task must be, by those of its support.
    classes, class_examples: batches of classes, for the learners that take those.
    augmentation: names of AUGMENTATIONS, applied to training batches in this order.
    validation_episodes: scored every validate_every iterations, with validation_queries queries each, half of either
    class (None: query_size). select: which weights are kept, those of the lowest validation loss, of the highest
    balanced accuracy, of the highest AUROC (the earliest of equals), or the last.
    optimizer, with outer_rate and weight_decay: of the outer loop. schedule: the outer rate over the iterations.
    clip: the largest norm of the gradient.
    threads: of torch; the same number gives the same bits. checkpoint_seconds: how much work a crash may cost.
    leave_out: into how many folds the training tasks are cut; one further training leaves out each, and what it says
    of that fold joins the calibration. For datasets with few validation tasks; 0: those alone.
    shards: into how many parts a batch is cut, so that workers can share it; the same number gives the same bits on any
    number of workers. 0: the batch as a whole, for one process.

    >>> TrainingSettings(iterations=500, patience=10).outer_rate
    0.001
    """

    iterations: Positive = 10_000
    minutes: AboveZero | None = None
    """A cap on the minutes of CPU: the run ends there, or earlier where its iterations are done."""
    patience: Positive | None = None
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    outer_rate: AboveZero = 0.001
    schedule: Literal["constant", "cosine"] = "constant"
    weight_decay: NotNegative = 0.0
    clip: AboveZero | None = None
    meta_batch: Positive = 8
    query_size: Even = 50
    smallest_k: Positive | None = None
    standardize_by: Literal["task", "support"] = "task"
    classes: Annotated[int, at_least(2, "a whole number")] = 16
    class_examples: Annotated[int, at_least(2, "a whole number")] = 16
    augmentation: tuple[str, ...] = ()
    validate_every: Positive = 100
    validation_episodes: Positive = 50
    validation_queries: Even | None = None
    select: Select = "loss"
    threads: Positive = 1
    checkpoint_seconds: NotNegative = 60.0
    leave_out: Annotated[int, Limit(lambda value: value == 0 or value >= 2, "0, or a whole number of at least 2")] = 0
    shards: Count = 0


@dataclass(frozen=True)
class ForeignSettings(LearnerSettings):
    """Of a learner that is not registered here, as its file has them (JSON): they can be shown, not trained with."""

    text: str


@dataclass(frozen=True)
class Experiment:
    """learner: a name of LEARNERS, with `oc-` in front for one-class training, or of BASELINES.

    k: examples in the support. normal_share: of them in training (1.0 one-class, 0.5 balanced);
    test_normal_share: of them in validation and test. learning: the settings of this very learner. further_k: the
    trained learner is evaluated with these K as well. `default_experiment` fills in what the paper used.
    """

    dataset: str
    learner: str
    k: Positive
    seed: Count
    normal_share: Share
    test_normal_share: Share
    data: DataSettings
    network: NetworkSettings
    learning: LearnerSettings
    training: TrainingSettings
    further_k: Annotated[
        tuple[int, ...], Limit(lambda value: all(k >= 1 for k in value), "a list of whole numbers of at least 1")
    ] = ()

    def __post_init__(self) -> None:
        check_limits(self)
        if self.training.smallest_k is not None and self.training.smallest_k > self.k:
            raise DocumentError(("training", "smallest_k"), f"at most k = {self.k} is needed")

    @property
    def algorithm(self) -> str:
        """The learner's name in LEARNERS or BASELINES: `oc-` speaks of the sampling, which is normal_share."""
        return name_algorithm(self.learner)

    def to_plain(self) -> dict[str, Any]:
        """As dictionaries, lists and scalars: what JSON and TOML hold."""
        plain: dict[str, Any] = to_plain(self)
        # As it was before there were such settings: rows and trainings keep their keys.
        if self.data.anomalies == "labelled":
            del plain["data"]["anomalies"]
        if not self.data.exclusive:
            del plain["data"]["exclusive"]
        if isinstance(self.learning, ForeignSettings):
            plain["learning"] = json.loads(self.learning.text)
        return plain

    def to_toml(self) -> str:
        return to_toml(self.to_plain())

    def flatten(self) -> dict[str, Any]:
        """Every setting by its dotted name: {"dataset": ..., "training.iterations": ...}."""
        flat: dict[str, Any] = {}
        for name, value in self.to_plain().items():
            inside = {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {}
            flat |= inside or {name: value}
        return flat

    def key(self, ignoring: Collection[str] = ()) -> str:
        """The one notion of sameness: two experiments are the same but for the ignored settings if their keys are.

        >>> from fewone.experiments import default_experiment
        >>> one, other = default_experiment("omniglot", seed=0), default_experiment("omniglot", seed=1)
        >>> one.key() == other.key(), one.key(ignoring=["seed"]) == other.key(ignoring=["seed"])
        (False, True)
        """
        return _write_key(self, frozenset(ignoring))

    def identify(self, ignoring: Collection[str] = (), digits: int = 16) -> str:
        """The key as a short name, for files and folders."""
        return hashlib.sha256(self.key(ignoring).encode()).hexdigest()[:digits]

    @staticmethod
    def read(plain: Mapping[str, Any], default: Experiment | None = None) -> Experiment:
        """From the table of a file, of version 0.1 too. What is not there comes from the default, or is as it was
        before there was such a setting.

        Raises
        ------
        DocumentError
            A key or value that no version wrote.
        """
        learner = plain.get("learner")
        if not isinstance(learner, str):
            raise DocumentError(("learner",), f"a text is needed, got {learner!r}")
        learner = rename_learner(learner)
        base = None if default is None else default.learning
        learning = _read_learning(name_algorithm(learner), plain.get("learning", {}), base)
        tables: dict[str, object] = {} if default is not None else {"data": {}, "network": {}, "training": {}}
        return from_plain(Experiment, {**tables, **plain, "learner": learner, "learning": learning}, default)


def _read_learning(algorithm: str, plain: object, default: LearnerSettings | None) -> LearnerSettings:
    if is_algorithm(algorithm):
        settings: LearnerSettings = find_algorithm(algorithm).read_settings(plain, default)
        return settings
    return ForeignSettings(json.dumps(plain, sort_keys=True))


@lru_cache(maxsize=20_000)
def _write_key(experiment: Experiment, ignoring: frozenset[str]) -> str:
    """To write an experiment takes a fraction of a millisecond, and a training has a dozen records."""
    flat = {name: value for name, value in experiment.flatten().items() if name not in ignoring}
    return json.dumps(flat, sort_keys=True)


def convert_settings(settings: LearnerSettings, algorithm: str) -> LearnerSettings:
    """The settings of another algorithm as far as they are this one's, too."""
    entry = find_algorithm(algorithm)
    chosen: LearnerSettings = entry.choose(**{field.name: getattr(settings, field.name) for field in fields(settings)})
    return chosen


def with_learner(experiment: Experiment, learner: str) -> Experiment:
    """The same with another learner, its settings kept as far as that one has them."""
    return replace(experiment, learner=learner, learning=convert_settings(experiment.learning, name_algorithm(learner)))
