"""`fewone train` on pictures: a head over frozen features beside the untrained zoo model `pictures`.

python benchmarks/picture_training.py judge            trains, judges -> results/pictures/training.jsonl
python benchmarks/picture_training.py judge --again    `pictures` alone, after it was made anew
python benchmarks/picture_training.py page             rows -> docs/benchmarks/picture_training.md

Training and validation parts of CIFAR-FS and Omniglot, and synthetic products of the families of `CHOICE`, of which a
third is left out of the training. No test part and no real product is looked at. Both models get the same
supports and queries and judge at their calibrated thresholds, without the envelope around a detector.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rich.table import Table
from torch import Tensor, nn

from fewone.calibration import Calibrated
from fewone.checkpoints import load_calibration
from fewone.datasets import load
from fewone.datasets.picture_defects import DEFECTS, add_defect
from fewone.datasets.synthetic_products import CHOICE, draw_products
from fewone.detector.loading import load_detector
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits
from fewone.evaluation.protocol import evaluate
from fewone.experiments import default_experiment
from fewone.experiments.build import see_once
from fewone.experiments.own_recipes import PICTURE_FOLDER, find_own_recipe
from fewone.experiments.train import train
from fewone.files import atomic_write
from fewone.learners.evidence import Evidence
from fewone.picture_files import shrink
from fewone.sampling import EpisodeSampler
from pages import write_page

ROWS = Path(__file__).parent.parent / "results" / "pictures" / "training.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks" / "picture_training.md"
SIZES = (2, 5, 10)
SUPPORTS = 2
"""Of each task."""
QUERIES = 10
TITLES = {
    "cifar": "classes of CIFAR-FS's validation part",
    "omniglot": "characters of Omniglot's validation part",
    "products": "synthetic products, families left out",
}
TRAINED, UNTRAINED = "trained head (plda)", "pictures, untrained"


@dataclass(frozen=True)
class Row:
    """One model on the tasks of one part that were left out: means over tasks and supports, in 0..1."""

    part: str
    model: str
    k: int
    tasks: int
    auroc: float
    balanced_accuracy: float


def draw_classes(tasks: Sequence[Task], count: int, each: int) -> dict[str, Tensor]:
    """`each` pictures of `count` classes, as a detector sees them."""
    random = np.random.default_rng(1)
    found = {}
    for number in random.permutation(len(tasks))[:count]:
        pool = tasks[int(number)].normal
        rows = pool.rows()[torch.as_tensor(random.permutation(len(pool))[:each])]
        planes = [shrink(np.moveaxis(one, 0, -1)) for one in pool.store.values[rows].numpy()]
        found[tasks[int(number)].name] = torch.from_numpy(np.stack(planes))
    return found


def as_class_tasks(parts: Sequence[dict[str, Tensor]], others: int = 60) -> list[tuple[Task, ...]]:
    """Tasks over one store; the anomalies of a class are pictures of the other classes of its part."""
    store = Store(torch.cat([values for part in parts for values in part.values()]))
    random, start, found = np.random.default_rng(0), 0, []
    for part in parts:
        places = {}
        for name, values in part.items():
            places[name] = torch.arange(start, start + len(values))
            start += len(values)
        tasks = []
        for name, rows in places.items():
            rest = torch.cat([other for title, other in places.items() if title != name])
            chosen = rest[torch.as_tensor(random.permutation(len(rest))[:others])]
            tasks.append(Task(name, RowPool(store, rows), RowPool(store, chosen)))
        found.append(tuple(tasks))
    return found


def draw_product(family: str, seed: int, count: int = 20) -> Tensor:
    """`count` normals, then as many with a defect."""
    normals = [one.pixels for one in draw_products(family, seed, count)]
    broken = [
        add_defect(one, list(DEFECTS)[number % len(DEFECTS)], np.random.default_rng([seed, number, 7]))[0]
        for number, one in enumerate(draw_products(family, seed, count, first=1000))
    ]
    return torch.from_numpy(np.rint(255 * np.stack([*normals, *broken])).astype(np.uint8).transpose(0, 3, 1, 2).copy())


def make_splits(name: str, training: Sequence[Task], left_out: Sequence[Task]) -> TaskSplits:
    """What a user has: some of the training tasks choose the weights and calibrate, the tasks left out only judge."""
    chosen = [task for number, task in enumerate(training) if number % 4 == 3]
    rest = tuple(task for number, task in enumerate(training) if number % 4 != 3)
    plan = EvaluationProtocol(SUPPORTS, QUERIES, QUERIES)
    return TaskSplits(name, rest, tuple(chosen), tuple(left_out), (3, 224, 224), InputScaling(), plan, False, 2)


def list_parts(left_out_alone: bool) -> Iterator[tuple[str, TaskSplits]]:
    """left_out_alone: the products to train on, which take minutes to draw, are not there."""
    for name, title, classes, each in (
        ("cifar-fs", "cifar", (40, 12), (24, 24)),
        ("omniglot", "omniglot", (60, 12), (20, 20)),
    ):
        splits = load(name)
        parts = [
            draw_classes(tasks, count, size)
            for tasks, count, size in zip((splits.train, splits.validation), classes, each, strict=True)
        ]
        yield title, make_splits(title, *as_class_tasks(parts))
    left = CHOICE[::3]
    names = [(family, seed) for family in (left if left_out_alone else CHOICE) for seed in (200, 201, 202)]
    store = Store(torch.cat([draw_product(*name) for name in names]))
    tasks = {
        name: Task(
            f"{name[0]}-{name[1]}",
            RowPool(store, torch.arange(40 * number, 40 * number + 20)),
            RowPool(store, torch.arange(40 * number + 20, 40 * number + 40)),
        )
        for number, name in enumerate(names)
    }
    training = [task for name, task in tasks.items() if name[0] not in left]
    yield "products", make_splits("products", training, [task for name, task in tasks.items() if name[0] in left])


def train_head(seen: TaskSplits) -> Calibrated:
    """By the recipe of a folder of pictures."""
    recipe = find_own_recipe("plda", PICTURE_FOLDER)
    experiment = replace(
        default_experiment("omniglot", "plda"),
        network=recipe.network,
        learning=recipe.learning,
        training=recipe.training,
    )
    with TemporaryDirectory() as place:
        learner = train(experiment, seen, Path(place) / "run")
        calibration = load_calibration(Path(place) / "run")
    assert calibration is not None
    return Calibrated(learner, calibration)


class Remembered(nn.Module):
    """A view that sees every picture once, however many supports and queries it is in."""

    def __init__(self, view: nn.Module) -> None:
        super().__init__()
        self.view = view
        self.known: dict[bytes, tuple[Tensor, ...]] = {}

    def __deepcopy__(self, memo: dict[int, object]) -> Remembered:
        return self

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        found = [self._see(one) for one in torch.split(inputs, 1)]
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))

    def _see(self, picture: Tensor) -> tuple[Tensor, ...]:
        key = sha256(picture.numpy().tobytes()).digest()
        if key not in self.known:
            self.known[key] = self.view(picture)
        return self.known[key]


def judge(again: bool) -> None:
    """again: `pictures` alone, which is another than before; the trained heads do not depend on it."""
    detector = load_detector("pictures")
    assert isinstance(detector.learner, Evidence) and detector.calibration is not None
    detector.learner.views["photographs"] = Remembered(detector.learner.views["photographs"])
    untrained = Calibrated(detector.learner, detector.calibration)
    kept = [row for row in read_rows() if again and row.model == TRAINED]
    found: list[Row] = []
    for part, splits in list_parts(left_out_alone=again):
        if not again:
            seen = see_once(splits)
            found += judge_model(part, TRAINED, train_head(seen), seen)
        found += judge_model(part, UNTRAINED, untrained, splits)
    rows = sorted([*kept, *found], key=lambda row: (list(TITLES).index(row.part), row.k, row.model != TRAINED))
    atomic_write(ROWS, "".join(json.dumps(asdict(row)) + "\n" for row in rows).encode())


def judge_model(part: str, model: str, learner: Calibrated, splits: TaskSplits) -> Iterator[Row]:
    for k in SIZES:
        sampler = EpisodeSampler(k, 2)
        found = evaluate(learner, splits.test, splits.plan, sampler, 0, batch_tasks=1, batch_examples=32)
        means = (round(float(np.mean(one)), 3) for one in (found.examples.auroc, found.examples.accuracy))
        row = Row(part, model, k, len(splits.test), *means)
        print(row, flush=True)
        yield row


def read_rows() -> list[Row]:
    return [Row(**json.loads(line)) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def page() -> None:
    rows = read_rows()
    table = Table("data", "model", *(f"K={k}" for k in SIZES), title="AUROC / balanced accuracy")
    for part, title in TITLES.items():
        for model in (TRAINED, UNTRAINED):
            fitting = {row.k: row for row in rows if (row.part, row.model) == (part, model)}
            cells = [f"{100 * fitting[k].auroc:.1f} / {100 * fitting[k].balanced_accuracy:.1f}" for k in SIZES]
            table.add_row(f"{title} ({fitting[SIZES[0]].tasks} tasks)", model, *cells)
    introduction = f"""Written by `python benchmarks/picture_training.py page` from results/pictures/training.jsonl.
    The recipe of `fewone train` for a folder of pictures (plda over the frozen EfficientNet-Lite0) beside the zoo's
    `pictures`, which is not trained, on the same supports and queries of tasks that neither was trained on: {SUPPORTS}
    supports of a task, {QUERIES} normals and {QUERIES} anomalies each, at the calibrated threshold. One training each,
    no intervals. The features and the width of the head were chosen on these very parts, so the trained head is
    flattered; the calibration of `pictures` saw the same families and other classes of the same data. The network knows
    the classes of CIFAR."""
    write_page(PAGE, "Training on pictures", introduction, [table])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("judge", "page"))
    parser.add_argument("--again", action="store_true", help="judge `pictures` alone and keep the rows of the heads")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.verb == "judge":
        judge(chosen.again)
    else:
        page()


if __name__ == "__main__":
    main()
