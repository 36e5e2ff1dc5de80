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
    (T, K, ...) -> squared distances (T, n, K, parts) of each part of a query to each normal, 0 or more. in_units: takes
    the place of compare where given; it is told which normals are allowed, (T, n or 1, K) 0 or 1, and measures in units
    of how those vary. worst: the most distant part counts (share: the mean of this share of the parts), else the mean
    over all. floor: joins the squared distance, so that two equal normals do not make all else infinitely far. grid:
    how the parts lie in a picture, (rows, columns), where they do.
    """

    words: str
    view: str
    compare: Callable[[Features, Features], Tensor]
    worst: bool = False
    share: float = 0.0
    floor: float = 1e-4
    grid: tuple[int, int] | None = None
    in_units: Callable[[Features, Features, Tensor], Tensor] | None = None

    def square(self, queries: Features, normals: Features, allowed: Tensor) -> Tensor:
        """Squared distances (T, n, K, parts); what is not allowed (T, n or 1, K) is no unit of them."""
        if self.in_units is not None:
            return self.in_units(queries, normals, allowed)
        return self.compare(queries, normals)

    def reduce(self, nearest: Tensor) -> Tensor:
        """Squared distances to the nearest normals (..., parts) -> the one that counts (...)."""
        if not self.worst:
            return nearest.mean(-1)
        count = int(self.share * nearest.shape[-1])
        return nearest.amax(-1) if count < 2 else nearest.topk(count, -1).values.mean(-1)
