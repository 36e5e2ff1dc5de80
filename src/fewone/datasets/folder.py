"""The user's own history, PATH/TASK/normal|anomalous/* or PATH/TASK.npz, -> tasks, split by task.

group: "file" (each file is a recording, the default), "prefix:_" (its name up to the first _ is, in whatever task or
label) or "column:NAME" (a column of its .csv or .parquet says which). Tasks that share a recording are never split.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fewone.datasets.example_files import SUFFIXES, Array, read_archive, read_file
from fewone.datasets.fingerprint import with_fingerprint
from fewone.datasets.folder_splits import SPLITS, draw_splits, read_splits
from fewone.datasets.sources import LoadOptions, Request
from fewone.datasets.ucr import COPIES, spoil
from fewone.documents import DocumentError, from_plain
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits
from fewone.errors import FewoneError
from fewone.faults import FAULTS
from fewone.picture_files import PICTURES, FullScale, decode, shrink, to_bytes
from fewone.reading import ReadOptions, is_recording, read_with

LABELS = ("normal", "anomalous")
SHORTEST = 16
"""Faults need so many samples."""

READING = "reading.toml"
"""What is said of a folder's files where looking at them would not do: `ReadOptions` by name."""


@dataclass(frozen=True)
class Example:
    """One example of one task, where it came from and which recording it belongs to."""

    values: Array
    task: str
    label: str
    origin: str
    recording: str


@dataclass(frozen=True)
class FolderTasks:
    """All tasks of a folder, before any split: what a detector needs. Tasks without anomalies are allowed."""

    tasks: tuple[Task, ...]
    shape: tuple[int, ...]
    preparation: InputScaling
    recordings: dict[str, frozenset[str]]


def read_folder(path: Path, options: LoadOptions | None = None) -> FolderTasks:
    """The tasks of a folder; a task may have normals only."""
    options = options or LoadOptions()
    names = _list_tasks(path)
    reading = read_reading(path)
    found = [_read_task(path, name, options, reading) for name in names]
    if options.any_size:
        found = [_see_alike(members) for members in found]
    examples = [example for task in found for example in task]
    _check_shapes(examples, options)
    for name, members in zip(names, found, strict=True):
        if not any(example.label == "normal" for example in members):
            raise FewoneError(f"{path / name}: has no normal example; put at least one into {name}/normal")
    store = _build_store(examples)
    image, whole = store.values.dim() == 4, store.values.dtype == torch.uint8
    return FolderTasks(
        _build_tasks(names, examples, store),
        shape=(0, 0, 0) if options.any_size else tuple(examples[0].values.shape),
        preparation=_choose_preparation(image, whole, options),
        recordings={
            name: frozenset(example.recording for example in members)
            for name, members in zip(names, found, strict=True)
        },
    )


def _choose_preparation(image: bool, whole: bool, options: LoadOptions) -> InputScaling:
    if options.any_size:
        return InputScaling()
    return InputScaling(1 / 255 if whole else 1.0) if image else InputScaling(standardize=True)


def _see_alike(members: list[Example]) -> list[Example]:
    """The pictures of one task as a detector sees them: (3, SIDE, SIDE), 255 white by the full scale of the normals."""
    for example in members:
        if example.values.ndim != 3:
            raise FewoneError(f"{example.origin}: is a series, and the network is for pictures; choose another network")
    seen = [_shrink(example) for example in members]
    normals = [planes for planes, example in zip(seen, members, strict=True) if example.label == "normal"]
    if not normals or all(planes.dtype == np.uint8 for planes in seen):
        return [replace(example, values=planes) for example, planes in zip(members, seen, strict=True)]
    scale = FullScale.of(np.stack([planes for planes in normals if planes.dtype == normals[0].dtype]))
    return [replace(one, values=to_bytes(planes, scale)) for one, planes in zip(members, seen, strict=True)]


