"""OC-MAML on STS-Sawtooth with ten normals, as in the paper's Table 1, with the paper's number beside ours.

python examples/oc_maml_on_the_papers_series.py --steps 2000 --folder runs/sawtooth   (the same again goes on)
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import fewone
from fewone.datasets import load
from fewone.evaluation.protocol import evaluate
from fewone.experiments.defaults import default_experiment
from fewone.learners import Maml
from fewone.networks import build_embedding
from fewone.reporting.published import read_published
from fewone.training import Progress

K = 10


def show(progress: Progress) -> None:
    if progress.validation is not None:
        print(f"iteration {progress.iteration}: validation accuracy {progress.validation.accuracy:.1%}")


def find_published() -> float:
    """The paper's accuracy of OC-MAML on this data, in per cent."""
    return next(
        number.value
        for number in read_published()
        if (number.table, number.model, number.dataset, number.k) == ("main", "OC-MAML", "sts-sawtooth", K)
    )


def main(steps: int = 2000, folder: Path = Path("runs/sawtooth"), queries: int = 50) -> tuple[float, float]:
    """Our accuracy on the five test tasks and the paper's, both in per cent."""
    torch.manual_seed(0)
    data, recipe = load("sts-sawtooth"), default_experiment("sts-sawtooth", "oc-maml", K)
    learner = Maml(build_embedding(recipe.network, data.shape), inner_rate=0.01, inner_steps=5)
    sampler = fewone.EpisodeSampler(support_size=K, query_size=queries, standardize=True)
    settings = fewone.TrainingSettings(
        iterations=steps, outer_rate=recipe.training.outer_rate, validate_every=max(1, min(100, steps // 2))
    )
    fewone.meta_train(learner, data.train, data.validation, sampler, settings, folder, watch=show, calibrated=False)
    found = evaluate(learner, data.test, data.plan, sampler, seed=0).examples.summarize()
    ours, paper = 100 * found.accuracy.mean, find_published()
    print(f"OC-MAML, K={K}, STS-Sawtooth: {ours:.1f} after {steps} steps; the paper, trained to its end: {paper:.1f}")
    return ours, paper


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=Path("runs/sawtooth"))
    chosen = parser.parse_args()
    main(chosen.steps, chosen.folder)
