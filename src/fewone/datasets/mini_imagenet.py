"""miniImageNet: one task per class of photographs, from either of the two public layouts."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

from fewone.datasets.classes import fingerprint_classes, make_class_tasks
from fewone.datasets.image_cache import LabelledImages, decode_once, key_of_files
from fewone.datasets.image_files import open_image, unreadable
from fewone.datasets.sources import Request
from fewone.episodes import EvaluationProtocol, InputScaling, Store, TaskSplits
from fewone.errors import FewoneError

SIZE = 84
SPLITS = ("train", "val", "test")
SUFFIXES = (".jpg", ".jpeg", ".png")
# Brightness 0.5 becomes 0 and its usual deviation of about a quarter becomes 1.
PHOTOGRAPHS = InputScaling(scale=1 / (255 * 0.25), shift=-2.0)


def load_mini_imagenet(request: Request) -> TaskSplits:
    """Ravi & Larochelle's classes: train.csv, val.csv, test.csv beside the images, or train|val|test/CLASS/*.jpg."""
    photographs = list_photographs(request.folder)
    paths = [path for path, _ in photographs]
    try:
        key = key_of_files(paths)
    except OSError as error:
        raise unreadable(Path(error.filename), error) from None
    decoded = decode_once(request.options.cache_dir, f"miniimagenet-{SIZE}", key, lambda: _decode(photographs))
    store = Store(decoded.images, classes=decoded.labels)
    train, validation, test = (make_class_tasks(store, decoded.rows_below(f"{split}/")) for split in SPLITS)
    return TaskSplits(
        request.name,
        train,
        validation,
        test,
        shape=(3, SIZE, SIZE),
        preparation=PHOTOGRAPHS,
        plan=EvaluationProtocol(supports_per_task=20, normals=300, anomalies=300),
        classes_exclude_each_other=True,
        fingerprint=fingerprint_classes(decoded.images, (train, validation, test)),
    )


def list_photographs(folder: Path) -> list[tuple[Path, str]]:
    """Each file with its class as "SPLIT/CLASS", in an order that does not depend on the file system."""
    listed: list[tuple[Path, str]] = []
    for split in SPLITS:
        table = folder / f"{split}.csv"
        found = _list_table(folder, table, split) if table.is_file() else _list_folders(folder / split, split)
        if not found:
            raise FewoneError(
                f"{folder}: no photograph for the split {split}; it wants {split}.csv or {split}/CLASS/*.jpg"
            )
        listed += found
    return listed


def _list_table(folder: Path, table: Path, split: str) -> list[tuple[Path, str]]:
    """The rows filename,label of one of the published tables; the files lie in images/ or beside it."""
    images = folder / "images" if (folder / "images").is_dir() else folder
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FewoneError(f"{table}: not a CSV file ({error}); download it again") from None
    except OSError as error:
        raise unreadable(table, error) from None
    if not rows or rows[0] != ["filename", "label"]:
        raise FewoneError(f"{table}: the first line is not filename,label; download it again")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2:
            raise FewoneError(f"{table}: line {number} has {len(row)} fields where filename,label are two; fix it")
        if Path(row[0]).name != row[0]:
            raise FewoneError(f"{table}: line {number} names {row[0]!r}, which is not a plain file name; fix it")
    return [(images / name, f"{split}/{label}") for name, label in sorted(rows[1:], key=lambda row: (row[1], row[0]))]


def _list_folders(folder: Path, split: str) -> list[tuple[Path, str]]:
    """CLASS/*.jpg, two levels and no deeper: a link that leads back up is never followed."""
    listed: list[tuple[Path, str]] = []
    try:
        classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
        for members in classes:
            photographs = sorted(entry for entry in members.iterdir() if entry.suffix.lower() in SUFFIXES)
            if not photographs:
                raise FewoneError(f"{members}: a class without a .jpg or .png; add images or remove the folder")
            listed += [(path, f"{split}/{members.name}") for path in photographs]
    except OSError as error:
        raise unreadable(folder, error) from None
    return listed


def _decode(photographs: list[tuple[Path, str]]) -> LabelledImages:
    images = np.empty((len(photographs), 3, SIZE, SIZE), np.uint8)
    numbers: dict[str, int] = {}
    for number, (path, name) in enumerate(photographs):
        numbers.setdefault(name, len(numbers))
        try:
            content = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        image = open_image(content, str(path), SIZE, SIZE).convert("RGB")
        images[number] = np.asarray(image).transpose(2, 0, 1)
    labels = torch.tensor([numbers[name] for _, name in photographs])
    return LabelledImages(torch.from_numpy(images), labels, tuple(numbers))
