"""Zoo model `pictures` beside honest peers on the same features and pictures: products, synthetic defects, classes.

python benchmarks/pictures.py evaluate --cache CACHE --products PRODUCTS   features once, then all methods -> rows
        --ours                      the same, where another version of the model did; the other methods keep their rows
python benchmarks/pictures.py maps                                      where the defect is, and what it costs -> rows
python benchmarks/pictures.py page                                      rows -> docs/benchmarks/pictures.md

A task is one product or class. Its supports are drawn from a pool of its normals; what is not in a support is judged.
Choices (kinds of evidence, the prior scale, thresholds) were made on other tasks alone: synthetic products of the
families of `CHOICE`, classes of CIFAR-FS's training and validation parts, characters of Omniglot's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from rich.table import Table
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM
from torch import Tensor

from fewone.calibration import CalibrationMap
from fewone.datasets import load
from fewone.datasets.picture_defects import DEFECTS, add_defect
from fewone.datasets.synthetic_products import CHOICE, FAMILIES, draw_products
from fewone.detector.loading import load_detector
from fewone.episodes import Task
from fewone.files import atomic_write
from fewone.learners.evidence import Evidence, Observed
from fewone.learners.evidence_kinds import Features
from fewone.learners.evidence_kinds.pictures import COARSE
from fewone.picture_files import decode, shrink
from fewone.zoo.cards import HOME
from pages import write_page

RESULTS = Path(__file__).parent.parent / "results" / "pictures"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks" / "pictures.md"
SIZES = (2, 5, 10)
SUPPORTS = {"product": 20, "synthetic": 8, "cifar": 6, "omniglot": 6, "mnist": 6}
"""How many supports are drawn of each task; the classes are many."""
RATES = (0.1, 0.05)
OURS = "pictures"
MAPS, STREAM, OPTIONS, RULES = "maps.jsonl", "stream.jsonl", "options.jsonl", "choice.jsonl"
WHOLE, COARSE_PATCHES = 4, 2
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pictures:
    """One task: what the model's view sees of n pictures, small pixels (n, 588), labels (n,) 1 = anomalous."""

    name: str
    features: Features
    pixels: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Row:
    """One method on one task with supports of k: a number per support.

    threshold: how it was found without labels. false_alarms and balanced_accuracy: at that threshold, in 0..1.
    model: the beginning of the hash of the zoo's model that judged ("": those before the present ones).
    """

    task: str
    method: str
    threshold: str
    k: int
    auroc: list[float]
    balanced_accuracy: list[float]
    false_alarms: list[float]
    model: str = ""


Drawing = Callable[[], NDArray[np.uint8]]


@dataclass(frozen=True)
class Drawn:
    """A task before it is seen: its pictures are made on need. sizes: of the pool, normals and anomalies to judge."""

    part: str
    name: str
    draw: Drawing
    labels: list[int]
    sizes: tuple[int, int, int]


def draw_product(family: str, seed: int) -> NDArray[np.uint8]:
    """30 normals and 30 defects, three of each kind, of a synthetic product."""
    normals = [one.pixels for one in draw_products(family, seed, 30)]
    broken = [
        add_defect(one, list(DEFECTS)[number % len(DEFECTS)], np.random.default_rng([seed, number, 7]))[0]
        for number, one in enumerate(draw_products(family, seed, 30, first=1000))
    ]
    drawn: NDArray[np.uint8] = np.rint(255 * np.stack([*normals, *broken])).astype(np.uint8).transpose(0, 3, 1, 2)
    return drawn


def draw_classes(part: str, tasks: tuple[Task, ...], name: str, count: int, normals: int) -> Iterator[Drawn]:
    """`normals` pictures of a class and 30 of others, for `count` classes."""
    rng = np.random.default_rng(0)
    for number in rng.permutation(len(tasks))[:count]:
        task = tasks[int(number)]
        values = [
            pool.store.values[pool.rows()[torch.as_tensor(rng.permutation(len(pool))[:size])]].numpy()
            for pool, size in ((task.normal, normals), (task.anomalous, 30))
        ]
        whole = np.concatenate(values).astype(np.uint8)
        yield Drawn(
            part,
            f"{name}-{task.name.replace('/', '_')}",
            partial(_enlarge, whole),
            [0] * normals + [1] * 30,
            (12, normals - 12, 20),
        )


