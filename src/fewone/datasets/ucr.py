"""The UCR archive of univariate series -> one task per class: its series against those of the dataset's other classes.

Read are the published NAME_TRAIN.tsv and NAME_TEST.tsv (below NAME/ or side by side) or NAME.npz with `values` (n,
length) and `labels` (n,); NaN pads short series at the end and marks lost values inside. A dataset keeps its own length
here (`read_datasets`, `make_tasks`); tasks that share one store, `ucr`, are resampled to `window` points, 128 unless
asked otherwise. `ucr/faults`: the anomalies are the class's own series, each with an injected fault.

Split by FAMILY with the seed: datasets of one family are the same kind of measurement, and what is learned on one
knows the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fewone.datasets.classes import ClassRows, OtherClasses
from fewone.datasets.fingerprint import with_fingerprint
from fewone.datasets.sources import Request
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits, generator_for
from fewone.errors import FewoneError
from fewone.faults import FAULTS, inject

Values = NDArray[np.float32]

POINTS = 128
LEAST_NORMALS = 8
"""A class of fewer series makes no task; its series are still anomalies of the others."""
LARGEST_CLASS = 100
"""So many series of a class are read, in the order of the files: the archive is very uneven."""
COPIES = 3
"""So many faulty copies of each normal."""
WEAKEST, STRONGEST = 0.35, 3.0
"""The strengths of injected faults, even in their logarithm: from hardly visible to plain."""
VALIDATION, TEST = 0.18, 0.3
"""The shares of the datasets whose families validate and test."""
PLAN = EvaluationProtocol(supports_per_task=3, normals=None, anomalies=None)

FAMILIES: dict[str, tuple[str, ...]] = {
    "phalanges": (
        *(f"{bone}PhalanxOutlineAgeGroup" for bone in ("Distal", "Middle", "Proximal")),
        *(f"{bone}PhalanxOutlineCorrect" for bone in ("Distal", "Middle", "Proximal")),
        *(f"{bone}PhalanxTW" for bone in ("Distal", "Middle", "Proximal")),
        "PhalangesOutlinesCorrect",
    ),
    "gestures": (
        *(f"AllGestureWiimote{axis}" for axis in "XYZ"),
        *(f"GestureMidAirD{axis}" for axis in "123"),
        *("GesturePebbleZ1", "GesturePebbleZ2", "PickupGestureWiimoteZ", "ShakeGestureWiimoteZ"),
    ),
    "uwave": ("UWaveGestureLibraryAll", *(f"UWaveGestureLibrary{axis}" for axis in "XYZ")),
    "cricket": ("CricketX", "CricketY", "CricketZ"),
    "gun point": ("GunPoint", "GunPointAgeSpan", "GunPointMaleVersusFemale", "GunPointOldVersusYoung"),
    "heart": (
        *("CinCECGTorso", "ECG200", "ECG5000", "ECGFiveDays", "TwoLeadECG"),
        *("NonInvasiveFetalECGThorax1", "NonInvasiveFetalECGThorax2"),
    ),
    "appliances": (
        *("ACSF1", "Computers", "ElectricDevices", "LargeKitchenAppliances", "SmallKitchenAppliances"),
        *("RefrigerationDevices", "ScreenType", "PowerCons", "HouseTwenty", "PLAID"),
    ),
    "faces": ("FaceAll", "FaceFour", "FacesUCR"),
    "words": ("FiftyWords", "WordSynonyms"),
    "eye movements": ("EOGHorizontalSignal", "EOGVerticalSignal"),
    "traffic loop": ("DodgerLoopDay", "DodgerLoopGame", "DodgerLoopWeekend"),
    "freezers": ("FreezerRegularTrain", "FreezerSmallTrain"),
    "diatoms": ("Adiac", "DiatomSizeReduction"),
    "silhouettes": ("BeetleFly", "BirdChicken", "ShapesAll"),
    "leaves": ("OSULeaf", "SwedishLeaf"),
    "food spectra": ("Beef", "Coffee", "Ham", "Meat", "OliveOil", "Strawberry", "Wine", "EthanolLevel"),
    "insects": ("InsectEPGRegularTrain", "InsectEPGSmallTrain", "InsectWingbeatSound"),
    "pigs": ("PigAirwayPressure", "PigArtPressure", "PigCVP"),
    "semg": ("SemgHandGenderCh2", "SemgHandMovementCh2", "SemgHandSubjectCh2"),
    "robots": ("SonyAIBORobotSurface1", "SonyAIBORobotSurface2"),
    "engines": ("FordA", "FordB"),
    "lightning": ("Lightning2", "Lightning7"),
    "mixed shapes": ("MixedShapesRegularTrain", "MixedShapesSmallTrain"),
    "haptics": ("Haptics", "InlineSkate"),
    "generated": ("BME", "CBF", "ShapeletSim", "SmoothSubspace", "SyntheticControl", "TwoPatterns", "UMD"),
}
"""Datasets that are the same kind of measurement; any other is a family of its own."""


@dataclass(frozen=True)
class SeriesDataset:
    """One dataset of the archive: values (n, length), classes (n,) counted from 0, at its own length."""

    name: str
    values: Values
    classes: NDArray[np.int64]

    @property
    def family(self) -> str:
        return find_family(self.name)


def find_family(name: str) -> str:
    return next((family for family, members in FAMILIES.items() if name in members), name)


def read_datasets(folder: Path) -> tuple[SeriesDataset, ...]:
    """Every dataset of a folder, by name."""
    archives = {path.stem: [path] for path in folder.glob("*.npz")}
    tables = {
        path.name.removesuffix("_TRAIN.tsv"): [path, path.with_name(path.name.replace("_TRAIN", "_TEST"))]
        for path in (*folder.glob("*_TRAIN.tsv"), *folder.glob("*/*_TRAIN.tsv"))
    }
    found = {**tables, **archives}
    return tuple(_read_dataset(name, found[name]) for name in sorted(found))


def _read_dataset(name: str, paths: Sequence[Path]) -> SeriesDataset:
    read = [_read_archive(path) if path.suffix == ".npz" else _read_table(path) for path in paths]
    width = max(values.shape[1] for values, _ in read)
    values = np.concatenate(
        [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=np.nan) for part, _ in read]
    )
    _, classes = np.unique(np.concatenate([labels for _, labels in read]), return_inverse=True)
    kept = np.sort(np.concatenate([np.flatnonzero(classes == one)[:LARGEST_CLASS] for one in np.unique(classes)]))
    return SeriesDataset(name, fill_gaps(values[kept]), classes[kept].astype(np.int64))


def _read_archive(path: Path) -> tuple[Values, NDArray[np.str_]]:
    try:
        with np.load(path, allow_pickle=False) as content:
            values, labels = content["values"].astype(np.float32), content["labels"].astype(str)
    except (OSError, ValueError, KeyError) as error:
        raise FewoneError(f"{path}: not a dataset with values and labels ({error}); take a whole copy") from error
    if values.ndim != 2 or labels.shape != values.shape[:1]:
        raise FewoneError(f"{path}: values (n, length) and labels (n,) expected, got {values.shape}, {labels.shape}")
    return values, labels


def _read_table(path: Path) -> tuple[Values, NDArray[np.str_]]:
    """A label, then the values, separated by tabs."""
    try:
        rows = np.loadtxt(path, delimiter="\t", dtype=np.float64, ndmin=2)
    except (OSError, ValueError) as error:
        raise FewoneError(f"{path}: not a table of a label and values per line ({error})") from error
    return rows[:, 1:].astype(np.float32), rows[:, 0].astype(str)


def fill_gaps(values: Values) -> Values:
    """Series (n, length) without NaN: short ones are stretched to the full length, gaps inside bridged by lines."""
    found = values.copy()
    for number in np.flatnonzero(np.isnan(values).any(axis=1)):
        known = np.flatnonzero(~np.isnan(values[number]))
        if len(known) < 2:
            found[number] = 0.0
            continue
        places = np.linspace(0.0, known[-1], values.shape[1])
        found[number] = np.interp(places, known, values[number, known])
    return found


def make_tasks(dataset: SeriesDataset, faults: Iterable[str] = (), seed: int = 0) -> tuple[Task, ...]:
    """A task per class, over one store of the dataset's own length; with faults, anomalies are faulty normals.

    A faulty series and the one that it was made of are one recording: they are never on both sides of an episode.
    """
    kinds = tuple(faults)
    values = dataset.values[:, None]
    count = int(dataset.classes.max()) + 1
    members = [torch.from_numpy(np.flatnonzero(dataset.classes == one)) for one in range(count)]
    names = [f"{dataset.name}/{one}" for one in range(count)]
    large = [one for one in range(count) if len(members[one]) >= LEAST_NORMALS]
    if not kinds:
        store = Store(torch.from_numpy(values), classes=torch.from_numpy(dataset.classes))
        rows = ClassRows(tuple(members))
        return tuple(
            Task(names[one], RowPool(store, members[one]), OtherClasses(store, rows, one), cluster=dataset.name)
            for one in large
        )
    faulty = [spoil(values, kinds, copy, f"{dataset.name} {seed}") for copy in range(COPIES)]
    size = len(values)
    store = Store(torch.from_numpy(np.concatenate([values, *faulty])), torch.arange(size).repeat(COPIES + 1))
    return tuple(
        Task(
            names[one],
            RowPool(store, members[one]),
            RowPool(store, torch.cat([members[one] + size * (copy + 1) for copy in range(COPIES)])),
            cluster=dataset.name,
        )
        for one in large
    )


def draw_faults(count: int, kinds: Sequence[str], copy: int, key: str) -> list[str]:
    """The kind of fault of each of `count` series: all kinds equally often, in random order."""
    order = torch.randperm(count, generator=generator_for("ucr", "kinds", copy, key)).tolist()
    return [kinds[(place + copy) % len(kinds)] for place in order]


def spoil(values: Values, kinds: Sequence[str], copy: int, key: str) -> Values:
    """Series (n, 1, length) with a fault each, of kinds and strengths fixed by the key."""
    chosen = np.array(draw_faults(len(values), kinds, copy, key))
    share = torch.rand(len(values), generator=generator_for("ucr", "strength", copy, key)).double().numpy()
    strength = WEAKEST * (STRONGEST / WEAKEST) ** share
    found = values.copy()
    for number, kind in enumerate(kinds):
        rows = np.flatnonzero(chosen == kind)
        if len(rows):
            found[rows] = inject(values[rows], kind, strength[rows], seed=1000 * copy + number)
    return found


def split_families(names: Iterable[str], seed: int) -> dict[str, str]:
    """train, validation or test for each dataset name: whole families, drawn by the seed."""
    families: dict[str, list[str]] = {}
    for name in sorted(names):
        families.setdefault(find_family(name), []).append(name)
    order = torch.randperm(len(families), generator=generator_for("ucr", "families", seed)).tolist()
    total = sum(map(len, families.values()))
    found: dict[str, str] = {}
    for members in (list(families.values())[position] for position in order):
        # A family joins the part that lacks most of its share.
        parts = list(found.values())
        missing = {
            "test": TEST - parts.count("test") / total,
            "validation": VALIDATION - parts.count("validation") / total,
            "train": 1.0 - TEST - VALIDATION - parts.count("train") / total,
        }
        part = max(missing, key=lambda one: missing[one])
        found.update(dict.fromkeys(members, part))
    return found


def resample(values: Values, points: int) -> Values:
    """Series (n, length) at so many points, joined by straight lines; longer ones are averaged over stretches first."""
    length = values.shape[1]
    if length == points:
        return values
    step = length / points
    places = np.arange(length)[:, None]
    centres = step * (np.arange(points) + 0.5) - 0.5
    weights = np.maximum(1.0 - np.abs(places - centres) / max(1.0, step), 0.0)
    found: Values = (values @ (weights / weights.sum(0, keepdims=True))).astype(np.float32)
    return found


def load_ucr(request: Request) -> TaskSplits:
    """All datasets of the folder in one store, resampled to `window` points."""
    points = request.options.window or POINTS
    if points < 16:
        raise FewoneError(f"dataset {request.name}: window is {points}: at least 16 points are needed")
    datasets = read_datasets(request.folder)
    parts = split_families((dataset.name for dataset in datasets), request.options.seed)
    kinds = tuple(FAULTS) if request.variant == "faults" else ()
    tasks: dict[str, list[Task]] = {"train": [], "validation": [], "test": []}
    for dataset in datasets:
        even = SeriesDataset(dataset.name, resample(dataset.values, points), dataset.classes)
        tasks[parts[dataset.name]] += make_tasks(even, kinds, request.options.seed)
    train, validation, test = _join_stores([tasks["train"], tasks["validation"], tasks["test"]])
    return with_fingerprint(
        TaskSplits(
            request.name,
            train,
            validation,
            test,
            shape=(1, points),
            preparation=InputScaling(standardize=True),
            plan=PLAN,
            smallest_query=2,
        )
    )


def _join_stores(parts: Sequence[Sequence[Task]]) -> list[tuple[Task, ...]]:
    """The same tasks over one store, as everything that trains expects them."""
    stores: dict[int, Store] = {}
    for tasks in parts:
        for task in tasks:
            stores.setdefault(id(task.normal.store), task.normal.store)
    starts = dict(zip(stores, np.cumsum([0, *(len(store.values) for store in stores.values())]).tolist(), strict=False))
    recordings = [store.recording for store in stores.values()]
    recording = None
    if all(one is not None for one in recordings):
        recording = torch.cat([one + start for one, start in zip(recordings, starts.values(), strict=True)])
    whole = Store(torch.cat([store.values for store in stores.values()]), recording)

    def move(task: Task) -> Task:
        start = starts[id(task.normal.store)]
        normal, anomalous = task.normal.rows() + start, task.anomalous.rows() + start
        return Task(task.name, RowPool(whole, normal), RowPool(whole, anomalous), task.fixed_split, task.cluster)

    return [tuple(map(move, tasks)) for tasks in parts]
