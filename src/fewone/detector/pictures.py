"""Pictures of any size as people have them -> planes of one size, for models whose shape leaves the sides open.

Enters: arrays, lists of arrays of mixed sizes, lists of files. Leaves: values (n, 3, SIDE, SIDE), 0 black, 255 white.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fewone.errors import FewoneError, InputError
from fewone.picture_files import SIDE, FullScale, check_pictures, decode, shrink, to_bytes
from fewone.picture_files import takes_any_picture as takes_any_picture

Size = tuple[int, int]


@dataclass(frozen=True)
class Seen:
    """Planes (3, SIDE, SIDE) of each picture as stored, and the sizes (height, width) of the originals."""

    planes: list[NDArray[Any]]
    sizes: list[Size]

    def find_full_scale(self) -> FullScale:
        """What white is among these: of the type of the first, by all pictures of that type."""
        kind = self.planes[0].dtype
        return FullScale.of(np.stack([planes for planes in self.planes if planes.dtype == kind]))

    def as_values(self, scale: FullScale) -> Tensor:
        """(n, 3, SIDE, SIDE) in whole numbers, 255 white."""
        if not self.planes:
            return torch.zeros(0, 3, SIDE, SIDE)
        return torch.from_numpy(np.stack([to_bytes(planes, scale) for planes in self.planes]))


def look_at(X: object) -> Seen:  # noqa: N803
    """An array, or a list of arrays or of files; what cannot be read is refused with its number or its name."""
    if isinstance(X, (str, Path)):
        raise InputError(f"X: a list of pictures or of files is expected, got {str(X)!r}; give [{str(X)!r}]")
    if isinstance(X, (list, tuple)) and X and all(isinstance(one, (str, Path)) for one in X):
        return _read_files([Path(one) for one in X])
    pictures = check_pictures(X)
    return Seen([shrink(one) for one in pictures], [_size(one) for one in pictures])


def _size(picture: NDArray[Any]) -> Size:
    return picture.shape[0], picture.shape[1]


def _read_files(files: list[Path]) -> Seen:
    found = [decode(file) for file in files]
    for one in found:
        if one.fault is not None:
            raise FewoneError(one.fault)
    return Seen([one.planes for one in found if one.planes is not None], [one.size for one in found])


def enlarge_maps(maps: Tensor, sizes: list[Size]) -> NDArray[np.float64] | list[NDArray[np.float64]]:
    """Maps (n, height, width) -> each at the size of its picture; one array where all sizes are the same."""
    grown = [_enlarge(one, size) for one, size in zip(maps.float().numpy(), sizes, strict=True)]
    if len(set(sizes)) > 1:
        return grown
    return np.stack(grown) if grown else np.zeros((0, SIDE, SIDE))


def _enlarge(one: NDArray[np.float32], size: Size) -> NDArray[np.float64]:
    return np.asarray(Image.fromarray(one).resize(size[::-1], Image.Resampling.BICUBIC), dtype=np.float64)
