"""The zoo's `pictures`: synthetic products, classes of CIFAR-FS and characters -> units, priors and thresholds.

`python -m fewone.picture_making OUT` draws the teachers, makes the model, evaluates it and the shipped one on
validation tasks that neither saw, and prints both. Nothing is trained by gradient: units are deviations of the frozen
network's channels over the teachers' pictures, the centre of the prior is what their normals show, and the thresholds
from K = 2 on are where the teachers' balanced accuracy is highest, each part of them (products, those taken by hand,
classes, characters) counting alike. No real product and no test part is looked at. What was chosen by hand, and beside
what: benchmarks/picture_choice.py and picture_options.py.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fewone.calibration import CalibrationMap, CalibrationPoint, Scored, fit_point
from fewone.calibration.calibrated import NormalQuantiles
from fewone.checkpoints import ModelSpec, load_calibration, load_learner, save_calibration, save_learner
from fewone.datasets import load
from fewone.datasets.picture_defects import DEFECTS, add_defect
from fewone.datasets.synthetic_products import CHOICE, draw_products, photograph_by_hand
from fewone.episodes import ANOMALOUS, NORMAL, InputScaling, Task
from fewone.errors import FewoneError
from fewone.evaluation.metrics import measure
from fewone.extras import needed_for
from fewone.learners.evidence import PICTURES, Evidence, EvidenceSettings, Observed
from fewone.learners.evidence_kinds import Features
from fewone.learners.evidence_kinds.pictures import WIDTHS, Photographs
from fewone.learners.meta_learner import PARAMETER_SCALE
from fewone.networks import NetworkSettings
from fewone.picture_files import shrink
from fewone.zoo import write_card
from fewone.zoo.cards import HOME, read_card

with needed_for("making a model of the zoo"):
    import tyro

SIZES = (1, 2, 5, 10)
MOVED = (2, 5, 10)
"""K at which the threshold is moved to where the balanced accuracy is highest."""
AS_GOOD = 0.004
"""Of thresholds whose balanced accuracy is lower than the highest by no more than this, the highest is taken: false
alarms are what people stop listening to."""
POOL, NORMALS, ANOMALIES = 12, 8, 16
"""Of each task: normals that supports are drawn from, further normals and anomalies that are evaluated."""
SUPPORTS = 6
SCALE = 0.1
"""The prior scale of a log distance among normals."""
STRENGTH = math.exp(-1.0)
"""The prior centre counts like so many independent distances. Where normals lie closer together than those of other
tasks did, what is anomalous lies farther away from them, and the threshold with it: it rises."""


@dataclass(frozen=True)
class Drawn:
    """Pictures (n, 3, SIDE, SIDE) of one task: POOL + NORMALS normals, then ANOMALIES."""

    name: str
    pictures: Tensor


@dataclass(frozen=True)
class Seen:
    """What the view, in units of 1, sees of a task, in half precision."""

    name: str
    features: Features


@dataclass(frozen=True)
class Looked:
    """Distances of each kind, (1, n, POOL, parts), of all pictures of a task to its pool."""

    name: str
    distances: list[Tensor]


@dataclass(frozen=True)
class Figure:
    """A model on the validation tasks of one part: means over tasks and supports, in per cent."""

    model: str
    part: str
    k: int
    tasks: int
    auroc: float
    balanced_accuracy: float


def draw_product(family: str, seed: int, by_hand: bool = False) -> Drawn:
    """by_hand: in pictures taken carelessly, with defects of 40 to 100 % of their strength."""
    normals = [one.pixels for one in draw_products(family, seed, POOL + NORMALS)]
    broken = []
    for number, one in enumerate(draw_products(family, seed, ANOMALIES, first=1000)):
        random = np.random.default_rng([seed, number, 7])
        pixels, _ = add_defect(one, list(DEFECTS)[(number + seed) % len(DEFECTS)], random)
        broken.append(one.pixels + (pixels - one.pixels) * (random.uniform(0.4, 1.0) if by_hand else 1.0))
    if by_hand:
        key = [seed, sum(family.encode())]
        found = [
            photograph_by_hand(one, np.random.default_rng(key), np.random.default_rng([*key, 1 + number]))
            for number, one in enumerate([*normals, *broken])
        ]
    else:
        found = [np.rint(255 * one).astype(np.uint8) for one in [*normals, *broken]]
    pictures = torch.from_numpy(np.ascontiguousarray(np.stack(found).transpose(0, 3, 1, 2)))
    return Drawn(f"{'hand' if by_hand else 'product'}-{family}-{seed}", pictures)


def draw_classes(tasks: Sequence[Task], part: str, count: int) -> Iterator[Drawn]:
    random = np.random.default_rng(0)
    for number in random.permutation(len(tasks))[:count]:
        task = tasks[int(number)]
        values = [
            pool.store.values[pool.rows()[torch.as_tensor(random.permutation(len(pool))[:size])]].numpy()
            for pool, size in ((task.normal, POOL + NORMALS), (task.anomalous, ANOMALIES))
        ]
        planes = [shrink(np.moveaxis(one, 0, -1)) for one in np.concatenate(values).astype(np.uint8)]
        yield Drawn(f"{part}-{task.name}", torch.from_numpy(np.stack(planes)))


def draw_teachers() -> Iterator[Drawn]:
    """Two products of each family of CHOICE, one of them taken by hand; classes of CIFAR-FS's and characters of
    Omniglot's training part, six each."""
    yield from (draw_product(family, 0) for family in CHOICE)
    yield from (draw_product(family, 1, by_hand=True) for family in CHOICE)
    yield from draw_classes(load("cifar-fs").train, "cifar", 6)
    yield from draw_classes(load("omniglot").train, "omniglot", 6)