def _enlarge(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.stack([shrink(np.moveaxis(one, 0, -1)) for one in values])


def read_product(files: list[Path]) -> NDArray[np.uint8]:
    return np.stack([one.planes for one in map(decode, files) if one.planes is not None])


def see(learner: Evidence, drawn: Drawn, cache: Path) -> Pictures:
    """The features of a task, in half precision, from the disk where they are there."""
    place = cache / f"{drawn.name}.pt"
    if not place.exists():
        values = torch.from_numpy(drawn.draw()).float()
        with torch.inference_mode():
            features = tuple(one.half() for one in learner.views["photographs"](values))
            pixels = F.adaptive_avg_pool2d(values / 255.0, 14).flatten(1)
        place.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"features": features, "pixels": pixels, "labels": torch.tensor(drawn.labels)}, place)
    kept = torch.load(place, weights_only=True)
    return Pictures(drawn.name, tuple(one.float() for one in kept["features"]), kept["pixels"], kept["labels"])


def thin_out(pictures: Pictures, pool: int, normals: int, anomalies: int, seed: int = 0) -> Pictures:
    """The pool of supports first, then so many normals and anomalies to judge."""
    generator = torch.Generator().manual_seed(seed)
    groups = [(pictures.labels == label).nonzero().flatten() for label in (0, 1)]
    normal, anomalous = (group[torch.randperm(len(group), generator=generator)] for group in groups)
    rows = torch.cat([normal[: pool + normals], anomalous[:anomalies]])
    features = tuple(one[rows] for one in pictures.features)
    return Pictures(pictures.name, features, pictures.pixels[rows], pictures.labels[rows])


def judge_task(
    learner: Evidence,
    calibration: CalibrationMap,
    pictures: Pictures,
    pool: int,
    supports: int,
    others: bool = True,
) -> Iterator[Row]:
    """All methods on the same supports and pictures; not others: the zoo's model alone."""
    with torch.inference_mode():
        seen = {"photographs": tuple(one.unsqueeze(0) for one in pictures.features)}
        normals = {"photographs": tuple(one[:, :pool] for one in seen["photographs"])}
        distances = learner.compare(seen, normals)
    for k in SIZES:
        found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        for number in range(supports):
            support = torch.randperm(pool, generator=torch.Generator().manual_seed(1000 * k + number))[:k]
            judged = torch.ones(len(pictures.labels), dtype=torch.bool)
            judged[support] = False
            labels = pictures.labels[judged].numpy()
            for method, threshold, scores in _score_all(
                learner, calibration, pictures, distances, support, pool, others
            ):
                found.setdefault((method, threshold), []).append(_measure(labels, scores[judged.numpy()]))
        for (method, threshold), values in found.items():
            auroc, accuracy, alarms = (list(map(float, column)) for column in zip(*values, strict=True))
            yield Row(pictures.name, method, threshold, k, auroc, accuracy, alarms)


def _measure(labels: NDArray[np.int64], scores: Floats) -> tuple[float, float, float]:
    called = scores > 0
    alarms, found = called[labels == 0].mean(), called[labels == 1].mean()
    return roc_auc_score(labels, scores), (found + 1 - alarms) / 2, alarms


