"""Decoded images kept in a cache folder, so that thousands of small files are decoded once.

A cache that cannot be written or read is never an error: the images are decoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fewone.datasets.classes import group_rows
from fewone.errors import FewoneWarning


@dataclass(frozen=True)
class LabelledImages:
    """images (N, channels, height, width) uint8; labels (N,) int64 point into the class names."""

    images: Tensor
    labels: Tensor
    names: tuple[str, ...]

    def rows_below(self, prefix: str) -> dict[str, Tensor]:
        """The rows of each class whose name starts with the prefix, by the rest of its name."""
        rows = group_rows(self.labels, len(self.names))
        return {
            name.removeprefix(prefix): members
            for name, members in zip(self.names, rows, strict=True)
            if name.startswith(prefix)
        }


def key_of_files(paths: Iterable[Path]) -> str:
    """Changes when a file is added, removed or replaced (name, size, time of change)."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(f"{path.name}\x1f{status.st_size}\x1f{status.st_mtime_ns}\x1e".encode())
    return digest.hexdigest()[:16]


def decode_once(cache_dir: Path, name: str, key: str, decode: Callable[[], LabelledImages]) -> LabelledImages:
    """The images from the cache file of this name and key; else decoded now and kept there."""
    path = cache_dir / f"{name}-{key}.safetensors"
    cached = _read(path)
    if cached is not None:
        return cached
    images = decode()
    try:
        _write(path, images)
    except OSError as error:
        warnings.warn(
            f"{path}: cannot be written ({error.strerror or error}), so the images are decoded again next time;"
            f" name a folder you may write to in FEWONE_CACHE",
            FewoneWarning,
            stacklevel=2,
        )
    return images


def _read(path: Path) -> LabelledImages | None:
    """None where there is no such file or it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            names = tuple(json.loads(file.metadata()["names"]))
            return LabelledImages(file.get_tensor("images"), file.get_tensor("labels"), names)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _write(path: Path, images: LabelledImages) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".part")
    os.close(handle)
    try:
        tensors = {"images": images.images.contiguous(), "labels": images.labels.to(torch.int64)}
        try:
            save_file(tensors, aside, metadata={"names": json.dumps(images.names)})
        except SafetensorError as error:
            raise OSError(str(error)) from None
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)
