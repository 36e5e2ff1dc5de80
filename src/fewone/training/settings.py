"""What a training tells while it runs, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from fewone.experiment import Select as Select
from fewone.experiment import TrainingSettings as TrainingSettings


@dataclass(frozen=True)
class Cost:
    """What a training has taken: time on the clock and time of the processors."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Validation:
    """What the validation tasks said at one iteration: mean query loss, balanced accuracy and AUROC.

    auroc: None in trainings that were kept before it was measured.
    """

    iteration: int
    loss: float
    accuracy: float
    cpu_seconds: float
    auroc: float | None = None


@dataclass(frozen=True)
class Progress:
    """One iteration is done. validation: if this iteration was evaluated. ended: why the run is over, or empty."""

    iteration: int
    loss: float
    gradient_norm: float
    outer_rate: float
    cpu_seconds: float
    validation: Validation | None = None
    ended: str = ""
