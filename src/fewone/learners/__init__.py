"""Support set -> Scorer. Enters: a labelled support. Leaves: a scorer. One algorithm, one file.

Never asks how the support was drawn; reads one-class-ness off the labels.
"""

from __future__ import annotations

from typing import Any

from fewone.learners.algorithm import Algorithm, DataFacts, LearnerSettings, NoSettings
from fewone.learners.anil import Anil, AnilSettings, build_anil, build_foanil
from fewone.learners.evidence import Evidence, EvidenceSettings, build_evidence
from fewone.learners.maml import (
    Maml,
    MamlSettings,
    MetaSgd,
    MetaSgdSettings,
    build_fomaml,
    build_maml,
    build_meta_sgd,
)
from fewone.learners.meta_learner import MetaLearner, Scorer, query_loss, snapshot
from fewone.learners.metaoptnet import MetaOptNet, MetaOptNetSettings, build_metaoptnet
from fewone.learners.plda import Plda, PldaSettings, build_plda
from fewone.learners.protonet import ProtoNet, ProtoNetSettings, build_protonet
from fewone.learners.reptile import Reptile, ReptileSettings, build_reptile
from fewone.learners.support_distance import SupportDistance, SupportDistanceSettings, build_support_distance

LEARNERS: dict[str, Algorithm[Any]] = {
    "maml": Algorithm(MamlSettings, build_maml, balanced=True, gradient_based=True),
    "fomaml": Algorithm(MamlSettings, build_fomaml, balanced=True, gradient_based=True),
    "anil": Algorithm(AnilSettings, build_anil, balanced=True, gradient_based=True),
    "foanil": Algorithm(AnilSettings, build_foanil, balanced=True, gradient_based=True),
    "metasgd": Algorithm(MetaSgdSettings, build_meta_sgd, balanced=True, gradient_based=True),
    "reptile": Algorithm(ReptileSettings, build_reptile, balanced=True, gradient_based=True, query_like_support=True),
    "metaoptnet": Algorithm(MetaOptNetSettings, build_metaoptnet, balanced=True, running_norm=True),
    "protonet": Algorithm(ProtoNetSettings, build_protonet, balanced=True, running_norm=True),
    "plda": Algorithm(PldaSettings, build_plda, own=True),
    "support-distance": Algorithm(SupportDistanceSettings, build_support_distance, own=True),
    "evidence": Algorithm(EvidenceSettings, build_evidence, own=True),
}

__all__ = [
    "LEARNERS",
    "Algorithm",
    "Anil",
    "AnilSettings",
    "DataFacts",
    "Evidence",
    "EvidenceSettings",
    "LearnerSettings",
    "Maml",
    "MamlSettings",
    "MetaLearner",
    "MetaOptNet",
    "MetaOptNetSettings",
    "MetaSgd",
    "MetaSgdSettings",
    "NoSettings",
    "Plda",
    "PldaSettings",
    "ProtoNet",
    "ProtoNetSettings",
    "Reptile",
    "ReptileSettings",
    "Scorer",
    "SupportDistance",
    "SupportDistanceSettings",
    "query_loss",
    "snapshot",
]