def _score_all(
    learner: Evidence,
    calibration: CalibrationMap,
    pictures: Pictures,
    distances: list[Tensor],
    support: Tensor,
    pool: int,
    others: bool,
) -> Iterator[tuple[str, str, Floats]]:
    """Method, name of its threshold, scores (n,) above 0 where it calls a picture anomalous."""
    k = len(support)
    yield from _score_zoo(learner, calibration, distances, support, pool)
    if not others:
        return
    patches = distances[0][0][:, support]
    among = distances[0][0][support][:, support]
    worst = patches.amin(1).amax(-1).double().sqrt().numpy()
    own = np.array(
        [float(among[one, [other for other in range(k) if other != one]].amin(0).max()) ** 0.5 for one in range(k)]
    )
    yield from _with_thresholds("nearest patch (PatchCore-like)", worst, own)
    whole, pixels = (_find_nearest(values, support) for values in (pictures.features[WHOLE], pictures.pixels))
    yield from _with_thresholds("global feature, 1-NN", *whole)
    yield from _with_thresholds("pixels, 1-NN", *pixels)
    yield from _with_thresholds("Gaussian per place (PaDiM-like)", *_leave_out(_fit_places, pictures, support))
    yield from _with_thresholds("subspace of patches", *_leave_out(_fit_subspace, pictures, support))
    features = pictures.features[WHOLE].numpy()
    machine = OneClassSVM(gamma="scale", nu=0.1).fit(features[support])
    yield "OC-SVM on global features", "its own", -machine.decision_function(features)
    forest = IsolationForest(n_estimators=50, random_state=0).fit(features[support])
    yield "Isolation Forest on global features", "its own", -forest.decision_function(features)
    yield from _score_pyod(features, support.numpy())


def _score_zoo(
    learner: Evidence, calibration: CalibrationMap, distances: list[Tensor], support: Tensor, pool: int
) -> Iterator[tuple[str, str, Floats]]:
    k = len(support)
    point = calibration.at(k)
    logits = point.slope * (_score_ours(learner, distances, support, pool) - point.threshold)
    yield OURS, "its own", logits
    for rate in RATES:
        yield OURS, name_target(rate), logits - calibration.threshold(k, rate)


def _score_ours(learner: Evidence, distances: list[Tensor], support: Tensor, pool: int) -> Floats:
    """Logits (n,) of the untrained rule: the pool's normals that are no support count for nothing."""
    normal = torch.zeros(1, pool)
    normal[0, support] = 1.0
    with torch.inference_mode():
        values = learner.measure(distances, normal.unsqueeze(1))
        own = learner.measure_support([one[:, :pool] for one in distances], normal)
        return learner.score(Observed(values, own, normal))[0].double().numpy()


def _with_thresholds(method: str, scores: Floats, own: Floats) -> Iterator[tuple[str, str, Floats]]:
    """The two usual thresholds from the normals' own scores, each judged by the others."""
    yield method, "largest of the normals", scores - own.max()
    yield method, "mean + 3 deviations", scores - own.mean() - 3 * own.std(ddof=1)


def _find_nearest(values: Tensor, support: Tensor) -> tuple[Floats, Floats]:
    apart = torch.cdist(values, values[support]).double()
    among = apart[support] + torch.diag(torch.full((len(support),), torch.inf, dtype=torch.float64))
    return apart.amin(1).numpy(), among.amin(1).numpy()


Fit = Callable[[Pictures, Tensor], Callable[[Tensor], Floats]]


def _leave_out(fit: Fit, pictures: Pictures, support: Tensor) -> tuple[Floats, Floats]:
    """Scores of all pictures, and of the support's, each by the rest (of at most five of them)."""
    every = fit(pictures, support)(torch.arange(len(pictures.labels)))
    own = [
        fit(pictures, support[torch.arange(len(support)) != one])(support[one : one + 1])[0]
        for one in range(min(5, len(support)))
    ]
    return every, np.array(own)


@lru_cache(1)
def smooth_patches(pictures: Pictures) -> Tensor:
    """High patches, each the mean with its neighbours: these peers are better with it, as published."""
    patches = pictures.features[COARSE_PATCHES]
    laid = torch.unflatten(patches.transpose(1, 2), -1, (COARSE, COARSE))
    return F.avg_pool2d(laid, 3, 1, 1, count_include_pad=False).flatten(2).transpose(1, 2)


