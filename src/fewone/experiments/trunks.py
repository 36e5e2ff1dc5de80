"""FB and MTL learn a trunk. What is put on it (a new head, an OC-SVM, a forest), K and c leave the trunk as it is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from fewone.algorithms import find_algorithm
from fewone.baselines.embedded import EmbeddedShallow
from fewone.experiment import Experiment, with_learner
from fewone.learners import MetaLearner

TRUNK = "trunk"
"""The folder, inside a run's, of the training of its trunk."""
TRUNK_K = 10
"""The support beside which a trunk's batches are drawn: it sees plain examples, whatever K it is evaluated at."""


def find_trunk(experiment: Experiment) -> Experiment | None:
    """The training that fb, mtl and all that stands on them share; None for every other learner.

    >>> from fewone.experiments import default_experiment
    >>> one, other = default_experiment("mt-mnist/0", "fb+oc-svm", 2), default_experiment("mt-mnist/0", "fb", 10)
    >>> find_trunk(one) == find_trunk(other)
    True
    """
    name = find_algorithm(experiment.algorithm).trunk
    if not name:
        return None
    return replace(with_learner(experiment, name), k=TRUNK_K, test_normal_share=1.0, further_k=())


def place_trunk(trunk: Experiment, folder: Path, shared: Path | None) -> Path:
    """Where a run's trunk is trained: inside its folder, or among those that runs share."""
    return folder / TRUNK if shared is None else shared / trunk.identify()


def keep_trunk(place: Path, folder: Path) -> None:
    """A copy of a shared trunk's training in the run's own folder, so that the run stands alone."""
    own = folder / TRUNK
    if place != own and not own.exists():
        aside = folder / f"{TRUNK}.part"
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(place, aside)
        aside.rename(own)


def adopt_trunk(learner: MetaLearner, trained: MetaLearner) -> None:
    """Put the trained trunk's weights under the learner."""
    target = learner.trunk if isinstance(learner, EmbeddedShallow) else learner
    target.load_state_dict(trained.state_dict())


def find_training(folder: Path) -> Path:
    """Where the training of a run's folder is kept: in itself, or in its trunk's folder."""
    return folder / TRUNK if (folder / TRUNK).exists() else folder
