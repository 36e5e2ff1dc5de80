"""The settings of every learner, as they travel in an experiment. Each field says who reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LearnerSettings:
    """inner_rate, inner_steps: the gradient-based learners (maml, fomaml, reptile, anil, foanil, metasgd).

    learn_rates: one learned inner rate per tensor and step instead of a fixed one (maml, anil).
    nu, kernel, ridge: metaoptnet (ridge is added to the kernel's diagonal).
    """

    inner_rate: float = 0.01
    inner_steps: int = 5
    learn_rates: bool = False
    nu: float = 0.1
    kernel: Literal["linear", "rbf"] = "linear"
    ridge: float = 1.0
