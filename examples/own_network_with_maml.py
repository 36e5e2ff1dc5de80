"""Your network, your arrays: OC-MAML from a history of machines, then a detector for a new one from ten normals.

python examples/own_network_with_maml.py --steps 1000
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import fewone
from fewone.learners import Maml

Array = NDArray[np.float64]


def record_machine(number: int) -> tuple[str, Array, Array]:
    """The name of a machine, its normal recordings and its anomalous ones, (n, 1 channel, 64 samples) each."""
    random = np.random.default_rng(number)
    wave = random.uniform(1, 9) + np.sin(np.arange(64) / random.uniform(2, 6) + random.uniform(0, 6))
    normal, anomalous = (wave + 0.1 * random.normal(size=(60, 1, 64)) for _ in range(2))
    anomalous[..., 20:30] += 1.5  # a bump that no normal recording has
    return f"machine {number}", normal, anomalous


def make_network() -> nn.Module:
    """Any module that gives features (n, d) or one logit (n,)."""
    return nn.Sequential(
        *(nn.Conv1d(1, 16, 5, 2), nn.ReLU(), nn.Conv1d(16, 16, 5, 2), nn.ReLU()), nn.Flatten(), nn.Linear(16 * 13, 32)
    )


def main(steps: int = 1000, machines: int = 40) -> float:
    """Balanced accuracy on a machine that no training has seen."""
    torch.manual_seed(0)
    tasks = [fewone.Task.from_arrays(*record_machine(number)) for number in range(machines)]
    training, held_out = tasks[:-12], tasks[-12:]

    learner = Maml(make_network(), inner_rate=0.05, inner_steps=5)
    sampler = fewone.EpisodeSampler(support_size=10, query_size=50, standardize=True)
    optimizer = torch.optim.Adam(learner.parameters(), 1e-3)
    for episodes in sampler.stream(training, meta_batch=8, steps=steps, seed=0):
        optimizer.zero_grad()
        learner.accumulate_gradient(episodes)
        optimizer.step()

    calibration = fewone.calibrate(learner, held_out, sampler)
    detector = fewone.FewShotDetector(learner, scaling=sampler.scaling, calibration=calibration)
    _, normal, anomalous = record_machine(1000)
    with tempfile.TemporaryDirectory() as folder:
        detector.fit(normal[:10]).save(folder)
        same = fewone.load(folder, learner=Maml(make_network(), inner_rate=0.05, inner_steps=5))
    right = [(same.predict(normal[10:]) == 1).mean(), (same.predict(anomalous) == -1).mean()]
    print(f"a new machine, ten normals: {right[0]:.0%} of normals and {right[1]:.0%} of anomalies are told")
    return float(np.mean(right))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    main(parser.parse_args().steps)