def _fit_places(pictures: Pictures, support: Tensor) -> Callable[[Tensor], Floats]:
    """PaDiM: mean and covariance of 32 random channels at each of 14 x 14 places, plus 0.01 on the diagonal."""
    chosen = torch.randperm(pictures.features[COARSE_PATCHES].shape[-1], generator=torch.Generator().manual_seed(0))
    values = smooth_patches(pictures)[..., chosen[:32]].transpose(0, 1)  # (places, n, 32)
    normals = values[:, support]
    mean = normals.mean(1, keepdim=True)
    centred = normals - mean
    covariance = centred.transpose(1, 2) @ centred / max(1, len(support) - 1) + 0.01 * torch.eye(32)
    root = torch.linalg.inv(torch.linalg.cholesky(covariance))

    def score(rows: Tensor) -> Floats:
        worst = ((values[:, rows] - mean) @ root.transpose(1, 2)).square().sum(-1).amax(0)
        return np.asarray(worst.sqrt().numpy(), dtype=np.float64)

    return score


def _fit_subspace(pictures: Pictures, support: Tensor) -> Callable[[Tensor], Floats]:
    """The largest residual of a patch beyond the principal components that hold 95 % of the normals' variance."""
    values = smooth_patches(pictures)
    normals = values[support].flatten(0, 1)
    mean = normals.mean(0)
    powers, axes = torch.linalg.eigh((normals - mean).T @ (normals - mean))
    beyond = axes[:, powers.cumsum(0) < 0.05 * powers.sum()]

    def score(rows: Tensor) -> Floats:
        worst = ((values[rows] - mean) @ beyond).square().sum(-1).amax(-1)
        return np.asarray(worst.sqrt().numpy(), dtype=np.float64)

    return score


def _score_pyod(features: NDArray[np.float32], support: NDArray[np.int64]) -> Iterator[tuple[str, str, Floats]]:
    try:
        from pyod.models.knn import KNN
    except ImportError:
        return
    if len(support) > 2:
        model = KNN(n_neighbors=min(5, len(support) - 1)).fit(features[support])
        yield "PyOD KNN on global features", "its own", model.decision_function(features) - model.threshold_


def evaluate(cache: Path, products: Path, parts: list[str], ours: bool = False) -> None:
    """Rows of every task that is not there yet; ours: those of the zoo's model that another version of it made.

    The other methods do not depend on the model while its units stay as they are: their rows are left alone then.
    """
    detector = load_detector("pictures")
    learner, calibration, model = detector.learner, detector.calibration, find_model()
    assert isinstance(learner, Evidence) and calibration is not None
    RESULTS.mkdir(parents=True, exist_ok=True)
    for drawn in _list_tasks(products, parts):
        place = RESULTS / f"{drawn.part}.{drawn.name}.jsonl"
        there = _read_lines(place) if place.exists() else []
        if there and (not ours or all(row["model"] == model for row in there if row["method"] == OURS)):
            continue
        found = judge_drawn(learner, calibration, see(learner, drawn, cache), drawn, others=not there)
        rows = [asdict(replace(row, model=model)) for row in found]
        content = [{key: _rounded(value) for key, value in row.items()} for row in rows]
        _write_lines(place, [*content, *(row for row in there if row["method"] != OURS)])
        print(place.name, flush=True)


def find_model() -> str:
    """The beginning of the hash of the zoo's weights and of the calibration beside them."""
    content = [json.loads((HOME / "pictures" / name).read_text()) for name in ("model.json", "calibration.json")]
    return sha256(json.dumps([content[0]["weights"], content[1]["content"]]).encode()).hexdigest()[:12]


