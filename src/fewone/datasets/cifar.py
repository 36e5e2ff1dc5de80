"""CIFAR-FS and FC100: one task per class of CIFAR-100, in two ways to share the classes among the splits."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fewone.datasets.classes import fingerprint_classes, group_rows, make_class_tasks
from fewone.datasets.image_files import unreadable
from fewone.datasets.sources import Request
from fewone.episodes import EvaluationProtocol, InputScaling, Store, TaskSplits
from fewone.errors import FewoneError

SHAPE = (3, 32, 32)
ROW = 2 + 3 * 32 * 32
# Brightness 0.5 becomes 0 and its usual deviation of about a quarter becomes 1.
PHOTOGRAPHS = InputScaling(scale=1 / (255 * 0.25), shift=-2.0)


def load_cifar_fs(request: Request) -> TaskSplits:
    """Bertinetto et al.: 64 / 16 / 20 classes drawn at random."""
    return _load(request, "cifar_fs")


def load_fc100(request: Request) -> TaskSplits:
    """Oreshkin et al.: 60 / 20 / 20 classes, whole superclasses, so that the splits are less alike."""
    return _load(request, "fc100")


def _load(request: Request, division: str) -> TaskSplits:
    """All 600 images of a class, training and test file together."""
    lists = json.loads(files("fewone.datasets").joinpath("cifar100_splits.json").read_text())
    names = cast(list[str], lists["fine_names"])
    content = _read_rows([request.folder / "train.bin", request.folder / "test.bin"])
    labels = content[:, 1].to(torch.int64)
    # A view into the rows as read: the labels between the images cost nothing, a copy would cost 184 MB.
    store = Store(content[:, 2:].view(-1, *SHAPE), classes=labels)
    rows = dict(zip(names, group_rows(labels, len(names)), strict=True))
    for name, members in rows.items():
        if not len(members):
            raise FewoneError(
                f"{request.folder}: no image of the class {name} in train.bin, test.bin; download it again"
            )
    train, validation, test = (
        make_class_tasks(store, {name: rows[name] for name in lists[division][split]})
        for split in ("train", "validation", "test")
    )
    return TaskSplits(
        request.name,
        train,
        validation,
        test,
        shape=SHAPE,
        preparation=PHOTOGRAPHS,
        plan=EvaluationProtocol(supports_per_task=20, normals=300, anomalies=300),
        classes_exclude_each_other=True,
        fingerprint=fingerprint_classes(content, (train, validation, test)),
    )


def _read_rows(paths: list[Path]) -> Tensor:
    """The rows of all files, read straight into one array (N, 3074) uint8: coarse, fine label and R, G, B planes."""
    counts = [_count_rows(path) for path in paths]
    # Not numpy.empty: the huge pages it asks for made this three times slower than reading into ordinary ones.
    content = torch.empty((sum(counts), ROW), dtype=torch.uint8)
    rows = content.numpy()
    start = 0
    for path, count in zip(paths, counts, strict=True):
        part = rows[start : start + count]
        try:
            with path.open("rb", buffering=0) as file:
                view, at = part.reshape(-1).data, 0
                while at < len(view) and (got := file.readinto(view[at:])):
                    at += got
        except OSError as error:
            raise unreadable(path, error) from None
        wrong = np.flatnonzero((part[:, 0] > 19) | (part[:, 1] > 99))
        if len(wrong):
            raise FewoneError(
                f"{path}: row {wrong[0]} starts with the labels {part[wrong[0], 0]}, {part[wrong[0], 1]} where"
                f" CIFAR-100 has 0-19, 0-99; use the binary version of CIFAR-100"
            )
        start += count
    return content


def _count_rows(path: Path) -> int:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from None
    if size == 0 or size % ROW:
        raise FewoneError(f"{path}: {size} bytes are not whole rows of {ROW}; unpack or download it again")
    return size // ROW