def _shrink(example: Example) -> Array:
    channels = len(example.values)
    if channels not in (1, 3):
        raise FewoneError(f"{example.origin}: has {channels} channels; pictures are grey (1) or colour (3)")
    return shrink(np.moveaxis(example.values, 0, -1))


def read_reading(path: Path) -> ReadOptions:
    """What PATH/reading.toml says of the files: columns, time, decimal, separator, resample, ..."""
    place = path / READING
    if not place.exists():
        return ReadOptions()
    try:
        return from_plain(ReadOptions, tomllib.loads(place.read_text(encoding="utf-8")), ReadOptions())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, DocumentError) as error:
        raise FewoneError(f"{place}: {error}") from error


def describe_reading(path: Path) -> str | None:
    """How the first recording of a folder is read, in one line; None where it holds pictures or archives alone."""
    for file in sorted(path.glob("*/normal/*")):
        if is_recording(file) and not file.name.startswith("."):
            return read_with(file, read_reading(path)).said
    return None


def load_folder(request: Request) -> TaskSplits:
    """folder:PATH for meta-training: every task needs anomalies; splits.toml, or a seeded split, says who tests."""
    content = read_folder(request.folder, request.options)
    anomalies = request.options.anomalies
    if anomalies == "labelled" and not request.options.exclusive:
        _require_anomalies(request.folder, content.tasks)
    file = request.folder / "splits.toml"
    splits = (
        read_splits(file, content.recordings)
        if file.exists()
        else draw_splits(request.folder, content.recordings, request.options.seed)
    )
    by_name = {task.name: task for task in content.tasks}
    if anomalies != "labelled":
        labelled = set(by_name) if anomalies == "both" else set(splits["test"])
        by_name = {task.name: task for task in inject_faults(request.folder, content, labelled, splits["test"])}
    train, validation, test = (tuple(by_name[name] for name in splits[split]) for split in SPLITS)
    if request.options.exclusive:
        validation, test = (
            add_others(validation, train),
            tuple(
                task if len(task.anomalous) else add_others((task,), (*test, *validation, *train))[0] for task in test
            ),
        )
        train = add_others(train, ())
        _require_anomalies(request.folder, (*train, *validation, *test))
    return with_fingerprint(
        TaskSplits(
            request.name,
            train,
            validation,
            test,
            shape=content.shape,
            preparation=content.preparation,
            plan=EvaluationProtocol(supports_per_task=5, normals=None, anomalies=None),
            smallest_query=2,
        )
    )


def _require_anomalies(folder: Path, tasks: Iterable[Task]) -> None:
    for task in tasks:
        if not len(task.anomalous):
            raise FewoneError(
                f"{folder / task.name}: has no anomalous example, and meta-training judges every adaptation on some;"
                f" add {task.name}/anomalous, train by --anomalies injected (series; --exclusive needs two training"
                f" tasks), or take the task out and fit a detector on its normals"
            )


def add_others(tasks: Sequence[Task], further: Sequence[Task]) -> tuple[Task, ...]:
    """Tasks that exclude each other: normals of the other tasks are anomalies, too; where there is but one, normals of
    further tasks.

    Where a task has anomalies already, at most as many are added, evenly from all the others: they count alike.
    """

    def add(task: Task) -> Task:
        own = task.anomalous.rows()
        among = [other for other in tasks if other.unit != task.unit] or further
        others = torch.cat([own[:0], *(other.normal.rows() for other in among if other.unit != task.unit)])
        if len(own) and len(others):
            others = others[torch.linspace(0, len(others) - 1, min(len(own), len(others))).round().long()]
        return replace(task, anomalous=RowPool(task.normal.store, torch.cat([own, others])))

    return tuple(add(task) for task in tasks)