def judge_drawn(
    learner: Evidence, calibration: CalibrationMap, seen: Pictures, drawn: Drawn, others: bool
) -> list[Row]:
    """Of a real product every support is drawn anew from all its normals, with other pictures to judge: it moves by
    more than ten points with the pictures that are drawn. Of the others the supports share a pool."""
    count = SUPPORTS[drawn.part]
    if drawn.part != "product":
        return list(judge_task(learner, calibration, thin_out(seen, *drawn.sizes), drawn.sizes[0], count, others))
    draws = (thin_out(seen, *drawn.sizes, seed=number) for number in range(count))
    return merge([row for one in draws for row in judge_task(learner, calibration, one, drawn.sizes[0], 1, others)])


def merge(rows: list[Row]) -> list[Row]:
    """Rows of one method, threshold and k as one."""
    found: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        key = row.method, row.threshold, row.k
        before = found.get(key, replace(row, auroc=[], balanced_accuracy=[], false_alarms=[]))
        found[key] = replace(row, **{name: getattr(before, name) + getattr(row, name) for name in MEASURES})
    return list(found.values())


def _rounded(value: object) -> object:
    return [round(float(one), 4) for one in value] if isinstance(value, list) else value


def _list_tasks(products: Path, parts: list[str]) -> Iterator[Drawn]:
    if "product" in parts:
        for folder in sorted(one for one in products.iterdir() if one.is_dir()):
            files = sorted(folder.glob("*/*"))
            labels = [int(file.parent.name == "anomalous") for file in files]
            yield Drawn("product", folder.name, partial(read_product, files), labels, (10, 60, 60))
    if "synthetic" in parts:
        for family in (family for family in FAMILIES if family not in CHOICE):
            for seed in (100, 101):
                draw = partial(draw_product, family, seed)
                yield Drawn("synthetic", f"{family}-{seed}", draw, [0] * 30 + [1] * 30, (18, 12, 30))
    if "cifar" in parts:
        yield from draw_classes("cifar", load("cifar-fs").test, "cifar", 10, 30)
    if "omniglot" in parts:
        yield from draw_classes("omniglot", load("omniglot").test, "omniglot", 10, 20)
    if "mnist" in parts:
        for digit in range(9):
            yield from draw_classes("mnist", load(f"mt-mnist/{digit}").test, "mnist", 1, 30)


