"""One-way prototypical networks on pictures in folders: FOLDER/PRODUCT/good/*.png and FOLDER/PRODUCT/bad/*.png.

python examples/protonets_on_pictures.py --steps 300 [--folder FOLDER]   (without one, pictures are made on the spot)
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import fewone
from fewone.learners import ProtoNet

Bytes = NDArray[np.uint8]


def make_pictures(folder: Path, products: int, each: int = 16) -> None:
    """Striped tiles of 32 x 32 in the colours of each product; a bad one has a scratch."""
    for number in range(products):
        random = np.random.default_rng(number)
        colours, period = random.integers(60, 200, size=(2, 3)), random.integers(3, 9)
        stripes = (np.arange(32) // period % 2)[:, None, None]
        for kind in ("good", "bad"):
            place = folder / f"product {number}" / kind
            place.mkdir(parents=True)
            for picture in range(each):
                values = np.where(stripes, *colours) + random.normal(scale=8.0, size=(32, 32, 3))
                if kind == "bad":
                    row, column = random.integers(2, 20, size=2)
                    values[row : row + 10, column : column + 3] = 250
                Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(place / f"{picture:03}.png")


def read_pictures(folder: Path) -> Bytes:
    """All pictures of a folder, (n, 3, height, width): bytes, channels first."""
    pictures = [np.asarray(Image.open(file).convert("RGB")) for file in sorted(folder.glob("*.png"))]
    return np.stack(pictures).transpose(0, 3, 1, 2)


def make_network() -> nn.Module:
    """Batch norm is welcome here: it works in meta-training and is fixed when scoring."""
    widths = (3, 16, 32, 32)
    blocks = [
        nn.Sequential(nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU())
        for before, after in pairwise(widths)
    ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(32 * 16, 32))


def train(folder: Path, steps: int) -> float:
    """AUROC on the last product, which no training has seen, from five good pictures of it."""
    torch.manual_seed(0)
    *known, new = sorted(folder.iterdir())
    tasks = [
        fewone.Task.from_arrays(one.name, read_pictures(one / "good"), read_pictures(one / "bad")) for one in known
    ]
    sampler = fewone.EpisodeSampler(support_size=5, query_size=10, standardize=True)
    learner = ProtoNet(make_network())
    settings = fewone.TrainingSettings(iterations=steps, validate_every=max(1, steps // 5), validation_episodes=20)
    with tempfile.TemporaryDirectory() as run:
        detector = fewone.meta_train(learner, tasks[:-10], tasks[-10:], sampler, settings, run)
    good, bad = read_pictures(new / "good"), read_pictures(new / "bad")
    detector.fit(good[:5])
    normal, anomalous = detector.score_samples(good[5:]), detector.score_samples(bad)
    auroc = float((normal[:, None] > anomalous).mean())
    print(f"{new.name}, never seen in training, five good pictures: AUROC {auroc:.2f}")
    return auroc


def main(steps: int = 300, folder: Path | None = None, products: int = 31) -> float:
    if folder is not None:
        return train(folder, steps)
    with tempfile.TemporaryDirectory() as made:
        make_pictures(Path(made), products)
        return train(Path(made), steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    main(chosen.steps, chosen.folder)
