"""Inputs -> features. Enters: a batch of prepared inputs. Leaves: features, and the statistics that normalised them.

Knows no task, no label, no learner.
"""

from fewone.networks.conv import ConvEmbedding
from fewone.networks.embedding import Backbone, Classifier, Embedding, as_classifier, as_embedding
from fewone.networks.norms import RunningNorm, Statistics
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