def inject_faults(
    folder: Path, content: FolderTasks, labelled: Collection[str], judged: Collection[str]
) -> Iterator[Task]:
    """The tasks with normals that were given a fault as anomalies: `labelled` ones keep their own beside these, and
    `judged` ones their own alone, where they have some. A faulty series and what it was made of are one recording.
    """
    store = content.tasks[0].normal.store
    if len(content.shape) != 2 or content.shape[1] < SHORTEST:
        raise FewoneError(
            f"{folder}: faults are injected into series of at least {SHORTEST} samples, and these examples are"
            f" {'x'.join(map(str, content.shape))}; train by --anomalies labelled"
        )
    normal = torch.cat([task.normal.rows() for task in content.tasks])
    values = store.values[normal].numpy()
    faulty = [torch.from_numpy(spoil(values, tuple(FAULTS), copy, "folder")) for copy in range(COPIES)]
    recording = torch.arange(len(store.values)) if store.recording is None else store.recording
    wider = Store(
        torch.cat([store.values, *faulty]),
        torch.cat([recording, *(recording[normal] for _ in faulty)]),
    )
    first = len(store.values) + torch.arange(COPIES)[:, None] * len(normal)
    place = 0
    for task in content.tasks:
        count = len(task.normal)
        injected = (first + torch.arange(place, place + count)).flatten()
        place += count
        own = task.anomalous.rows()
        if task.name in judged and len(own):
            rows = own
        else:
            rows = torch.cat([own, injected]) if task.name in labelled else injected
        yield replace(task, normal=RowPool(wider, task.normal.rows()), anomalous=RowPool(wider, rows))


def _list_tasks(path: Path) -> list[str]:
    """The tasks' names, in order: each a folder or an .npz file."""
    if not path.is_dir():
        raise FewoneError(f"{path}: no such folder; give the folder that holds TASK/normal and TASK/anomalous")
    names: list[str] = []
    for entry in _entries(path):
        if entry.name in ("splits.toml", READING):
            continue
        if not entry.is_dir() and entry.suffix.lower() != ".npz":
            raise FewoneError(
                f"{entry}: neither a task's folder nor TASK.npz nor splits.toml nor {READING}; take it out"
            )
        name = entry.name if entry.is_dir() else entry.stem
        if name in names:
            raise FewoneError(f"{path / name}: is there both as a folder and as .npz; keep one of them")
        names.append(name)
    if not names:
        raise FewoneError(f"{path}: holds no task; put files into TASK/normal and TASK/anomalous, or write TASK.npz")
    return names


