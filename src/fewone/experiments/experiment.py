"""One experiment, complete: what is trained on what, how, and how it is judged. Dataclass <-> TOML <-> command line."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewone.datasets import LoadOptions, split_name
from fewone.documents import DocumentError, from_plain, nearest, to_plain, to_toml, toml_line
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, LearnerSettings
from fewone.networks import NetworkSettings
from fewone.networks.settings import NETWORKS
from fewone.training import TrainingSettings


@dataclass(frozen=True)
class DataSettings:
    """seed: of generated series and of the split of your own folder. window, stride: how long series are cut.

    group: the column or file-name prefix that says which examples belong to one recording.
    """

    seed: int = 0
    window: int | None = None
    stride: int | None = None
    group: str | None = None

    def options(self) -> LoadOptions:
        return LoadOptions(seed=self.seed, window=self.window, stride=self.stride, group=self.group)


@dataclass(frozen=True)
class Experiment:
    """learner: a name of LEARNERS, with `oc-` in front for one-class training, or of BASELINES.

    k: examples in the support. normal_share: of them in training (1.0 one-class, 0.5 balanced);
    test_normal_share: of them in validation and test. further_k: the trained learner is judged with these
    K as well. `default_experiment` fills in what the paper used.
    """

    dataset: str
    learner: str
    k: int
    seed: int
    normal_share: float
    test_normal_share: float
    data: DataSettings
    network: NetworkSettings
    learning: LearnerSettings
    training: TrainingSettings
    further_k: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for path, (allows, allowed) in LIMITS.items():
            value = _get(self, path)
            if value is not None and not allows(value):
                raise DocumentError(path, f"{allowed} is needed, got {value!r}")
        if self.training.smallest_k is not None and self.training.smallest_k > self.k:
            raise DocumentError(("training", "smallest_k"), f"at most k = {self.k} is needed")
        try:
            split_name(self.dataset)
        except FewoneError as error:
            raise DocumentError(("dataset",), str(error)) from error
        find_algorithm(self.learner)

    @property
    def algorithm(self) -> str:
        """The learner's name in LEARNERS or BASELINES: `oc-` speaks of the sampling, which is normal_share."""
        return find_algorithm(self.learner)

    def to_plain(self) -> dict[str, Any]:
        """As dictionaries, lists and scalars: what JSON and result rows hold."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def to_toml(self) -> str:
        return to_toml(self.to_plain())


def identify(experiment: Experiment) -> str:
    """A name for an experiment that changes with any of its settings."""
    return hashlib.sha256(json.dumps(experiment.to_plain(), sort_keys=True).encode()).hexdigest()[:16]


def _at_least(least: float, what: str = "a number") -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value >= least), f"{what} of at least {least}"


def _whole(least: int) -> tuple[Callable[[Any], bool], str]:
    return _at_least(least, "a whole number")


_POSITIVE: tuple[Callable[[Any], bool], str] = (lambda value: value > 0), "a number above 0"
_SHARE: tuple[Callable[[Any], bool], str] = (lambda value: 0.5 <= value <= 1), "0.5 (balanced) to 1 (one-class)"

LIMITS: dict[tuple[str, ...], tuple[Callable[[Any], bool], str]] = {
    ("k",): _whole(1),
    ("seed",): _whole(0),
    ("further_k",): (lambda value: all(k >= 1 for k in value), "a list of whole numbers of at least 1"),
    ("normal_share",): _SHARE,
    ("test_normal_share",): _SHARE,
    ("data", "seed"): _whole(0),
    ("data", "window"): _whole(1),
    ("data", "stride"): _whole(1),
    ("network", "architecture"): (lambda value: value in NETWORKS, " or ".join(NETWORKS)),
    ("network", "filters"): (
        lambda value: len(value) > 0 and min(value) >= 1,
        "a list of whole numbers of at least 1",
    ),
    ("network", "kernel"): (lambda value: value >= 1 and value % 2 == 1, "an odd whole number"),
    ("network", "window"): _whole(2),
    ("network", "hop"): _whole(1),
    ("network", "bands"): _whole(1),
    ("network", "kernels"): _whole(1),
    ("network", "drop_rate"): (lambda value: 0 <= value < 1, "a number from 0 to below 1"),
    ("network", "drop_block"): _whole(1),
    ("learning", "inner_rate"): _at_least(0),
    ("learning", "inner_steps"): _whole(0),
    ("learning", "nu"): (lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    ("learning", "ridge"): _at_least(0),
    ("learning", "penalty"): _POSITIVE,
    ("learning", "dimensions"): _whole(0),
    ("learning", "largest_support"): _whole(1),
    ("learning", "auxiliary_classes"): _whole(0),
    ("learning", "auxiliary_weight"): _at_least(0),
    ("learning", "training_tasks"): _whole(0),
    ("learning", "head_width"): _whole(1),
    ("learning", "random_kernels"): _whole(0),
    ("training", "iterations"): _whole(1),
    ("training", "minutes"): _POSITIVE,
    ("training", "patience"): _whole(1),
    ("training", "outer_rate"): _POSITIVE,
    ("training", "weight_decay"): _at_least(0),
    ("training", "clip"): _POSITIVE,
    ("training", "meta_batch"): _whole(1),
    ("training", "query_size"): (
        lambda value: value >= 2 and value % 2 == 0,
        "an even whole number of at least 2 (half of each class)",
    ),
    ("training", "smallest_k"): _whole(1),
    ("training", "leave_out"): (lambda value: value == 0 or value >= 2, "0, or a whole number of at least 2"),
    ("training", "shards"): _whole(0),
    ("training", "classes"): _whole(2),
    ("training", "class_examples"): _whole(2),
    ("training", "validate_every"): _whole(1),
    ("training", "validation_episodes"): _whole(1),
    ("training", "validation_queries"): (
        lambda value: value >= 2 and value % 2 == 0,
        "an even whole number of at least 2 (half of each class)",
    ),
    ("training", "threads"): _whole(1),
    ("training", "checkpoint_seconds"): _at_least(0),
}


def find_algorithm(learner: str) -> str:
    """ "oc-maml" -> "maml", "oc-svm" -> "oc-svm" (a baseline); an unknown name is a fault that names the nearest."""
    bare = learner.removeprefix("oc-")
    if bare in LEARNERS:
        return bare
    from fewone.baselines import BASELINES  # only on need: scikit-learn takes a second to import

    if learner in BASELINES:
        return learner
    names = [*LEARNERS, *(f"oc-{name}" for name in LEARNERS), *BASELINES]
    raise DocumentError(("learner",), f"no learner is called {learner!r}; {nearest(learner, names)}")


def _get(experiment: Experiment, path: tuple[str, ...]) -> Any:
    value: Any = experiment
    for name in path:
        value = getattr(value, name)
    return value


def parse_experiment(plain: Mapping[str, Any]) -> Experiment:
    """An experiment from plain values; what is not given is as the paper did it with this dataset and learner."""
    from fewone.experiments.defaults import default_experiment

    for key, kind in (("dataset", str), ("learner", str), ("k", int)):
        if key in plain and (not isinstance(plain[key], kind) or isinstance(plain[key], bool)):
            raise DocumentError(
                (key,), f"{'a text' if kind is str else 'a whole number'} is needed, got {plain[key]!r}"
            )
    chosen = {key: plain[key] for key in ("dataset", "learner", "k") if key in plain}
    return from_plain(Experiment, plain, default_experiment(**chosen))


def read_experiment(path: Path) -> Experiment:
    """An experiment from a TOML file; a mistake is an error with file, line, key and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FewoneError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    try:
        return parse_experiment(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise FewoneError(f"{path}: not TOML: {error}") from error
    except DocumentError as fault:
        line = toml_line(text, fault.path)
        place = f"{path}, line {line}" if line else str(path)
        raise FewoneError(f"{place}: {fault}") from fault
