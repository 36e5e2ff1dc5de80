"""How the paper and its authors trained on a dataset; documented choices where they are silent.

Nothing here was chosen on test tasks. Names of learners occur as words only: this package knows none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Recipe:
    """Network, inner loop and outer loop for one dataset.

    changes: what the authors did otherwise with some algorithms, by name. rates, steps: the paper's grids of inner
    rates and steps, for `fewone tune`.
    """

    filters: tuple[int, ...]
    kernel: int
    norm: Literal["none", "support", "running"]
    inner_rate: float
    inner_steps: int
    query_size: int
    iterations: int
    meta_batch: int = 8
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rates: tuple[float, ...] = (0.1, 0.01, 0.001)
    steps: tuple[int, ...] = (1, 3, 5)

    def for_algorithm(self, name: str) -> Recipe:
        """With what the authors changed for this algorithm."""
        return replace(self, **self.changes.get(name, {}))


_FIRST_ORDER = ("fomaml", "foanil", "reptile")

SERIES = Recipe(
    (32,) * 3,
    5,
    "none",
    0.01,
    10,
    50,
    10_000,
    changes={name: {"norm": "support", "inner_rate": 0.001 if name == "reptile" else 0.01} for name in _FIRST_ORDER},
    steps=(1, 3, 5, 10),
)
FOLDER = replace(SERIES, changes={}, steps=(1, 3, 5))
"""Whatever a user brings, series or images."""
DIGITS = Recipe((32,) * 4, 3, "support", 0.01, 5, 100, 10_000, rates=(0.1, 0.05, 0.01))
OMNIGLOT = Recipe(
    (64,) * 4,
    3,
    "support",
    0.05,
    5,
    20,
    20_000,
    changes={name: {"inner_rate": 0.01} for name in _FIRST_ORDER},
    rates=(0.1, 0.05, 0.01),
)
MINI_IMAGENET = Recipe((32,) * 4, 3, "support", 0.01, 5, 60, 20_000, changes={"fomaml": {"query_size": 30}})
CIFAR_FS = Recipe(
    (32,) * 4, 3, "support", 0.01, 10, 30, 20_000, changes={"metasgd": {"inner_steps": 5, "iterations": 10_000}}
)
FC100 = replace(CIFAR_FS, iterations=10_000)
CNC = Recipe((32, 32, 64, 64), 5, "none", 0.0001, 5, 16, 10_000, meta_batch=16)