def draw_evaluation() -> Iterator[Drawn]:
    """Two other products of each family of CHOICE, and classes and characters of the validation parts."""
    yield from (draw_product(family, 300) for family in CHOICE)
    yield from (draw_product(family, 301, by_hand=True) for family in CHOICE)
    yield from draw_classes(load("cifar-fs").validation, "cifar", 4)
    yield from draw_classes(load("omniglot").validation, "omniglot", 4)


@torch.inference_mode()
def see(drawn: Iterable[Drawn]) -> list[Seen]:
    view = Photographs()
    return [Seen(one.name, tuple(part.half() for part in view(one.pictures.float()))) for one in drawn]


def find_units(seen: Sequence[Seen], middle: int = WIDTHS["middle"]) -> dict[str, Tensor]:
    """The deviation of each channel over the places of all pictures, every task alike.

    middle: so many channels of the second feature are of the middle layer, the rest of the high one.
    """

    def deviate(number: int, columns: slice = slice(None)) -> Tensor:
        parts = [one.features[number][..., columns].float().flatten(0, -2) for one in seen]
        mean = torch.stack([part.mean(0) for part in parts]).mean(0)
        square = torch.stack([(part - mean).square().mean(0) for part in parts]).mean(0)
        return square.sqrt().clamp_min(1e-6)

    return {
        "low": deviate(0),
        "middle": deviate(1, slice(middle)),
        "high": deviate(2),
        "deep": deviate(3),
        "pooled": deviate(4),
        "last": deviate(5),
    }


def in_units(features: Features, units: dict[str, Tensor]) -> Features:
    """What the view sees in these units; all it does after dividing is linear."""
    high = units["high"]
    patches = (units["low"], torch.cat([units["middle"], high]), high, units["deep"])
    divisors = (*patches, units["pooled"], units["last"], units["last"], high.repeat(2))
    return tuple(part.float() / unit for part, unit in zip(features, divisors, strict=True))


