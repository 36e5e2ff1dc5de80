"""What a worker can ask of the others, and the answer of a process that works alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from fewone.errors import FewoneError

Work = Callable[[int], Tensor]


class WorkerLostError(FewoneError):
    """Another worker ended or fell silent, so this one cannot go on."""


class Exchange(Protocol):
    """rank: which worker this is, from 0; size: how many there are. All make the same calls in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def share_out(self, count: int, work: Work) -> list[Tensor]:
        """Results of work(0) to work(count - 1), flat tensors of any lengths and one dtype; each is computed once."""
        ...

    def from_first(self, payload: bytes) -> bytes:
        """What the first worker holds; the others' own payload is ignored."""
        ...

    def total(self, number: float) -> float:
        """The sum of a number over the workers."""
        ...


class Alone:
    """One process: everything is its own.

    Examples
    --------
    >>> import torch
    >>> from fewone.workers import ALONE
    >>> ALONE.share_out(2, lambda number: torch.full((2,), float(number)))
    [tensor([0., 0.]), tensor([1., 1.])]
    """

    rank = 0
    size = 1

    def share_out(self, count: int, work: Work) -> list[Tensor]:
        return [work(number) for number in range(count)]

    def from_first(self, payload: bytes) -> bytes:
        return payload

    def total(self, number: float) -> float:
        return number


ALONE = Alone()