def evaluate_maps() -> None:
    """Pixel AUROC of the maps on one defect of each kind per synthetic product, and what fitting and scoring cost."""
    found: list[dict[str, object]] = []
    for family in (family for family in FAMILIES if family not in CHOICE):
        normals = np.stack([_as_bytes(one.pixels) for one in draw_products(family, 102, 10)])
        begin = time.process_time()
        detector = load_detector("pictures").fit(normals)
        fit = time.process_time() - begin
        broken = draw_products(family, 102, len(DEFECTS), first=1000)
        pairs = [
            add_defect(one, kind, np.random.default_rng(number))
            for number, (one, kind) in enumerate(zip(broken, DEFECTS, strict=True))
        ]
        pictures = np.stack([_as_bytes(pixels) for pixels, _ in pairs])
        begin = time.process_time()
        detector.score_samples(pictures)
        score = (time.process_time() - begin) / len(pictures)
        maps = detector.explain(pictures)
        scores = [roc_auc_score(mask.ravel(), one.ravel()) for one, (_, mask) in zip(maps, pairs, strict=True)]
        kinds = {kind: round(float(value), 4) for kind, value in zip(DEFECTS, scores, strict=True)}
        found.append({"product": family, "pixel_auroc": kinds, "fit_seconds": fit, "picture_seconds": score})
        print(found[-1], flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    _write_lines(RESULTS / MAPS, found)


def _write_lines(place: Path, rows: list[dict[str, object]]) -> None:
    atomic_write(place, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _read_lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text().splitlines()]


def _as_bytes(pixels: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.rint(255 * pixels).astype(np.uint8)


def page() -> None:
    """The rows as tables: means over tasks of means over supports; of a product the spread over its supports."""
    rows: dict[str, list[Row]] = {}
    for file in sorted(RESULTS.glob("*.*.jsonl")):
        rows.setdefault(file.name.split(".")[0], []).extend(Row(**one) for one in _read_lines(file))
    titles = {
        "product": "Real castings (one product)",
        "synthetic": "Synthetic defects on families left out of every choice",
        "cifar": "Classes of CIFAR-FS's test part (they overlap with what the network was trained on)",
        "omniglot": "Characters of Omniglot's evaluation part",
        "mnist": "Digits of MNIST",
    }
    model = find_model()
    old = {part for part in rows if any(row.method == OURS and row.model != model for row in rows[part])}
    titles = {part: title + (", JUDGED WITH THE MODEL BEFORE" if part in old else "") for part, title in titles.items()}
    tables = [_tabulate(title, rows[part]) for part, title in titles.items() if part in rows]
    tables += [_tabulate_alarms(titles, rows)]
    if (RESULTS / MAPS).exists():
        tables.append(_tabulate_maps(_read_lines(RESULTS / MAPS)))
    if (RESULTS / STREAM).exists():
        tables.append(_tabulate_stream(_read_lines(RESULTS / STREAM)))
    if (RESULTS / OPTIONS).exists():
        tables.append(_tabulate_options(_read_lines(RESULTS / OPTIONS)))
    if (RESULTS / RULES).exists():
        tables.append(_tabulate_rules(_read_lines(RESULTS / RULES)))
    counts = ", ".join(f"{count} for {part}" for part, count in SUPPORTS.items())
    introduction = f"""Written by `python benchmarks/pictures.py page` from the rows in results/pictures. Per cent:
    AUROC / balanced accuracy / false alarms; means over tasks of means over supports ({counts}); AUROC of the casting
    with the 2.5 and 97.5 % quantiles over supports, each drawn from all its normals and judged on 60 other normals and
    60 anomalies. The supports of a synthetic product are drawn from a pool of 18, of a class from 12. All methods see
    the same pictures and the same frozen network. Without the envelope that stands around every detector."""
    write_page(PAGE, "Pictures", introduction, tables)


def _tabulate(title: str, rows: list[Row]) -> Table:
    table = Table("method", "threshold", *(f"K={k}" for k in SIZES), title=title)
    for method, threshold in dict.fromkeys((row.method, row.threshold) for row in rows):
        if threshold in map(name_target, RATES):
            continue
        cells = []
        for k in SIZES:
            found = [row for row in rows if (row.method, row.threshold, row.k) == (method, threshold, k)]
            cells.append(_format(found) if found else "-")
        table.add_row(method, threshold, *cells)
    return table


def _format(found: list[Row]) -> str:
    means = [100 * np.mean([np.mean(getattr(row, name)) for row in found]) for name in MEASURES]
    text = " / ".join(f"{mean:.1f}" for mean in means)
    if len(found) == 1:
        low, high = 100 * np.quantile(found[0].auroc, (0.025, 0.975))
        text += f" ({low:.0f} to {high:.0f})"
    return text


MEASURES = ("auroc", "balanced_accuracy", "false_alarms")


def name_target(rate: float) -> str:
    """The threshold that aims at a rate of false alarms."""
    return f"target {rate:.0%}"


def _tabulate_alarms(titles: dict[str, str], rows: dict[str, list[Row]]) -> Table:
    """Target and observed rates of false alarms: a row per product, one for all classes of a dataset."""
    heads = [f"K={k}, {name_target(rate)}" for k in SIZES for rate in RATES]
    table = Table("product or classes", *heads, title="False alarms: target and observed rate, mean over supports")
    for part in titles:
        ours = [row for row in rows.get(part, []) if row.method == OURS]
        before = " (model before)" if "BEFORE" in titles[part] else ""
        if part in PRODUCTS:
            for task in dict.fromkeys(row.task for row in ours):
                table.add_row(task + before, *_list_alarms([row for row in ours if row.task == task]))
        if len({row.task for row in ours}) > 1:
            table.add_row(f"{part}, all{before}", *_list_alarms(ours))
    return table


PRODUCTS = ("product", "synthetic")
"""The parts whose tasks stand in rows of their own."""


def _list_alarms(ours: list[Row]) -> Iterator[str]:
    """The observed rate of one task, or the mean of several with the lowest and the highest of them."""
    for k in SIZES:
        for rate in RATES:
            chosen = [row for row in ours if (row.threshold, row.k) == (name_target(rate), k)]
            means = [100 * float(np.mean(row.false_alarms)) for row in chosen]
            spread = f" ({min(means):.0f} to {max(means):.0f})" if len(means) > 1 else ""
            yield f"{np.mean(means):.1f}{spread}" if means else "-"


def _tabulate_maps(found: list[dict[str, Any]]) -> Table:
    title = "Maps on synthetic defects, K=10: pixel AUROC; CPU seconds of fitting ten and of a picture"
    table = Table("product", "mean", *DEFECTS, "fit", "picture", title=title)
    for row in found:
        values = [100 * row["pixel_auroc"][kind] for kind in DEFECTS]
        cells = (f"{value:.0f}" for value in values)
        cost = f"{row['fit_seconds']:.2f}", f"{row['picture_seconds']:.3f}"
        table.add_row(row["product"], f"{np.mean(values):.1f}", *cells, *cost)
    return table


def _tabulate_stream(found: list[dict[str, Any]]) -> Table:
    title = "`fewone score` over a long folder (benchmarks/picture_stream.py): most MB in each tenth of the time"
    tenths = (f"{tenth}/{len(found[0]['peak_megabytes_by_tenth'])}" for tenth in range(1, 11))
    table = Table("pictures", *tenths, "CPU s", title=title)
    for row in found:
        peaks = (f"{peak:.0f}" for peak in row["peak_megabytes_by_tenth"])
        table.add_row(f"{row['judged']:,}", *peaks, f"{row['cpu_seconds']:.0f}")
    return table


def _tabulate_options(found: list[dict[str, Any]]) -> Table:
    title = "Options tried on validation products (benchmarks/picture_options.py): AUROC / balanced accuracy"
    table = Table("option", "products", *(f"K={k}" for k in SIZES), title=title)
    for option in dict.fromkeys(row["option"] for row in found):
        rows = {row["k"]: row for row in found if row["option"] == option}
        cells = (
            f"{100 * np.mean(rows[k]['auroc']):.1f} / {100 * np.mean(rows[k]['balanced_accuracy']):.1f}" for k in SIZES
        )
        table.add_row(option, str(len(rows[SIZES[0]]["tasks"])), *cells)
    return table


def _tabulate_rules(found: list[dict[str, Any]]) -> Table:
    title = "Thresholds tried on validation tasks (benchmarks/picture_choice.py): balanced accuracy / false alarms"
    parts = sorted(found[0]["balanced_accuracy"])
    table = Table("rule", "K", "mean", *parts, title=title)
    for row in found:
        balance, alarms = row["balanced_accuracy"], row["false_alarms"]
        cells = (f"{balance[part]:.1f} / {alarms[part]:.1f}" for part in parts)
        table.add_row(row["rule"], str(row["k"]), f"{np.mean(list(balance.values())):.1f}", *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("evaluate", "maps", "page"))
    parser.add_argument("--cache", type=Path, default=Path("picture-features"))
    parser.add_argument("--products", type=Path, default=Path("products"))
    parser.add_argument("--parts", nargs="*", default=["product", "synthetic", "cifar", "omniglot", "mnist"])
    parser.add_argument("--ours", action="store_true", help="judge the zoo's model anew where another version did")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.verb == "evaluate":
        evaluate(chosen.cache, chosen.products, chosen.parts, chosen.ours)
    elif chosen.verb == "maps":
        evaluate_maps()
    else:
        page()


if __name__ == "__main__":
    main()
