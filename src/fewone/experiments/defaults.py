"""What the paper and its authors used on each dataset, as one literal table; documented choices where they are silent.

Nothing here was chosen on test tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fewone.datasets import split_name
from fewone.datasets.example_files import read_archive
from fewone.errors import FewoneError
from fewone.experiments.experiment import DataSettings, Experiment, find_algorithm
from fewone.experiments.own_recipes import OWN, find_own_recipe
from fewone.learners import LEARNERS, LearnerSettings
from fewone.networks import NetworkSettings
from fewone.reading import is_recording
from fewone.training import TrainingSettings

DEFAULT_LEARNER = "plda"
"""The library's own: ahead of the paper's learners on images, and one model serves every K."""

FOLDER_SERIES_LEARNER = "evidence"
"""For a user's own series, of which nothing is known: by validation loss on made-up plants of a dozen machines, where
plda without a front end learns the training machines by heart (tests/first_hour)."""

BALANCED = {"maml", "fomaml", "reptile", "anil", "foanil", "metasgd", "metaoptnet", "protonet"}
"""The learners of the paper that have a class-balanced form; `oc-` in front makes it one-class."""

FIRST_ORDER = {"fomaml", "foanil", "reptile"}

CLASS_FAMILIES = {"mt-mnist", "omniglot", "miniimagenet", "cifar-fs", "fc100"}
"""Where another task's normals are anomalies: FB is a softmax over the classes there, not two classes per task."""

VALIDATION_QUERIES = 50
"""Of every learner, however few queries it is trained with (Reptile: K)."""

EMBEDDING = {"metaoptnet", "protonet"}
"""Their originals use ordinary batch norm: running averages when judging."""


@dataclass(frozen=True)
class Recipe:
    """Network, inner loop and outer loop for one family of datasets."""

    filters: tuple[int, ...]
    kernel: int
    norm: Literal["none", "support", "running"]
    inner_rate: float
    inner_steps: int
    query_size: int
    iterations: int
    meta_batch: int = 8


_SERIES = Recipe((32,) * 3, 5, "none", 0.01, 10, 50, 10_000)

RECIPES: dict[str, Recipe] = {
    "sts-sawtooth": _SERIES,
    "sts-sine": _SERIES,
    "sts-smooth": _SERIES,
    "sts-context": _SERIES,
    "sts-context-hard": _SERIES,
    "mt-mnist": Recipe((32,) * 4, 3, "support", 0.01, 5, 100, 10_000),
    "omniglot": Recipe((64,) * 4, 3, "support", 0.05, 5, 20, 20_000),
    "miniimagenet": Recipe((32,) * 4, 3, "support", 0.01, 5, 60, 20_000),
    "cifar-fs": Recipe((32,) * 4, 3, "support", 0.01, 10, 30, 20_000),
    "fc100": Recipe((32,) * 4, 3, "support", 0.01, 10, 30, 10_000),
    "cnc": Recipe((32, 32, 64, 64), 5, "none", 0.0001, 5, 16, 10_000, meta_batch=16),
    # Whatever a user brings, series or images.
    "folder": _SERIES,
}


def find_recipe(dataset: str, algorithm: str) -> Recipe:
    """The family's recipe with what the authors changed for some algorithms."""
    family = _find_family(dataset)
    if family not in RECIPES:
        raise FewoneError(f"no recipe says how to train on {family}; add one to RECIPES in experiments/defaults.py")
    recipe = RECIPES[family]
    if family.startswith("sts-") and algorithm in FIRST_ORDER:
        recipe = replace(recipe, norm="support", inner_rate=0.001 if algorithm == "reptile" else 0.01)
    if algorithm in EMBEDDING and recipe.norm == "support":
        recipe = replace(recipe, norm="running")
    if family == "omniglot" and algorithm in FIRST_ORDER:
        recipe = replace(recipe, inner_rate=0.01)
    if family == "miniimagenet" and algorithm == "fomaml":
        recipe = replace(recipe, query_size=30)
    if family in ("cifar-fs", "fc100") and algorithm == "metasgd":
        recipe = replace(recipe, inner_steps=5, iterations=10_000)
    return recipe


def _find_normal_share(learner: str) -> float:
    """Half and half for a learner's class-balanced form; what has none, and every `oc-` form, is one-class."""
    if learner in LEARNERS and learner not in BALANCED:
        raise FewoneError(
            f"nothing says whether {learner} has a class-balanced form; add it to BALANCED in experiments/defaults.py,"
            f" or to OWN with a recipe of its own"
        )
    return 0.5 if learner in BALANCED else 1.0


def _find_family(dataset: str) -> str:
    try:
        return split_name(dataset)[0]
    except FewoneError:
        # The experiment itself says what is wrong with the name.
        return "folder"


def choose_learner(dataset: str) -> str:
    """The learner for a kind of data where none is named: what the files of a folder are, decides."""
    try:
        family, place = split_name(dataset)
    except FewoneError:
        return DEFAULT_LEARNER
    if family != "folder":
        return DEFAULT_LEARNER
    files = (file for file in sorted(Path(place).glob("*/normal/*")) if not file.name.startswith("."))
    first = next(files, None)
    if first is None:
        archive = next(iter(sorted(Path(place).glob("*.npz"))), None)
        return DEFAULT_LEARNER if archive is None or _holds_pictures(archive) else FOLDER_SERIES_LEARNER
    return FOLDER_SERIES_LEARNER if is_recording(first) else DEFAULT_LEARNER


def _holds_pictures(archive: Path) -> bool:
    """Whether TASK.npz holds pictures; what is wrong with it is told when it is read."""
    try:
        return any(array.ndim == 4 for array in read_archive(archive).values())
    except FewoneError:
        return False


def default_experiment(
    dataset: str = "sts-sawtooth", learner: str | None = None, k: int = 10, seed: int = 0
) -> Experiment:
    """The paper's experiment with this dataset, learner and K; for the library's own learners, their own recipe.

    learner: None chooses by the kind of the data.
    """
    learner = choose_learner(dataset) if learner is None else learner
    algorithm = find_algorithm(learner)
    if algorithm in OWN:
        own = find_own_recipe(algorithm, _find_family(dataset))
        return Experiment(dataset, learner, k, seed, 1.0, 1.0, DataSettings(), own.network, own.learning, own.training)
    recipe = find_recipe(dataset, algorithm)
    # Reptile takes all its steps on batches of one size.
    query_size = max(2, k + k % 2) if algorithm == "reptile" else recipe.query_size
    by_classes = learner.startswith("fb") and _find_family(dataset) in CLASS_FAMILIES
    return Experiment(
        dataset=dataset,
        learner=learner,
        k=k,
        seed=seed,
        normal_share=_find_normal_share(learner),
        test_normal_share=1.0,
        data=DataSettings(),
        network=NetworkSettings(filters=recipe.filters, kernel=recipe.kernel, norm=recipe.norm),
        learning=LearnerSettings(
            inner_rate=recipe.inner_rate,
            inner_steps=recipe.inner_steps,
            batch="classes" if by_classes else "episodes",
        ),
        training=TrainingSettings(
            iterations=recipe.iterations,
            query_size=query_size,
            meta_batch=recipe.meta_batch,
            validation_queries=VALIDATION_QUERIES,
            # Whatever is put on a trunk later must not choose its weights.
            select="last" if learner.startswith(("fb", "mtl")) else "loss",
        ),
    )
