"""What a learner takes from training batches without a gradient: scales."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from fewone.episodes import ClassBatch, Episodes
from fewone.learners import MetaLearner


@runtime_checkable
class Observing(Protocol):
    """A learner that takes scales from training batches."""

    def observe(self, batch: Episodes | ClassBatch) -> None: ...


def observe_batches(learner: MetaLearner, batches: Iterable[Episodes | ClassBatch]) -> None:
    """Show training batches to a learner that takes its scales from them; others are left as they are."""
    if isinstance(learner, Observing):
        for batch in batches:
            learner.observe(batch)
