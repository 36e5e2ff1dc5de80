"""What every network is: inputs -> features and the statistics that normalised them; with a head, a classifier."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

Statistics = tuple[Tensor, ...]
"""Mean and variance of each normalisation of a network, in the order of the forward pass: (channels,) each."""


class Embedding(nn.Module):
    """inputs (n, *shape) -> features (n, width). Abstract; concrete networks are final.

    takes_statistics: features depend on statistics that one batch hands to another.
    """

    width: int
    takes_statistics: bool = True

    @abstractmethod
    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        """Features, and the statistics that normalised them: the given ones, or those of this very batch."""


class Classifier(nn.Module):
    """An embedding and a linear head (or another one, to one logit): inputs (n, *shape) -> anomaly logits (n,)."""

    def __init__(self, embedding: Embedding, head: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding = embedding
        self.head = _linear(embedding.width) if head is None else head

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        features, statistics = self.embedding(inputs, statistics)
        return self.head(features).squeeze(-1), statistics


def _linear(width: int) -> nn.Linear:
    head = nn.Linear(width, 1)
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)
    return head
