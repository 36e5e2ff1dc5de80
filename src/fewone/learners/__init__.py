"""Support set -> Scorer. Enters: a labelled support. Leaves: a scorer. One algorithm, one file.

Never asks how the support was drawn; reads one-class-ness off the labels.
"""

from __future__ import annotations

from collections.abc import Callable

from fewone.learners.anil import build_anil, build_foanil
from fewone.learners.contrast import build_contrast
from fewone.learners.maml import build_fomaml, build_maml
from fewone.learners.meta_learner import MetaLearner, Scorer, query_loss
from fewone.learners.meta_sgd import build_meta_sgd
from fewone.learners.metaoptnet import build_metaoptnet
from fewone.learners.plda import build_plda
from fewone.learners.protonet import build_protonet
from fewone.learners.reptile import build_reptile
from fewone.learners.settings import LearnerSettings
from fewone.networks import NetworkSettings

Builder = Callable[[LearnerSettings, NetworkSettings, tuple[int, ...]], MetaLearner]

LEARNERS: dict[str, Builder] = {
    "maml": build_maml,
    "fomaml": build_fomaml,
    "anil": build_anil,
    "foanil": build_foanil,
    "metasgd": build_meta_sgd,
    "reptile": build_reptile,
    "metaoptnet": build_metaoptnet,
    "protonet": build_protonet,
    "plda": build_plda,
    "contrast": build_contrast,
}

__all__ = ["LEARNERS", "Builder", "LearnerSettings", "MetaLearner", "Scorer", "query_loss"]
