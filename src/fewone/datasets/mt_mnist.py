"""Multi-task MNIST: recognise one digit among ten; the digit of the name is the test task, 9 the validation task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewone.datasets.classes import ClassRows, OtherClasses, fingerprint_classes, group_rows, make_class_tasks
from fewone.datasets.image_files import read_idx
from fewone.datasets.sources import Request
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits
from fewone.errors import FewoneError

VALIDATION_DIGIT = 9


def load_mt_mnist(request: Request) -> TaskSplits:
    """Pools as the paper's: no image and no digit of validation or test is ever seen in training."""
    test_digit = int(request.variant)
    train_images, train_labels = _read_part(request.folder, "train")
    test_images, test_labels = _read_part(request.folder, "t10k")
    labels = torch.from_numpy(np.concatenate([train_labels, test_labels])).to(torch.int64)
    values = torch.from_numpy(np.concatenate([train_images, test_images])[:, None])
    store = Store(values, classes=labels)

    first = len(train_labels)
    half = first + len(test_labels) // 2
    drawn, early, late = (_rows_of_digits(labels, *part) for part in ((0, first), (first, half), (half, len(labels))))
    held_out = (test_digit, VALIDATION_DIGIT)
    train = make_class_tasks(store, {str(digit): drawn[digit] for digit in range(10) if digit not in held_out})
    validation = Task(
        str(VALIDATION_DIGIT),
        RowPool(store, drawn[VALIDATION_DIGIT]),
        OtherClasses(store, ClassRows(tuple(late[digit] for digit in range(10) if digit not in held_out))),
    )
    test = Task(
        str(test_digit),
        RowPool(store, torch.cat([drawn[test_digit], early[test_digit], late[test_digit]])),
        OtherClasses(store, ClassRows(early), test_digit),
    )
    return TaskSplits(
        request.name,
        train,
        (validation,),
        (test,),
        shape=(1, 28, 28),
        preparation=InputScaling(scale=1 / 255),
        plan=EvaluationProtocol(supports_per_task=20, normals=2000, anomalies=2000),
        classes_exclude_each_other=True,
        fingerprint=fingerprint_classes(values, (train, (validation,), (test,))),
    )


def _rows_of_digits(labels: Tensor, start: int, stop: int) -> tuple[Tensor, ...]:
    return tuple(rows + start for rows in group_rows(labels[start:stop], 10))


def _read_part(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (N, 28, 28) and digits (N,) of the part "train" or "t10k"."""
    images = read_idx(path := folder / f"{part}-images-idx3-ubyte.gz")
    digits = read_idx(labels_path := folder / f"{part}-labels-idx1-ubyte.gz")
    if images.shape[1:] != (28, 28):
        raise FewoneError(f"{path}: images of shape {images.shape[1:]} where MNIST has 28 x 28; download it again")
    if digits.shape != images.shape[:1]:
        raise FewoneError(f"{labels_path}: shape {digits.shape} for {len(images)} images; download both again")
    if digits.max(initial=0) > 9:
        raise FewoneError(f"{labels_path}: label {digits.max()} where MNIST has digits 0 to 9; download it again")
    return images, digits
