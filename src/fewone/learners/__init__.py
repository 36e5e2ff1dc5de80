"""Support set -> Scorer. Enters: a labelled support. Leaves: a scorer. One algorithm, one file.

Never asks how the support was drawn; reads one-class-ness off the labels.
"""

from __future__ import annotations

from collections.abc import Callable

from fewone.learners.meta_learner import MetaLearner, Scorer, query_loss
from fewone.learners.settings import LearnerSettings
from fewone.networks import NetworkSettings

Builder = Callable[[LearnerSettings, NetworkSettings, tuple[int, ...]], MetaLearner]

LEARNERS: dict[str, Builder] = {}

__all__ = ["LEARNERS", "Builder", "LearnerSettings", "MetaLearner", "Scorer", "query_loss"]