@torch.inference_mode()
def look_at(learner: Evidence, seen: Sequence[Seen], units: dict[str, Tensor]) -> list[Looked]:
    """Every pair once, however many supports are drawn."""
    found = []
    for one in seen:
        features = tuple(part.unsqueeze(0) for part in in_units(one.features, units))
        normals = {"photographs": tuple(part[:, :POOL] for part in features)}
        found.append(Looked(one.name, learner.compare({"photographs": features}, normals)))
    return found


def observe(learner: Evidence, looked: Looked, size: int, number: int) -> tuple[Observed, Tensor, Tensor]:
    """Support `number` of a task: what is observed, the labels, and which pictures are evaluated."""
    support = torch.randperm(POOL, generator=torch.Generator().manual_seed(1000 * size + number))[:size]
    normal = torch.zeros(1, POOL)
    normal[0, support] = 1.0
    values = learner.measure(looked.distances, normal.unsqueeze(1))
    own = learner.measure_support([one[:, :POOL] for one in looked.distances], normal)
    labels = torch.cat([torch.full((POOL + NORMALS,), float(NORMAL)), torch.full((ANOMALIES,), float(ANOMALOUS))])
    evaluated = torch.ones(len(labels), dtype=torch.bool)
    evaluated[support] = False
    return Observed(values, own, normal), labels, evaluated


@torch.inference_mode()
def find_centre(learner: Evidence, looked: Sequence[Looked]) -> Tensor:
    """The mean of what normals show of each other, over tasks, at K = 5."""
    means = []
    for one in looked:
        for number in range(SUPPORTS):
            observed, _, _ = observe(learner, one, 5, number)
            means.append(observed.own[0, observed.normal[0] > 0].mean(0))
    return torch.stack(means).mean(0)


@torch.inference_mode()
def score(learner: Evidence, looked: Sequence[Looked], size: int) -> list[Scored]:
    found = []
    for one in looked:
        for number in range(SUPPORTS):
            observed, labels, evaluated = observe(learner, one, size, number)
            scores = learner.score(observed)[0].double()
            found.append(Scored(one.name, number, scores[evaluated], labels[evaluated], None, math.nan))
    return found


def name_part(task: str) -> str:
    return task.split("-")[0]


def find_balance_of_parts(scored: Sequence[Scored], threshold: float) -> float:
    """Mean balanced accuracy at a threshold, every part counting alike."""
    parts: dict[str, list[Scored]] = {}
    for one in scored:
        parts.setdefault(name_part(one.unit), []).append(one)
    return sum(find_balance(part, threshold) for part in parts.values()) / len(parts)


def find_balance(scored: Sequence[Scored], threshold: float) -> float:
    """Mean balanced accuracy at a threshold."""
    found = []
    for one in scored:
        called = one.scores > threshold
        alarms, hits = called[one.labels == NORMAL], called[one.labels == ANOMALOUS]
        found.append(0.5 * (1.0 - float(alarms.double().mean()) + float(hits.double().mean())))
    return sum(found) / len(found)


def move_threshold(point: CalibrationPoint, scored: Sequence[Scored]) -> CalibrationPoint:
    """The point with its threshold where the balanced accuracy is highest; the quantiles of normals move along."""
    candidates = torch.quantile(torch.cat([one.scores for one in scored]), torch.linspace(0.05, 0.95, 181).double())
    found = {threshold: find_balance_of_parts(scored, threshold) for threshold in candidates.tolist()}
    best = max(threshold for threshold, balance in found.items() if balance >= max(found.values()) - AS_GOOD)
    change = point.slope * (point.threshold - best)

    def shift(found: Sequence[NormalQuantiles]) -> tuple[NormalQuantiles, ...]:
        return tuple(replace(each, quantiles=tuple(one + change for one in each.quantiles)) for each in found)

    means, largest = shift(point.mean_quantiles), shift(point.largest_quantiles)
    return replace(point, threshold=best, mean_quantiles=means, largest_quantiles=largest)


