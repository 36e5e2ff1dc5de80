"""What one anomaly among the normals costs, and how often `detector.report()` names it.

`python benchmarks/contaminated_support.py MODEL [--dataset sts-sine] [--k 10] [--draws 5]`: on the validation tasks
of the dataset, the same draws with K normals and with K - 1 normals and one anomaly that is taken for normal.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from fewone import FewShotDetector
from fewone.datasets import load as load_dataset
from fewone.detector.loading import load_detector
from fewone.episodes import Task, generator_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a model of the zoo or a folder made by fewone train")
    parser.add_argument("--dataset", default="sts-sine")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--draws", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    detector = load_detector(chosen.model)
    tasks = load_dataset(chosen.dataset).validation
    rows = np.array([evaluate(detector, task, chosen.k, draw) for task in tasks for draw in range(chosen.draws)])
    clean, spoilt, named, wrongly = rows.mean(axis=0)
    print(f"{chosen.dataset}, {len(tasks)} validation tasks, {chosen.draws} draws each, K = {chosen.k}")
    print(
        f"balanced accuracy: {100 * clean:.1f} % with {chosen.k} normals, {100 * spoilt:.1f} % with one anomaly among"
    )
    print(
        f"report() names the anomaly in {100 * named:.0f} % of the draws and an innocent one in {100 * wrongly:.0f} %"
    )


def evaluate(detector: FewShotDetector, task: Task, k: int, draw: int) -> tuple[float, float, bool, bool]:
    """Balanced accuracy with a clean and with a spoilt support, whether the anomaly and whether a normal is named."""
    generator = generator_for("contaminated", task.name, draw)
    values = task.normal.store.values
    normals = values[task.normal.draw(min(len(task.normal), k + 100), generator)].numpy()
    anomalies = values[task.anomalous.draw(min(len(task.anomalous), 101), generator)].numpy()
    clean = accuracy(detector.fit(normals[:k]), normals[k:], anomalies[1:])
    spoilt = accuracy(detector.fit(np.concatenate([normals[: k - 1], anomalies[:1]])), normals[k:], anomalies[1:])
    odd = detector.report().odd
    return clean, spoilt, k - 1 in odd, any(number != k - 1 for number in odd)


def accuracy(detector: FewShotDetector, normals: np.ndarray, anomalies: np.ndarray) -> float:
    return float(np.mean([(detector.predict(normals) > 0).mean(), (detector.predict(anomalies) < 0).mean()]))


if __name__ == "__main__":
    main()
