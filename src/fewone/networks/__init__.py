"""Inputs -> features. Enters: a batch of prepared inputs. Leaves: features, and the statistics that normalised them.

Knows no task, no label, no learner.
"""

from fewone.networks.backbone import Backbone, as_classifier, as_embedding
from fewone.networks.conv import ConvEmbedding
from fewone.networks.embedding import Classifier, Embedding, Statistics
from fewone.networks.norms import RunningNorm
from fewone.networks.settings import NETWORKS, IdentityEmbedding, NetworkSettings, build_embedding

__all__ = [
    "NETWORKS",
    "Backbone",
    "Classifier",
    "ConvEmbedding",
    "Embedding",
    "IdentityEmbedding",
    "NetworkSettings",
    "RunningNorm",
    "Statistics",
    "as_classifier",
    "as_embedding",
    "build_embedding",
]