def calibrate(learner: Evidence, looked: Sequence[Looked]) -> CalibrationMap:
    points = []
    for size in SIZES:
        scored = score(learner, looked, size)
        point = fit_point(size, scored)
        points.append(move_threshold(point, scored) if size in MOVED else point)
    return CalibrationMap(tuple(points))


def make(teachers: Sequence[Seen]) -> tuple[Evidence, CalibrationMap]:
    """The learner, its first values but for units and prior, and its calibration."""
    learner = Evidence(PICTURES).eval()
    units = find_units(teachers)
    view = learner.views["photographs"]
    for name, unit in units.items():
        view.get_buffer(f"{name}_unit").copy_(unit)
    looked = look_at(learner, teachers, units)
    with torch.no_grad():
        learner.prior_centre.copy_(find_centre(learner, looked) / PARAMETER_SCALE)
        learner.prior_log_scale.fill_(math.log(SCALE) / PARAMETER_SCALE)
        learner.log_centre_strength.fill_(math.log(STRENGTH) / PARAMETER_SCALE)
    return learner, calibrate(learner, looked)


def evaluate(name: str, learner: Evidence, calibration: CalibrationMap, seen: Sequence[Seen]) -> list[Figure]:
    """The model on tasks that it was not made from, part by part."""
    view = learner.views["photographs"]
    units = {channel: view.get_buffer(f"{channel}_unit") for channel in WIDTHS}
    looked = look_at(learner, seen, units)
    found = []
    for part in sorted({name_part(one.name) for one in looked}):
        chosen = [one for one in looked if name_part(one.name) == part]
        for size in SIZES:
            scored = score(learner, chosen, size)
            auroc = [
                float(measure(one.scores[None], one.labels[None].double(), torch.ones_like(one.scores)[None]).auroc)
                for one in scored
            ]
            balance = find_balance(scored, calibration.at(size).threshold)
            figures = (round(100 * sum(auroc) / len(auroc), 2), round(100 * balance, 2))
            found.append(Figure(name, part, size, len(chosen), *figures))
    return found


@dataclass(frozen=True)
class Arguments:
    """Make the model `pictures` into a folder, and evaluate it beside the shipped one."""

    out: Annotated[Path, tyro.conf.Positional]
    """Folder for the model, its calibration and its card."""
    shipped: Path = HOME / "pictures"
    """The model to be compared with; its card is taken over."""
    rows: Path | None = None
    """A file for the figures of both, a line each."""


def save(folder: Path, learner: Evidence, calibration: CalibrationMap, shipped: Path) -> None:
    spec = ModelSpec(
        algorithm="evidence",
        learning=EvidenceSettings(PICTURES),
        network=NetworkSettings(),
        shape=(0, 0, 0),
        preparation=InputScaling(),
        support_size=10,
        seed=0,
        dataset="synthetic-products",
        fingerprint="",
    )
    save_learner(folder, learner, spec)
    save_calibration(folder, calibration)
    write_card(folder, read_card(shipped))


def main(arguments: list[str] | None = None) -> int:
    """0 if the model was made, 2 for a mistake."""
    chosen = tyro.cli(Arguments, args=arguments, prog="python -m fewone.picture_making")
    torch.set_num_threads(1)
    try:
        shipped, _ = load_learner(chosen.shipped)
        shipped_calibration = load_calibration(chosen.shipped)
        if not isinstance(shipped, Evidence) or shipped_calibration is None:
            raise FewoneError(f"{chosen.shipped}: no calibrated model of evidence to compare with")
        learner, calibration = make(see(draw_teachers()))
        save(chosen.out, learner, calibration, chosen.shipped)
        evaluation = see(draw_evaluation())
        figures = [
            *evaluate("made", learner, calibration, evaluation),
            *evaluate("shipped", shipped, shipped_calibration, evaluation),
        ]
    except FewoneError as error:
        print(f"fewone: {error}", file=sys.stderr)
        return 2
    lines = [json.dumps(asdict(figure)) for figure in figures]
    print("\n".join(lines))
    if chosen.rows is not None:
        chosen.rows.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
