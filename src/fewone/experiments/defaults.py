"""The experiment that a dataset and a learner call for: the paper's recipe, or the learner's own.

Recipes of the paper's learners stand with their dataset; those of the library's own learners in `own_recipes`.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from fewone.algorithms import find_algorithm, name_algorithm
from fewone.datasets import DATASETS, split_name
from fewone.datasets.example_files import read_archive
from fewone.errors import FewoneError
from fewone.experiment import DataSettings, Experiment, TrainingSettings
from fewone.experiments.check import check_names
from fewone.experiments.own_recipes import PICTURE_FOLDER, find_own_recipe
from fewone.networks import NetworkSettings
from fewone.networks.efficientnet_lite import is_installed
from fewone.old_names import rename_learner
from fewone.picture_files import PICTURES
from fewone.reading import is_recording

DEFAULT_LEARNER = "plda"
"""The library's own: ahead of the paper's learners on images, and one model serves every K."""

FOLDER_SERIES_LEARNER = "evidence"
"""For a user's own series, of which nothing is known: what it takes from other tasks knows no level and no unit of
theirs, where plda without a front end learns a dozen training machines by heart."""

VALIDATION_QUERIES = 50
"""Of every learner, however few queries it is trained with (Reptile: K)."""


def choose_learner(dataset: str) -> str:
    """The learner for a kind of data where none is named: what the files of a folder are, decides."""
    try:
        family, place = split_name(dataset)
    except FewoneError:
        return DEFAULT_LEARNER
    if family != "folder":
        return DEFAULT_LEARNER
    first = find_first_file(place)
    if first is None:
        archive = next(iter(sorted(Path(place).glob("*.npz"))), None)
        return DEFAULT_LEARNER if archive is None or _holds_pictures(archive) else FOLDER_SERIES_LEARNER
    return FOLDER_SERIES_LEARNER if is_recording(first) else DEFAULT_LEARNER


def find_first_file(place: str) -> Path | None:
    """The first example of a folder of tasks."""
    files = (file for file in sorted(Path(place).glob("*/normal/*")) if not file.name.startswith("."))
    return next(files, None)


def find_kind(dataset: str) -> str:
    """Which of the own learners' recipes a dataset calls for: its name, or that of a folder of pictures.

    Where the frozen network is not installed, pictures are those of one size that a small network is trained on.
    """
    family, place = split_name(dataset)
    first = find_first_file(place) if family == "folder" else None
    pictures = first is not None and first.suffix.lower() in PICTURES and is_installed()
    return PICTURE_FOLDER if pictures else family


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
    learner = choose_learner(dataset) if learner is None else rename_learner(learner)
    algorithm = name_algorithm(learner)
    check_names(dataset, learner, algorithm)
    entry, data = find_algorithm(algorithm), DATASETS[split_name(dataset)[0]]
    if entry.own:
        own = find_own_recipe(algorithm, find_kind(dataset))
        return Experiment(dataset, learner, k, seed, 1.0, 1.0, DataSettings(), own.network, own.learning, own.training)
    recipe = data.recipe.for_algorithm(algorithm)
    norm = "running" if entry.running_norm and recipe.norm == "support" else recipe.norm
    # Where another task's normals are anomalies, a softmax over the classes of all tasks can be learned.
    by_classes = data.exclusive_classes and "batch" in {field.name for field in fields(entry.settings)}
    return Experiment(
        dataset=dataset,
        learner=learner,
        k=k,
        seed=seed,
        normal_share=0.5 if entry.balanced and learner == algorithm else 1.0,
        test_normal_share=1.0,
        data=DataSettings(),
        network=NetworkSettings(filters=recipe.filters, kernel=recipe.kernel, norm=norm),
        learning=entry.choose(
            inner_rate=recipe.inner_rate,
            inner_steps=recipe.inner_steps,
            batch="classes" if by_classes else "episodes",
        ),
        training=TrainingSettings(
            iterations=recipe.iterations,
            # Reptile takes all its steps on batches of one size.
            query_size=max(2, k + k % 2) if entry.query_like_support else recipe.query_size,
            meta_batch=recipe.meta_batch,
            validation_queries=VALIDATION_QUERIES,
            # Whatever is put on a trunk later must not choose its weights.
            select="last" if entry.trunk else "loss",
        ),
    )
