"""How often `report()` names an innocent normal odd: python benchmarks/odd_normals.py [--supports 200],
one table each.

Supports of one kind each, made here, with no anomaly among them: sines of one frequency at random phases, machine
cycles of one hump, white noise, random walks, 128 steps. The share of supports in which any normal is named. The
supports by which the rule was chosen (`--first 0`) are others than those of the page.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load_detector
from pages import make_parser, present

LENGTH = 128
SIZES = (5, 10, 20)
MODELS = ("series", "periodic")
Make = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""A support (K, length)."""


def make_sines(random: np.random.Generator, k: int) -> NDArray[np.float64]:
    periods, phases = random.uniform(1.5, 6.0), random.uniform(0.0, 1.0, (k, 1))
    clean: NDArray[np.float64] = np.sin(2.0 * np.pi * (periods * np.arange(LENGTH) / LENGTH + phases))
    return clean + random.normal(0.0, 0.1, (k, LENGTH))


def make_humps(random: np.random.Generator, k: int) -> NDArray[np.float64]:
    centres, width = LENGTH / 2 + random.normal(0.0, 3.0, (k, 1)), random.uniform(8.0, 16.0)
    heights = random.normal(1.0, 0.05, (k, 1))
    clean: NDArray[np.float64] = heights * np.exp(-0.5 * ((np.arange(LENGTH) - centres) / width) ** 2)
    return clean + random.normal(0.0, 0.03, (k, LENGTH))


def make_noise(random: np.random.Generator, k: int) -> NDArray[np.float64]:
    return random.normal(size=(k, LENGTH))


def make_walks(random: np.random.Generator, k: int) -> NDArray[np.float64]:
    return random.normal(size=(k, LENGTH)).cumsum(axis=1)


KINDS: dict[str, Make] = {
    "sines at random phases": make_sines,
    "one hump": make_humps,
    "white noise": make_noise,
    "random walks": make_walks,
}


def find_share(detector: FewShotDetector, make: Make, k: int, supports: int, first: int) -> float:
    """Of supports in which a normal is named odd."""
    seeds = range(first, first + supports)
    named = [bool(detector.fit(make(np.random.default_rng([k, seed]), k)).report().odd) for seed in seeds]
    return float(np.mean(named))


def tabulate(model: str, supports: int, first: int) -> Table:
    detector = load_detector(model)
    columns = [f"K={k}" for k in SIZES]
    table = Table("normals", *columns, title=f"{model}: supports of {supports} with a normal named odd")
    for name, make in KINDS.items():
        shares = [find_share(detector, make, k, supports, first) for k in SIZES]
        table.add_row(name, *[f"{100 * share:.1f} %" for share in shares])
    return table


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--supports", type=int, default=200)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    tables = [tabulate(model, chosen.supports, chosen.first) for model in MODELS]
    present(tables, chosen.markdown, "Normals named odd", "odd_normals.py", __doc__)


if __name__ == "__main__":
    main()
