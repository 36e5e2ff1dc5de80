"""The three pictures of docs/what-can-go-wrong.md: evidence of one window, the fault report, drift over time.

`python benchmarks/what_can_go_wrong.py [--folder docs/images]`: made-up series, the learner `evidence` as it is before
training and, for faults and drift, the zoo's model of series.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fewone import FewShotDetector, load
from fewone.checkpoints import ModelSpec, build_learner
from fewone.episodes import InputScaling
from fewone.learners import EvidenceSettings
from fewone.networks import NetworkSettings

Values = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    normals = make_waves(random, 10)
    window = make_waves(random, 1) + 1.2
    window[0, 70:78] += 2.0
    (why,) = make_evidence().fit(normals).why(window)
    print(why)
    why.plot().savefig(folder / "why.png", dpi=80)
    detector = load("series").fit(normals)
    report = detector.check_faults()
    print(report)
    report.plot().savefig(folder / "faults.png", dpi=80)
    recent = make_waves(random, 80)
    recent[30:] += np.linspace(0.0, 0.8, 50)[:, None] * random.normal(size=(50, 128))
    found = detector.drift(recent)
    print(found)
    found.plot().savefig(folder / "drift.png", dpi=80)


def make_waves(random: np.random.Generator, count: int) -> Values:
    """(count, 128): a wave at any phase, with noise."""
    phases = random.uniform(0, 2 * np.pi, (count, 1))
    waves: Values = np.sin(np.arange(128) / 4 + phases) + 0.1 * random.normal(size=(count, 128))
    return waves


def make_evidence() -> FewShotDetector:
    card = ModelSpec(
        "evidence",
        EvidenceSettings(),
        NetworkSettings(),
        (1, 128),
        InputScaling(),
        support_size=10,
        seed=0,
        dataset="none",
        fingerprint="",
        experiment=None,
    )
    return FewShotDetector(build_learner(card).eval(), card=card)


if __name__ == "__main__":
    main()
