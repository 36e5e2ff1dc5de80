"""Omniglot: one task per handwritten character; the alphabets of the evaluation set are the test tasks."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from fewone.datasets.classes import fingerprint_classes, make_class_tasks
from fewone.datasets.image_cache import LabelledImages, decode_once, key_of_files
from fewone.datasets.image_files import open_image, unreadable
from fewone.datasets.sources import Request
from fewone.episodes import EvaluationProtocol, InputScaling, Store, TaskSplits, generator_for
from fewone.errors import FewoneError

PARTS = ("images_background", "images_evaluation")
DRAWN_SIZE, SIZE = 105, 28
VALIDATION_CHARACTERS = 80


def load_omniglot(request: Request) -> TaskSplits:
    """The official background characters, 80 of them held out for validation, and the evaluation characters."""
    archives = [request.folder / f"{part}.zip" for part in PARTS]
    drawings = decode_once(
        request.options.cache_dir, f"omniglot-{SIZE}", key_of_files(archives), lambda: _read_archives(archives)
    )
    store = Store(drawings.images, classes=drawings.labels)
    background = drawings.rows_below(f"{PARTS[0]}/")
    if len(background) <= VALIDATION_CHARACTERS:
        raise FewoneError(
            f"{archives[0]}: {len(background)} characters where more than the {VALIDATION_CHARACTERS} for validation"
            f" are needed; download it again"
        )
    held_out = _choose_validation(sorted(background))
    train = make_class_tasks(store, {name: rows for name, rows in background.items() if name not in held_out})
    validation = make_class_tasks(store, {name: rows for name, rows in background.items() if name in held_out})
    test = make_class_tasks(store, drawings.rows_below(f"{PARTS[1]}/"))
    return TaskSplits(
        request.name,
        train,
        validation,
        test,
        shape=(1, SIZE, SIZE),
        preparation=InputScaling(scale=1 / 255),
        plan=EvaluationProtocol(supports_per_task=5, normals=10, anomalies=10),
        classes_exclude_each_other=True,
        fingerprint=fingerprint_classes(drawings.images, (train, validation, test)),
    )


def _choose_validation(characters: list[str]) -> frozenset[str]:
    """The same 80 characters in every run: they are part of the dataset, not of an experiment's seed."""
    order = torch.randperm(len(characters), generator=generator_for("omniglot", "validation characters"))
    return frozenset(characters[position] for position in order[:VALIDATION_CHARACTERS].tolist())


def _read_archives(archives: list[Path]) -> LabelledImages:
    """Every drawing of both archives, shrunk, in the order of their names."""
    images: list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]] = []
    labels: list[int] = []
    numbers: dict[str, int] = {}
    for path, part in zip(archives, PARTS, strict=True):
        try:
            with zipfile.ZipFile(path) as archive:
                for member in _list_drawings(path, part, archive):
                    image = open_image(archive.read(member), f"{path}: {member}", DRAWN_SIZE, DRAWN_SIZE)
                    images.append(_shrink(image))
                    character = member.rpartition("/")[0]
                    labels.append(numbers.setdefault(character, len(numbers)))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise FewoneError(f"{path}: not a whole zip archive ({error}); download it again") from None
        except OSError as error:
            raise unreadable(path, error) from None
    return LabelledImages(torch.from_numpy(np.stack(images)[:, None]), torch.tensor(labels), tuple(numbers))


def _list_drawings(path: Path, part: str, archive: zipfile.ZipFile) -> list[str]:
    """The names PART/ALPHABET/CHARACTER/DRAWING.png, sorted; other entries (folders, system files) are passed over."""
    members = sorted(
        name
        for name in archive.namelist()
        if name.startswith(f"{part}/") and name.count("/") == 3 and name.lower().endswith(".png")
    )
    if not members:
        raise FewoneError(f"{path}: holds no {part}/ALPHABET/CHARACTER/*.png; download it again")
    return members


def _shrink(image: Image.Image) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """105 x 105, black ink -> (28, 28) uint8, ink 255: each pixel is the mean of the area it covers."""
    ink = ImageOps.invert(image.convert("L"))
    return np.asarray(ink.resize((SIZE, SIZE), Image.Resampling.BOX))
