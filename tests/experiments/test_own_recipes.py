"""Every recipe of the library's own learners builds, for the shapes it is meant for."""

from __future__ import annotations

import pytest

from fewone.datasets import DATASETS
from fewone.experiments.defaults import default_experiment
from fewone.experiments.own_recipes import OWN, RECIPES, find_own_recipe
from fewone.learners import LEARNERS


@pytest.mark.parametrize("family", [name for name, dataset in DATASETS.items() if dataset.shape is not None])
@pytest.mark.parametrize("algorithm", OWN)
def test_every_dataset_has_a_recipe_that_builds(algorithm: str, family: str) -> None:
    shape = DATASETS[family].shape
    assert shape is not None
    if algorithm == "contrast" and len(shape) == 3:
        pytest.skip("contrast is for series")
    recipe = find_own_recipe(algorithm, family)
    learner = LEARNERS[algorithm](recipe.learning, recipe.network, shape)
    assert learner.every_k
    assert learner.batch == ("classes" if len(shape) == 3 else "episodes")


@pytest.mark.parametrize("shape", [(2, 64), (3, 32, 32)])
def test_the_recipe_for_a_users_folder_takes_series_and_images(shape: tuple[int, ...]) -> None:
    for algorithm in OWN:
        recipe = find_own_recipe(algorithm, "folder")
        LEARNERS[algorithm](recipe.learning, recipe.network, shape)


def test_the_default_experiment_of_an_own_learner_is_its_recipe() -> None:
    experiment = default_experiment("mt-mnist/3", "plda", 2)
    recipe = RECIPES[("plda", "mt-mnist")]
    assert (experiment.network, experiment.learning, experiment.training) == (
        recipe.network,
        recipe.learning,
        recipe.training,
    )
    assert experiment.normal_share == 1.0
