"""Every recipe of the library's own learners builds, for the shapes it is meant for."""

from __future__ import annotations

import pytest
import torch

from fewone.datasets import DATASETS
from fewone.episodes import Examples
from fewone.errors import FewoneError
from fewone.experiments.defaults import default_experiment
from fewone.experiments.own_recipes import RECIPES, find_own_recipe
from fewone.learners import LEARNERS


@pytest.mark.parametrize("family", [name for name, dataset in DATASETS.items() if dataset.shape is not None])
@pytest.mark.parametrize("algorithm", [name for name, entry in LEARNERS.items() if entry.own])
def test_every_dataset_has_a_recipe_that_builds(algorithm: str, family: str) -> None:
    shape = DATASETS[family].shape
    assert shape is not None
    if algorithm in ("support-distance", "evidence") and len(shape) == 3:
        with pytest.raises(FewoneError, match=f"no recipe says how to train {algorithm}"):
            find_own_recipe(algorithm, family)
        return
    recipe = find_own_recipe(algorithm, family)
    learner = LEARNERS[algorithm](recipe.learning, recipe.network, shape)
    assert learner.every_k
    assert learner.batch == ("classes" if len(shape) == 3 else "episodes")


@pytest.mark.parametrize("shape", [(2, 64), (3, 32, 32)])
def test_the_recipe_for_a_users_folder_takes_series_and_images(shape: tuple[int, ...]) -> None:
    recipe = find_own_recipe("plda", "folder")
    learner = LEARNERS["plda"](recipe.learning, recipe.network, shape).eval()
    scorer = learner.adapt(Examples.normals(torch.randn(1, 3, *shape)))
    assert scorer(torch.randn(1, 2, *shape)).isfinite().all()


def test_the_default_experiment_of_an_own_learner_is_its_recipe() -> None:
    experiment = default_experiment("mt-mnist/3", "plda", 2)
    recipe = RECIPES[("plda", "mt-mnist")]
    assert (experiment.network, experiment.learning, experiment.training) == (
        recipe.network,
        recipe.learning,
        recipe.training,
    )
    assert experiment.normal_share == 1.0
