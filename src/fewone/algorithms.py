"""A name -> an algorithm, learner or baseline. The one place where both tables are asked."""

from __future__ import annotations

from typing import Any

from fewone.baselines import BASELINES
from fewone.documents import nearest
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, Algorithm


def name_algorithm(learner: str) -> str:
    """ "oc-maml" -> "maml" (`oc-` speaks of the sampling), "oc-svm" -> "oc-svm" (a baseline).

    >>> name_algorithm("oc-maml"), name_algorithm("oc-svm")
    ('maml', 'oc-svm')
    """
    bare = learner.removeprefix("oc-")
    return bare if bare in LEARNERS else learner


def is_algorithm(name: str) -> bool:
    """Whether a learner or a baseline is called so."""
    return name in LEARNERS or name in BASELINES


def find_algorithm(name: str, where: str = "") -> Algorithm[Any]:
    """The entry of a learner or, failing that, of a baseline; an unknown name is an error that names the nearest."""
    found = LEARNERS.get(name) or BASELINES.get(name)
    if found is None:
        names = [*LEARNERS, *(f"oc-{learner}" for learner in LEARNERS), *BASELINES]
        raise FewoneError(f"{where}no learner is called {name!r}; {nearest(name, names)}")
    return found
