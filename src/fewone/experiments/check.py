"""Names of an experiment that must exist here and now: dataset, learner, network."""

from __future__ import annotations

from fewone.algorithms import find_algorithm
from fewone.datasets import split_name
from fewone.documents import DocumentError, nearest
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.networks.settings import NETWORKS


def check_names(dataset: str, learner: str, algorithm: str) -> None:
    """Refuse a dataset or a learner that nobody registered."""
    try:
        split_name(dataset)
    except FewoneError as error:
        raise DocumentError(("dataset",), str(error)) from error
    try:
        find_algorithm(algorithm)
    except FewoneError as error:
        raise DocumentError(("learner",), str(error)) from error


def check(experiment: Experiment) -> Experiment:
    """The experiment itself, if it can be run; a name that does not exist is an error that names the nearest."""
    check_names(experiment.dataset, experiment.learner, experiment.algorithm)
    network = experiment.network.architecture
    if network not in NETWORKS:
        raise DocumentError(
            ("network", "architecture"), f"no network is called {network!r}; {nearest(network, [*NETWORKS])}"
        )
    settings = find_algorithm(experiment.algorithm).settings
    if not isinstance(experiment.learning, settings):
        raise DocumentError(
            ("learning",),
            f"{settings.__name__} are needed by {experiment.learner}, got {type(experiment.learning).__name__}",
        )
    return experiment
