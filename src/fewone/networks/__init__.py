"""Inputs -> features. Enters: a batch of prepared inputs. Leaves: features, and the statistics that normalised them.

Knows no task, no label, no learner.
"""

from fewone.networks.conv import ConvEmbedding, RunningNorm
from fewone.networks.settings import IdentityEmbedding, NetworkSettings, build_embedding
from fewone.networks.support_norm import Classifier, Embedding, Statistics

__all__ = [
    "Classifier",
    "ConvEmbedding",
    "Embedding",
    "IdentityEmbedding",
    "NetworkSettings",
    "RunningNorm",
    "Statistics",
    "build_embedding",
]
