"""A learner of your own in one file: the distance to the nearest normal in a learned space, and what of it is too far.

python examples/own_learner.py --steps 300
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import fewone
from fewone.episodes import NORMAL, ClassBatch, Episodes, Examples
from fewone.learners import MetaLearner, Scorer, query_loss, snapshot


class NearestScorer(Scorer):
    """logit = scale * (distance to the nearest normal) - threshold, for T tasks."""

    def __init__(self, learner: Nearest, normals: Tensor) -> None:
        super().__init__()
        self.learner = snapshot(learner)  # the learner may train on; a scorer stays
        self.register_buffer("normals", normals)
        self.normals: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        return self.learner.score(self.learner.module(inputs), self.normals)


class Nearest(MetaLearner):
    """Both methods below, and nothing else, are what a learner is."""

    every_k = True  # one trained learner serves supports of every size

    def __init__(self, module: nn.Module, *, softness: float = 1.0) -> None:
        super().__init__()
        self.module, self.softness = module, softness
        self.log_scale, self.threshold = nn.Parameter(torch.zeros(())), nn.Parameter(torch.ones(()))
        self.note(softness=softness)  # no tensor shows it: `fewone.load` compares it

    def score(self, queries: Tensor, normals: Tensor) -> Tensor:
        """queries (T, n, d), normals (T, K, d) -> logits (T, n)."""
        nearest = -self.softness * torch.logsumexp(-torch.cdist(queries, normals) / self.softness, dim=-1)
        return self.log_scale.exp() * nearest - self.threshold

    def embed_normals(self, support: Examples) -> Tensor:
        """The features of the normals; other examples are put out of reach."""
        far = 1e6 * (support.labels != NORMAL).unsqueeze(-1)
        features: Tensor = self.module(support.inputs)
        return features + far

    @torch.no_grad()
    def adapt(self, support: Examples) -> NearestScorer:
        return NearestScorer(self, self.embed_normals(support))

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        episodes = self.expect_episodes(batch)
        logits = self.score(self.module(episodes.query.inputs), self.embed_normals(episodes.support))
        loss = query_loss(logits, episodes.query)
        torch.autograd.backward(loss)
        return loss.detach()


def make_task(number: int) -> fewone.Task:
    """Normals vary along two directions of eight, anomalies along all: which two is the same in all tasks."""
    random = np.random.default_rng(number)
    spread = np.array([3.0, 3.0, *[0.3] * 6])
    middle = 5 * random.normal(size=8)
    return fewone.Task.from_arrays(
        f"task {number}", middle + spread * random.normal(size=(40, 8)), middle + 3 * random.normal(size=(20, 8))
    )


def main(steps: int = 300) -> float:
    """Balanced accuracy on a task never seen, from five normals."""
    torch.manual_seed(0)
    tasks, new = [make_task(number) for number in range(30)], make_task(1000)
    sampler = fewone.EpisodeSampler(support_size=5, query_size=20)
    settings = fewone.TrainingSettings(iterations=steps, outer_rate=0.01, validate_every=max(1, steps // 5))
    with tempfile.TemporaryDirectory() as folder:
        fewone.meta_train(Nearest(nn.Linear(8, 8)), tasks[:20], tasks[20:], sampler, settings, Path(folder))
        detector = fewone.load(folder, learner=Nearest(nn.Linear(8, 8)))
    normal, anomalous = (pool.store.values[pool.rows()].numpy() for pool in (new.normal, new.anomalous))
    detector.fit(normal[:5])
    right = [(detector.predict(normal[5:]) == 1).mean(), (detector.predict(anomalous) == -1).mean()]
    print(f"a new task, five normals: {right[0]:.0%} of normals and {right[1]:.0%} of anomalies are told")
    return float(np.mean(right))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
