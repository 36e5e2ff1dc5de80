"""Support set -> Scorer. Enters: a labelled support. Leaves: a scorer. One algorithm, one file.

Never asks how the support was drawn; reads one-class-ness off the labels.
"""

from __future__ import annotations

from collections.abc import Callable

from fewone.learners.anil import Anil, build_anil, build_foanil
from fewone.learners.contrast import Contrast, build_contrast
from fewone.learners.evidence import Evidence, build_evidence
from fewone.learners.maml import Maml, build_fomaml, build_maml
from fewone.learners.meta_learner import MetaLearner, Scorer, query_loss, snapshot
from fewone.learners.meta_sgd import MetaSgd, build_meta_sgd
from fewone.learners.metaoptnet import MetaOptNet, build_metaoptnet
from fewone.learners.plda import Plda, build_plda
from fewone.learners.protonet import ProtoNet, build_protonet
from fewone.learners.reptile import Reptile, build_reptile
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
    "evidence": build_evidence,
}

__all__ = [
    "LEARNERS",
    "Anil",
    "Builder",
    "Contrast",
    "Evidence",
    "LearnerSettings",
    "Maml",
    "MetaLearner",
    "MetaOptNet",
    "MetaSgd",
    "Plda",
    "ProtoNet",
    "Reptile",
    "Scorer",
    "query_loss",
    "snapshot",
]
