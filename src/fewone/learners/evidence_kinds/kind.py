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
    distant part counts, else the mean over the parts. floor: joins the squared distance, so that two equal normals do
    not make all else infinitely far.
    """

    words: str
    view: str
    compare: Callable[[Features, Features], Tensor]
    worst: bool = False
    floor: float = 1e-4