def _entries(folder: Path) -> list[Path]:
    """What a folder holds, in order, without hidden files; links that lead nowhere or round in a circle are errors."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if entry.is_symlink():
            if not entry.exists():
                raise FewoneError(f"{entry}: is a symbolic link that leads nowhere or back to itself; remove it")
            if entry.is_dir() and entry.resolve() in (folder.resolve(), *folder.resolve().parents):
                raise FewoneError(f"{entry}: is a symbolic link to a folder that holds it, a circle; remove it")
    return entries


def _read_task(path: Path, name: str, options: LoadOptions, reading: ReadOptions) -> list[Example]:
    folder = path / name
    if not folder.is_dir():
        return list(_read_task_archive(path / f"{name}.npz", name, options))
    if not (folder / "normal").is_dir():
        raise FewoneError(f"{folder}: has no folder 'normal'; put the task's normal examples there")
    for entry in _entries(folder):
        if entry.name not in LABELS:
            raise FewoneError(f"{entry}: a task holds 'normal' and 'anomalous' and nothing else; take it out")
    examples: list[Example] = []
    for label in LABELS:
        if (folder / label).exists():
            found = [
                example
                for file in _entries(folder / label)
                for example in _read_example(file, name, label, options, reading)
            ]
            if not found:
                kinds = " ".join(SUFFIXES)
                raise FewoneError(f"{folder / label}: is empty; put examples ({kinds}) there or remove the folder")
            examples += found
    return examples


def _read_task_archive(path: Path, name: str, options: LoadOptions) -> Iterator[Example]:
    for label, array in read_archive(path).items():
        for number, values in enumerate(array, start=1):
            origin = f"{path}, {label} {number}"
            for window in _cut(values, origin, options):
                yield Example(window, name, label, origin, recording=origin)


def _read_example(file: Path, task: str, label: str, options: LoadOptions, reading: ReadOptions) -> Iterator[Example]:
    if file.is_dir():
        raise FewoneError(f"{file}: is a folder; examples lie directly in {task}/{label}")
    rule, _, argument = (options.group or "file").partition(":")
    if (rule, bool(argument)) not in (("file", False), ("prefix", True), ("column", True)):
        raise FewoneError(f"group {options.group!r} is not known; say 'file', 'prefix:SEPARATOR' or 'column:NAME'")
    if options.any_size and file.suffix.lower() in PICTURES:
        decoded = decode(file)
        if decoded.planes is None:
            raise FewoneError(str(decoded.fault))
        recording = str(file) if rule != "prefix" else file.stem.split(argument)[0]
        yield Example(decoded.planes, task, label, str(file), recording)
        return
    for piece in read_file(file, argument if rule == "column" else None, reading):
        recording = str(file) if rule == "file" else piece.group or file.stem.split(argument)[0]
        for window in _cut(piece.values, str(file), options):
            yield Example(window, task, label, str(file), recording)


def _cut(values: Array, origin: str, options: LoadOptions) -> Iterator[Array]:
    """A series (channels, length) as windows (channels, window), one every stride; images and whole series as is."""
    window = options.window
    if window is None or values.ndim == 3:
        yield values
        return
    stride = window if options.stride is None else options.stride
    if window < 1 or stride < 1:
        raise FewoneError(f"window {window} and stride {stride} must be at least 1")
    if values.shape[1] < window:
        raise FewoneError(
            f"{origin}: has {values.shape[1]} samples, fewer than the window of {window}; take it out or cut shorter"
        )
    for start in range(0, values.shape[1] - window + 1, stride):
        yield values[:, start : start + window]


def _check_shapes(examples: Sequence[Example], options: LoadOptions) -> None:
    """All examples must have the shape of the first."""
    first = examples[0]
    for example in examples:
        if example.values.shape == first.values.shape:
            continue
        same = example.values.ndim == first.values.ndim == 2 and len(example.values) == len(first.values)
        remedy = "cut all to one length with --window" if same and options.window is None else "make them alike"
        if example.values.ndim == first.values.ndim == 3:
            remedy += ", or train on the features of a frozen network, which takes every size (extra pictures)"
        raise FewoneError(
            f"{example.origin}: has {_describe(example.values)}, {first.origin} has {_describe(first.values)}; {remedy}"
        )


def _describe(values: Array) -> str:
    if values.ndim == 3:
        return f"{values.shape[2]}x{values.shape[1]} pixels in {values.shape[0]} channels"
    return f"{values.shape[1]} samples in {values.shape[0]} channels"


def _build_store(examples: Sequence[Example]) -> Store:
    """Every example once. Recordings of one example each need no rule, so they are not kept."""
    whole = all(example.values.dtype == np.uint8 for example in examples)
    values = np.stack([example.values for example in examples]).astype(np.uint8 if whole else np.float32, copy=False)
    numbers: dict[str, int] = {}
    recording = torch.tensor([numbers.setdefault(example.recording, len(numbers)) for example in examples])
    return Store(torch.from_numpy(values), recording if len(numbers) < len(examples) else None)


def _build_tasks(names: Sequence[str], examples: Sequence[Example], store: Store) -> tuple[Task, ...]:
    rows: dict[tuple[str, str], list[int]] = {(name, label): [] for name in names for label in LABELS}
    for number, example in enumerate(examples):
        rows[example.task, example.label].append(number)
    pools = {key: RowPool(store, torch.tensor(numbers, dtype=torch.int64)) for key, numbers in rows.items()}
    return tuple(Task(name, pools[name, "normal"], pools[name, "anomalous"]) for name in names)
