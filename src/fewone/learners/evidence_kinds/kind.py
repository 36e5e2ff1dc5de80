"""What a kind of evidence is: how far a query lies from each normal, in one view of the inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

Features = tuple[Tensor, ...]
"""What a view sees of examples: tensors (T, n, ...) that its kinds of evidence compare."""


class View(nn.Module, ABC):
    """One look at the inputs, shared by all kinds of evidence that compare what it sees."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> Features:
        """inputs (N, *shape) -> features, (N, ...) each; what it says of an input depends on that input alone."""


@dataclass(frozen=True)
class EvidenceKind:
    """How strange a query looks in one respect.

    words: what differs, for people. view: a name of VIEWS. compare: features of queries (T, n, ...) and of normals
    (T, K, ...) -> squared distances (T, n, K, parts) of each part of a query to each normal, 0 or more. worst: the most
    distant part counts (share: the mean of this share of the parts), else the mean over all. floor: joins the squared
    distance, so that two equal normals do not make all else infinitely far. grid: how the parts lie in a picture,
    (rows, columns), where they do.
    """

    words: str
    view: str
    compare: Callable[[Features, Features], Tensor]
    worst: bool = False
    share: float = 0.0
    floor: float = 1e-4
    grid: tuple[int, int] | None = None

    def reduce(self, nearest: Tensor) -> Tensor:
        """Squared distances to the nearest normals (..., parts) -> the one that counts (...)."""
        if not self.worst:
            return nearest.mean(-1)
        count = int(self.share * nearest.shape[-1])
        return nearest.amax(-1) if count < 2 else nearest.topk(count, -1).values.mean(-1)
